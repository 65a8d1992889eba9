"""Trials: the wheels that differ from the locked set of a profile, as one layer on the locked image.

A locked image has a layer for each group of wheels, so a changed pin would make its whole group again. A trial takes
only the time and the size of its own wheels. After `lock` they are in groups again.
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
# The most bytes of changed wheels in a trial. More is built as groups.
MOST_BYTES = 150_000_000


@dataclass(frozen=True)
class Trial:
    """The changes on the image `parent`: the wheels that are removed, added and kept."""

    parent: str
    removed: tuple[LockedPackage, ...]
    added: tuple[LockedPackage, ...]
    kept: tuple[LockedPackage, ...]

    @property
    def words(self) -> str:
        """The versions that it adds, or the packages that it removes."""
        names = [f"{package.name} {package.version}" for package in self.added]
        return ", ".join(names or [f"no {package.name}" for package in self.removed])


def trial_of(plan: Plan, locked: Plan) -> Trial | None:
    """Return what `plan` changes on the image of `locked`; None if it changes more than some wheels."""
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
    """Return everything that decides the content of an image, except its wheels and the manifest."""
    foundation = [(layer.name, layer.digest) for layer in plan.foundation]
    return foundation, plan.links, plan.sources, plan.env, plan.epoch


def _wheels(plan: Plan) -> dict[str, LockedPackage]:
    return {package.name: package for group in plan.groups if not group.built for package in group.packages}


def removals(old: Iterable[str], new: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the paths to remove of the files `old`: those that neither `new` nor `others` has.

    A folder that only `old` has is removed as a whole, with byte code and everything else in it.
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
