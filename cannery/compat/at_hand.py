"""What verify would find in wheels that are on this host already: what they ask for, and modules that cannot run.

The resolver holds a lock to what wheels ask for, but for what the profile overrides. pip_check_allow is judged by names
and versions alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cannery.catalog.target import package_name
from cannery.compat.findings import Finding, error, warning
from cannery.recipe.recipe import left_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cannery.compat.subject import Subject


class Wheel(NamedTuple):
    """A wheel: its package and version, its Requires-Dist, and its modules that the target's Python cannot run."""

    name: str
    version: str
    requires: tuple[str, ...]
    unusable: tuple[str, ...]


def wheel_findings(subject: Subject, wheels: Iterable[Wheel]) -> Iterator[Finding]:
    """Report what `pip check` and an import would fail on in the image."""
    for wheel in wheels:
        if wheel.unusable:
            more = f" and {len(wheel.unusable) - 1} more" if len(wheel.unusable) > 1 else ""
            what = f"{wheel.name} {wheel.version}: {wheel.unusable[0]}{more}"
            fix = f"take a wheel of it for Python {subject.recipe.target.python}"
            yield error("wheel-module", what, "an import in the image fails on it", fix)
        for requirement in subject.live(_readable(wheel.requires)):
            yield from _asked(subject, wheel, requirement)


def _readable(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        try:
            Requirement(text)
        except InvalidRequirement:  # pip leaves it aside, too
            continue
        yield text


def _asked(subject: Subject, wheel: Wheel, requirement: Requirement) -> Iterator[Finding]:
    profile, name = subject.recipe.profile, canonicalize_name(requirement.name)
    version, asker = subject.versions.get(name), f"{wheel.name} {wheel.version}"
    wanted = f"{requirement.name}{requirement.specifier}"
    if version is None:
        absent = {package_name(e.requirement) for e in profile.excludes} | {o.name for o in left_out(subject.recipe)}
        if name not in absent | {source.package for source in subject.recipe.sources}:
            yield from _line(subject, f"{asker} requires {requirement.name}, which is not installed.")
    elif not requirement.specifier.contains(version, prereleases=True):
        if name not in subject.overridden:
            yield from _line(subject, f"{asker} has requirement {wanted}, but you have {name} {version}.")
        reasons = [o.reason for o in profile.overrides if package_name(o.requirement) == name]
        if reasons and not any(wheel.name in canonicalize_name(reason.replace(" ", "-")) for reason in reasons):
            what = f"{asker} asks for {wanted}, which the override of {name} goes against: the set has {name} {version}"
            fix = f"say in the override's reason why {wheel.name} works with it, or override {name} within that bound"
            yield warning("override-bound", what, f"{subject.recipe.file}: {'; '.join(reasons)}", fix)


def _line(subject: Subject, line: str) -> Iterator[Finding]:
    if not any(re.search(pattern, line) for pattern in subject.recipe.profile.pip_check_allow):
        yield error(
            "pip-check",
            f"`pip check` in the image would report: {line}",
            "verify fails on each line of it that the profile does not allow",
            f"change the set, or add a pattern of that line to `pip_check_allow` in {subject.recipe.file}",
        )
