"""What the sources of a set ask for, at their commit or release: known without fetching them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.requirements import Requirement

    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import Chosen


@dataclass(frozen=True)
class Ask:
    """A requirement of a source that counts on the target; `name` is the normalised name of what it asks for."""

    who: Chosen
    requirement: Requirement
    name: str

    @property
    def wanted(self) -> str:
        """The requirement without extras and marker: `torch==2.8.0`."""
        return f"{self.requirement.name}{self.requirement.specifier}"

    def takes(self, version: str) -> bool:
        """Whether it is content with a version."""
        return self.requirement.specifier.contains(version, prereleases=True)


def asks(subject: Subject) -> Iterator[Ask]:
    """Give every requirement of the sources that counts on the target."""
    for who in subject.recipe.sources:
        for requirement in subject.live(who.known.requires if who.known else ()):
            yield Ask(who, requirement, canonicalize_name(requirement.name))


def unmet(subject: Subject) -> Iterator[tuple[Ask, str]]:
    """Give the requirements that a package of the set is outside of, with its version."""
    for ask in asks(subject):
        version = subject.versions.get(ask.name)
        if version is not None and not ask.takes(version):
            yield ask, version
