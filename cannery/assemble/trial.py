"""A set that is tried: what differs from the locked set of its profile, as one layer on the locked image.

A locked image has a layer for each group of wheels, so a changed pin makes its group and its consumers' again. A trial
is made in the time that its own wheels take, and ships in their size. `lock` makes groups of it.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.assemble.tar import above

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.lock.lock import LockedPackage
    from cannery.plan import Plan

# The OCI image specification, "Whiteouts": an empty file of this name removes the one of the layers below.
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
# Names the locked image that a trial is a layer on.
TRIAL_LABEL = "org.cannery.trial"
# Of the wheels that a trial brings. A build of groups is for more.
MOST_BYTES = 150_000_000


@dataclass(frozen=True)
class Trial:
    """What a set changes on the image `parent`: the wheels that it leaves out and those that it brings."""

    parent: str
    removed: tuple[LockedPackage, ...]
    added: tuple[LockedPackage, ...]
    kept: tuple[LockedPackage, ...]

    @property
    def words(self) -> str:
        """The versions that it brings, or what it leaves out."""
        names = [f"{package.name} {package.version}" for package in self.added]
        return ", ".join(names or [f"no {package.name}" for package in self.removed])


def trial_of(plan: Plan, locked: Plan) -> Trial | None:
    """Return what `plan` changes on the image of `locked`; None where that is more than some wheels."""
    if _beside_wheels(plan) != _beside_wheels(locked):
        return None
    before, now = _wheels(locked), _wheels(plan)
    changed = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
    if sum(package.size for package in now.values() if package.name in changed) > MOST_BYTES:
        return None
    return Trial(
        parent=locked.reference,
        removed=tuple(before[name] for name in sorted(changed) if name in before),
        added=tuple(now[name] for name in sorted(changed) if name in now),
        kept=tuple(package for name, package in sorted(now.items()) if name not in changed),
    )


def _beside_wheels(plan: Plan) -> tuple[object, ...]:
    """Return all that decides an image's content but the wheels and what is written about them."""
    foundation = [(layer.name, layer.digest) for layer in plan.foundation]
    return foundation, plan.links, plan.sources, plan.env, plan.epoch


def _wheels(plan: Plan) -> dict[str, LockedPackage]:
    return {package.name: package for group in plan.groups if not group.built for package in group.packages}


def removals(old: Iterable[str], new: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the paths that a layer removes, so that of the files `old` only those of `new` and `others` are left.

    A folder that only `old` had goes as a whole, with byte code and all else that is in it.
    """
    stays = set(new) | set(others)
    folders = {folder for path in stays for folder in above(path)}
    return sorted({_topmost(path, folders) for path in set(old) - stays})


def _topmost(path: str, folders: set[str]) -> str:
    """Return the highest folder above `path` that is not in `folders`, or `path` itself."""
    return next((folder for folder in above(path) if folder not in folders), path)


def whiteout(path: str) -> str:
    """Return the path of the file that removes `path`."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, WHITEOUT + name)
