"""What a profile overrides is always shown, with its reason and who asks for another version; and its own warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cannery.compat.findings import Finding, note, warning
from cannery.compat.rules.requires import asks
from cannery.compat.table import followed, holds, judging, listed, said
from cannery.lock.lock import PROFILE_VIA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject


def overrides(subject: Subject) -> Iterator[Finding]:
    """Report each override in one note, however many ask for another version."""
    for override in subject.recipe.profile.overrides:
        requirement = Requirement(override.requirement)
        if canonicalize_name(requirement.name) in subject.overridden:
            what = f"{override.requirement} overrides{_otherwise(subject, requirement)}"
            yield note("override", what, override.reason)


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


def _exact(override: Requirement) -> str | None:
    """The version of an override, where it is one: `==2.7.1`."""
    return next((p.version for p in override.specifier if p.operator == "==" and "*" not in p.version), None)


def _rows(subject: Subject, name: str, version: str | None) -> Iterator[tuple[str, str]]:
    """Give (distribution, what it is made for) of releases whose rows have another version."""
    for other in subject.with_rows(name):
        if name in followed(subject, other):
            continue
        rows = [row for row in judging(subject, other) if name in row.fits]
        if version and rows and not holds(name, rows[0].fits[name], version):
            yield other, f"{other} is made for {said(name, rows[0].fits[name])}"


def warned(subject: Subject) -> Iterator[Finding]:
    """The profile's own warnings, each a finding."""
    for item in subject.recipe.profile.warnings:
        yield warning("profile", item.what, f"{subject.recipe.file}: {item.reason}")
