"""Distributions that must not be in a set, or not beside each other, and what a lock leaves open."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cannery.catalog.versions import package_name
from cannery.compat.findings import Finding, error, note, warning
from cannery.compat.table import listed
from cannery.lock.lock import chain
from cannery.lock.published import public_mirrors, published_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject

NAMED = 5
COMPLETED = "a build takes it from there where it can be reached, `make lock` writes it into the lock"


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
    for item in subject.table.denied(chosen.package for chosen in subject.recipe.sources):
        hits = [name for name in sorted(subject.versions) if fnmatchcase(name, item.pattern) and name not in reported]
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
