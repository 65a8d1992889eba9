"""Who asked for a package of a lock: the chain from the profile down to it; and the packages that must not be there."""

from __future__ import annotations

from collections import deque
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cannery.core.lock import PROFILE_VIA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cannery.core.lock import LockedPackage


def chain(packages: Iterable[LockedPackage], name: str) -> tuple[str, ...]:
    """Return the shortest chain of names from a requirement of the profile to `name`, both included.

    Who asks and is no package of the lock is a source, which the profile names.
    """
    via = {package.name: package.via for package in packages}
    paths: deque[tuple[str, ...]] = deque([(name,)])
    seen = {name}
    while paths:
        path = paths.popleft()
        if PROFILE_VIA in via.get(path[0], (PROFILE_VIA,)):
            return path
        for asker in via.get(path[0], ()):
            # `via` may carry an extra of the asker: `ray[default]`
            parent = asker.split("[")[0]
            if parent not in seen:
                seen.add(parent)
                paths.append((parent, *path))
    return (name,)


def denied(packages: Sequence[LockedPackage], globs: Sequence[str]) -> tuple[str, ...]:
    """Return one line for each package that one of `globs` matches: `nvidia-nccl 2.1: torch → nvidia-nccl`."""
    return tuple(
        f"{package.name} {package.version}: {' → '.join(chain(packages, package.name))}"
        for package in packages
        if any(fnmatchcase(package.name, glob) for glob in globs)
    )
