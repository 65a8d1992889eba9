"""What a lock leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.findings import Finding, note, warning
from cannery.compat.table import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject


def incomplete(subject: Subject) -> Iterator[Finding]:
    """A package without a hash can be checked, not built; one finding for each index."""
    for index in sorted({package.index for package in subject.packages if not package.complete}):
        names = [f"{p.name} {p.version}" for p in subject.packages if p.index == index and not p.complete]
        are = "is" if len(names) == 1 else "are"
        what = f"{listed(names)} {are} locked by version only"
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
            their = "its wheel and hash are" if len(names) == 1 else "their wheels and hashes are"
            yield warning(
                "lock-incomplete",
                f"{what}: index {index} was not reached",
                f"{their} on that index alone",
                f"run `python build.py lock` for this profile where index {index} can be reached",
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
