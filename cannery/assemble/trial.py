"""Trials: the wheels that differ from the locked set of a profile, as one layer on top of the locked image.

A locked image has one layer for each group of wheels, so a changed pin would rebuild its whole group. A trial adds only
the changed wheels. After `lock`, they are part of the groups.
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

# An empty file with this prefix removes the file of that name from lower layers (OCI image specification, "Whiteouts").
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
# A label with the name of the locked image below a trial.
TRIAL_LABEL = "org.cannery.trial"
# The most bytes of changed wheels in a trial. Larger changes are built as groups.
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
        """The versions that the trial adds, or else the packages that it removes."""
        names = [f"{package.name} {package.version}" for package in self.added]
        return ", ".join(names or [f"no {package.name}" for package in self.removed])


def trial_of(plan: Plan, locked: Plan) -> Trial | None:
    """Return the changes of `plan` on the image of `locked`; None if it changes more than a few wheels."""
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
    """Return all inputs of an image except its wheels and the manifest."""
    foundation = [(layer.name, layer.digest) for layer in plan.foundation]
    return foundation, plan.links, plan.sources, plan.env, plan.epoch


def _wheels(plan: Plan) -> dict[str, LockedPackage]:
    return {package.name: package for group in plan.groups if not group.built for package in group.packages}


def removals(old: Iterable[str], new: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the paths in `old` to remove: those that are neither in `new` nor in `others`.

    A folder that only `old` has is removed as a whole, with everything in it.
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
