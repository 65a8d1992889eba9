"""What sources ask for at their commit, held against what the set has. What wheels ask is the resolver's matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cannery.catalog.component import FromSource
from cannery.compat.findings import Finding
from cannery.compat.rules.asks import unmet
from cannery.compat.table import listed
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.component import Known
    from cannery.compat.rules.asks import Ask
    from cannery.compat.subject import Subject


def requirements(subject: Subject) -> Iterator[Finding]:
    """Refuse a package outside what a source asks, unless the profile overrides it: `overrides` shows those."""
    has = "the lock has" if subject.lock else "the profile has"
    for ask, version in unmet(subject):
        who = ask.who
        if ask.name not in subject.overridden and who.known:
            yield Finding(
                Severity.ERROR,
                "requirement",
                f"{who.name} {who.version} asks for {ask.wanted}, {has} {ask.name} {version}",
                f"images/components/{who.name}.yaml: {who.known.source}",
                _ways_out(subject, ask, version),
            )


def _ways_out(subject: Subject, ask: Ask, version: str) -> str:
    """Say what to move: the package, the source to a pin that takes this version, or what it asks."""
    component, who = ask.who.component, ask.who
    others: dict[str, Known] = {}
    if isinstance(component, FromSource):
        others |= {f"commit {commit}": known for commit, known in component.revisions.items() if commit != who.commit}
        others |= {f"release {name}": known for name, known in component.releases.items() if name != who.release}
    fitting = [pin for pin, known in others.items() if _takes(subject, known, ask.name, version)]
    ways = [f"take a {ask.name} that {ask.wanted} allows"]
    ways += [f"take {who.name} at {listed(fitting, 'or')}, which takes {ask.name} {version}"] if fitting else []
    return f"{', '.join(ways)}, or override {ask.name} in {subject.recipe.file} and say why it runs all the same"


def _takes(subject: Subject, known: Known, name: str, version: str) -> bool:
    """Whether another pin of the source asks for the package and is content with the version of the set."""
    asked = [one for one in subject.live(known.requires) if canonicalize_name(one.name) == name]
    return bool(asked) and all(one.specifier.contains(version, prereleases=True) for one in asked)
