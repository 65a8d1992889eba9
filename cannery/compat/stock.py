"""What the indexes have of a recipe's packages, and the part of it that its constraints and sources allow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.requirement import live, marker_environment, package_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.lock.lock import LockRequest


class Stock(Protocol):
    """What the indexes have (`cannery.compat.io.shelf.Shelf`)."""

    def has(self, name: str, version: str) -> bool:
        """Whether there is a release for every target."""

    def spelt(self, name: str, version: str) -> str:
        """Return a version as an index writes it: equal ones may be written in several ways."""

    def newest(self, name: str) -> Newest:
        """Return the newest release of all."""

    def newest_for(self, name: str, allowed: SpecifierSet) -> str | None:
        """Return the newest allowed release that there is for every target."""

    def uploaded(self, name: str, version: str) -> str:
        """Return the day on which a release came; "" where the index does not have it."""

    def trouble(self, name: str) -> str:
        """Say which index of a package could not be asked; "" when all were."""


@dataclass(frozen=True)
class Allowed:
    """A stock without what the constraints of `request` or its sources, whose wishes are known, leave out.

    What wheels ask for would have to be fetched: the resolver finds it out.
    """

    stock: Stock
    request: LockRequest

    def has(self, name: str, version: str) -> bool:
        """Whether there is an allowed release for every target."""
        return self._range(name).contains(Version(version).public, prereleases=True) and self.stock.has(name, version)

    def newest_for(self, name: str) -> str | None:
        """Return the newest allowed release that there is for every target."""
        return self.stock.newest_for(name, self._range(name))

    def _range(self, name: str) -> SpecifierSet:
        return self._ranges.get(name, SpecifierSet())

    @cached_property
    def _ranges(self) -> Mapping[str, SpecifierSet]:
        request = self.request
        overridden = {package_name(text) for text in request.overrides}
        texts = [text for source in request.sources for text in source.requires]
        environment = marker_environment(request.python, request.arch)
        found: dict[str, SpecifierSet] = {}
        for wanted in live((*request.constraints, *texts), environment):
            name = canonicalize_name(wanted.name)
            if name not in overridden:
                found[name] = found.get(name, SpecifierSet()) & wanted.specifier
        return found


@dataclass(frozen=True)
class Newest:
    """The newest release that an index has, "" where none is known; `fits`: it has a file for every target."""

    version: str = ""
    fits: bool = True
