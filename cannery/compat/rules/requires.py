"""What sources ask for at their commit, compared with what the set has, and what a profile overrides.

The resolver sees to what wheels ask for. An override is always shown, with who asks for another version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.component import FromSource, System
from cannery.compat.findings import Finding, error, note, warning
from cannery.compat.table import followed, holds, judging, listed, phrase
from cannery.lock.lock import PROFILE_VIA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.component import Known
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


def requirements(subject: Subject) -> Iterator[Finding]:
    """Refuse a package outside what a source asks, unless the profile overrides it: `overrides` shows those."""
    has = "the lock has" if subject.lock else "the profile has"
    for ask, version in unmet(subject):
        who = ask.who
        if ask.name not in subject.overridden and who.known:
            yield error(
                "requirement",
                f"{who.name} {who.version} asks for {ask.wanted}, {has} {ask.name} {version}",
                f"images/components/{who.name}.yaml: {who.known.source}",
                _ways_out(subject, ask, version),
            )


def not_there(subject: Subject) -> Iterator[Finding]:
    """Refuse a set without a build that a source asks for by its local part: no resolver finds it on the main index."""
    target, parts = subject.recipe.target, subject.catalog.components
    for ask in asks(subject) if subject.lock is None else ():
        version = _exact(ask.requirement)
        if ask.name in subject.versions or version is None or Version(version).local is None or not ask.who.known:
            continue
        names = [n for n, part in parts.items() if not isinstance(part, System) and (part.package or n) == ask.name]
        wheel = f"{ask.name.replace('-', '_')}-{version}-*.whl for Python {target.python} on {target.arch}"
        yield error(
            "requirement",
            f"{ask.who.name} {ask.who.version} asks for {ask.wanted}, which is not in the set",
            f"images/components/{ask.who.name}.yaml: {ask.who.known.source}",
            f"take component {listed(sorted(names), 'or')} into {subject.recipe.file}; a wheel of your own ({wheel}) "
            "goes into the folder that --wheelhouse (WHEELHOUSE) names",
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


def overrides(subject: Subject) -> Iterator[Finding]:
    """Report each override in one note, however many ask for another version."""
    for override in subject.recipe.profile.overrides:
        requirement = Requirement(override.requirement)
        if canonicalize_name(requirement.name) in subject.overridden:
            what = f"{override.requirement} overrides{_otherwise(subject, requirement)}"
            yield note("override", what, override.reason)


def substitutes(subject: Subject) -> Iterator[Finding]:
    """Report what a stand-in has in place of the profile's own version."""
    own = {pin.name: pin.version for pin in subject.recipe.profile.components}
    for one in subject.recipe.substitutes:
        what = f"{one.name} {one.version} is in place of {own[one.name]}, on the stand-in base alone"
        yield note("substitute", what, one.reason)


def _otherwise(subject: Subject, override: Requirement) -> str:
    """Return who asks for another version: sources at their commit, then rows; else who asks for the package at all."""
    name = canonicalize_name(override.name)
    version = subject.versions.get(name) or _exact(override)
    wanted = {
        ask.who.package: f"{ask.who.name} asks {ask.wanted}"
        for ask in asks(subject)
        if ask.name == name and (not ask.takes(version) if version else ask.requirement.specifier)
    }
    rows = {other: text for other, text in _rows(subject, name, version) if other not in wanted}
    if wanted or rows:
        return f": {', '.join((wanted | rows).values())}"
    via = next((package.via for package in subject.packages if package.name == name), ())
    askers = [asker for asker in via if asker != PROFILE_VIA]
    return f" what {listed(askers)} {'asks' if len(askers) == 1 else 'ask'}" if askers else " what packages ask"


def _exact(wanted: Requirement) -> str | None:
    """The version of a requirement, where it is one: `==2.7.1`."""
    return next((p.version for p in wanted.specifier if p.operator == "==" and "*" not in p.version), None)


def _rows(subject: Subject, name: str, version: str | None) -> Iterator[tuple[str, str]]:
    """Give (distribution, what it is made for) of releases whose rows have another version."""
    for other in subject.with_rows(name):
        if name in followed(subject, other):
            continue
        rows = [row for row in judging(subject, other) if name in row.fits]
        if version and rows and not holds(name, rows[0].fits[name], version):
            yield other, f"{other} is made for {phrase(name, rows[0].fits[name])}"


def warned(subject: Subject) -> Iterator[Finding]:
    """The profile's own warnings, each a finding."""
    for item in subject.recipe.profile.warnings:
        yield warning("profile", item.what, f"{subject.recipe.file}: {item.reason}")
