"""Distributions that must not be in a set, or not beside each other, and what a lock leaves open."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cannery.catalog.compatibility import CANN
from cannery.catalog.versions import package_name
from cannery.compat.findings import Finding, error, note, warning
from cannery.compat.table import here, holds, listed
from cannery.lock.lock import chain
from cannery.lock.published import public_mirrors, published_at
from cannery.recipe.bounds import TORCH, TORCH_NPU

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject

NAMED = 5
COMPLETED = "a build takes it from there where it can be reached, `make lock` writes it into the lock"
EXACT = {"==", "==="}
OFFERED = 3


def exclusive(subject: Subject) -> Iterator[Finding]:
    """Of each group that shares files, one distribution may be there."""
    asked = {chosen.package for chosen in subject.recipe.chosen}
    for names in _clashes(subject):
        extra = next((name for name in names if name not in asked), "")
        way = (
            f"`excludes: [{{requirement: {extra}, reason: …}}]`" if extra else f"{listed(names, 'or')} of `components`"
        )
        yield error(
            "exclusive",
            f"{listed(f'{name} {subject.versions[name]}' for name in names)} are both in the set; who asks: "
            + "; ".join(_chain(subject, name) for name in names),
            "they install files of the same names: the later overwrites the earlier, and removing one breaks the other",
            f"take one out: {way} in {subject.recipe.file}",
        )


def denied(subject: Subject) -> Iterator[Finding]:
    """Refuse what has no place on an NPU image, a finding for each pattern. What `exclusive` refuses is left to it."""
    reported = {name for names in _clashes(subject) for name in names}
    names = sorted(subject.versions)
    for item in subject.table.denied(chosen.package for chosen in subject.recipe.sources):
        hits = [name for name in fnmatch.filter(names, item.pattern) if name not in reported]
        if not hits:
            continue
        reported |= {*hits}
        more = f"; and {len(hits) - NAMED} more" if len(hits) > NAMED else ""
        each = "; ".join(f"{name} {subject.versions[name]}: {_chain(subject, name)}" for name in hits[:NAMED])
        yield error(
            "denied",
            f"no place on an NPU image ({item.pattern}): {each}{more}",
            item.reason,
            f"bind the first of a chain to an index with another build of it, or exclude the last in "
            f"{subject.recipe.file}",
        )


def excluded(subject: Subject) -> Iterator[Finding]:
    """Refuse to exclude what is asked for by name: a resolver leaves it out, and the lock is then no answer."""
    recipe = subject.recipe
    components = {c.package: c.name for c in recipe.chosen if c.component.kind.is_package}
    of_cann = {package_name(text) for text in recipe.base.line.python_packages}
    for item in recipe.profile.excludes:
        name = package_name(item.requirement)
        if name in components:
            who, fix = f"has it as component {components[name]}", f"take {name} out of `components` or of `excludes`"
        elif name in of_cann:
            who, fix = f"is for CANN {recipe.target.cann}, which imports it", f"take {name} out of `excludes`"
        else:
            continue
        yield error("excluded", f"{recipe.file} excludes {name}, and {who}", item.reason, fix)


def _clashes(subject: Subject) -> Iterator[list[str]]:
    for group in subject.table.exclusive:
        names = [name for name in map(canonicalize_name, group) if name in subject.versions]
        if len(names) > 1:
            yield [str(name) for name in names]


def _chain(subject: Subject, name: str) -> str:
    return " → ".join(("profile", *chain(subject.packages, name)))


def incomplete(subject: Subject) -> Iterator[Finding]:
    """A package without a hash can be checked and planned; a build needs it. One finding for each index."""
    for index in sorted({package.index for package in subject.packages if not package.complete}):
        missing = [p for p in subject.packages if p.index == index and not p.complete]
        names = [f"{p.name} {p.version}" for p in missing]
        target = subject.recipe.target
        what = f"the lock has no hash of {listed(names)} for Python {target.python} on {target.arch}"
        known = subject.catalog.indexes.get(index)
        if known is not None and not known.urls:
            yield warning(
                "lock-incomplete",
                f"{what}: no wheel of your own was found",
                f"index {index}: {known.note}",
                "put the wheel for this Python and arch into a folder, and run `python build.py lock` for this profile "
                "with --wheelhouse",
            )
        else:
            pages = "; ".join(f"{p.name} is published {published_at(p, subject.catalog.indexes)}" for p in missing)
            yield warning(
                "lock-incomplete",
                what,
                pages,
                "; ".join(filter(None, (COMPLETED, public_mirrors({index}, subject.catalog.indexes)))),
            )


def one_arch(subject: Subject) -> Iterator[Finding]:
    """Say what has a wheel for some of the profile's arches only, and is made from its sdist for the others."""
    with_wheel = {
        package.name
        for lock in subject.locks.values()
        for package in lock.packages
        if package.complete and not package.is_sdist
    }
    for arch, lock in sorted(subject.locks.items()):
        names = [f"{p.name} {p.version}" for p in lock.packages if p.is_sdist and p.name in with_wheel]
        if names:
            yield note(
                "one-arch",
                f"no wheel for {arch}, though other arches have one: {', '.join(names)}",
                f"locked as sdist for {arch}: a stage makes the wheel, and needs a compiler if there is C in it",
            )


def torch_free(subject: Subject) -> Iterator[Finding]:
    """Refuse a set with torch in which no pin, bound, override or source decides which torch."""
    who = sorted(_wanting(subject))
    if not who or any(_exact(text) for text in _bounds(subject)):
        return
    cann = subject.recipe.target.cann
    rows = [row for row in subject.rows.get(TORCH_NPU, ()) if {CANN, TORCH} <= row.fits.keys()]
    pairs = [
        f"{TORCH} {row.fits[TORCH]} with {TORCH_NPU} {row.version}" for row in rows if holds(CANN, row.fits[CANN], cann)
    ]
    known = f"; for CANN {cann} the table has {', or '.join(pairs[:OFFERED])}" if pairs else ""
    yield error(
        "torch-free",
        f"nothing holds {TORCH}, and {listed(who)} {'needs' if len(who) == 1 else 'need'} it: "
        f"a resolver takes the newest one",
        f"{TORCH_NPU} trails {TORCH} by months (flagos-ai/sglang-plugin-FL issue 14)",
        f"pin {TORCH} in {subject.recipe.file}{known}",
    )


def _wanting(subject: Subject) -> set[str]:
    """The parts that need torch: itself, torch_npu, what has rows about it, and sources that ask for it."""
    made_for = {name for name, rows in subject.rows.items() if any(TORCH in row.fits for row in rows)}
    made_for |= {TORCH, TORCH_NPU}
    found: set[str] = {c.name for c in subject.recipe.chosen if c.package in made_for}
    for chosen in subject.recipe.sources:
        asked = subject.live(chosen.known.requires if chosen.known else ())
        found |= {chosen.name for one in asked if canonicalize_name(one.name) == TORCH}
    return found or ({TORCH} if here(subject, TORCH) else set())


def _bounds(subject: Subject) -> Iterator[Requirement]:
    """Everything that may decide which torch: pins, what follows from the table, the profile, sources."""
    recipe, profile = subject.recipe, subject.recipe.profile
    pins = [c.requirement for c in recipe.wheels if c.version]
    bent = [item.requirement for item in (*profile.constraints, *profile.overrides)]
    yield from map(Requirement, (*pins, *recipe.pins, *recipe.held))
    yield from subject.live(bent)
    for chosen in recipe.sources:
        yield from subject.live(chosen.known.requires if chosen.known else ())


def _exact(requirement: Requirement) -> bool:
    operators = {part.operator for part in requirement.specifier}
    return canonicalize_name(requirement.name) == TORCH and bool(operators & EXACT)
