"""Who asked for a package of a lock: the chain from the profile down to it; and the packages that must not be there."""

from __future__ import annotations

from collections import deque
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cannery.lock.lock import PROFILE_VIA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cannery.lock.lock import LockedPackage


def shortest(askers: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """Return the shortest chain of names from a requirement of the profile to `name`, both included.

    `askers` is name → who asks for it, `PROFILE_VIA` for the profile. Who asks and is no key of it is a source, which
    the profile names. Where no chain leads to the profile it is `name` alone.
    """
    paths: deque[tuple[str, ...]] = deque([(name,)])
    seen = {name}
    while paths:
        path = paths.popleft()
        if PROFILE_VIA in askers.get(path[0], (PROFILE_VIA,)):
            return path
        for asker in askers[path[0]]:
            if asker and asker not in seen:
                seen.add(asker)
                paths.append((asker, *path))
    return (name,)


def chain(packages: Iterable[LockedPackage], name: str) -> tuple[str, ...]:
    """Return the shortest chain from the profile to a package of a lock."""
    # `via` may carry an extra of the asker: `ray[default]`
    return shortest({p.name: [asker.split("[")[0] for asker in p.via] for p in packages}, name)


def denied(packages: Sequence[LockedPackage], globs: Sequence[str]) -> tuple[str, ...]:
    """Return one line for each package that one of `globs` matches: `nvidia-nccl 2.1: torch → nvidia-nccl`."""
    return tuple(
        f"{package.name} {package.version}: {' → '.join(chain(packages, package.name))}"
        for package in packages
        if any(fnmatchcase(package.name, glob) for glob in globs)
    )
