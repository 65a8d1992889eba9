"""What is newer than a lock has it: the lines of `outdated`, from answers that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.compat.stock import Stock
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Chosen, Recipe
    from cannery.vocab import Arch

HEAD = ("package", "locked", "fits", "newest")
NOTHING = "-"


@dataclass(frozen=True)
class Outdated:
    """A component of the profile: its version in the lock, the newest that fits with the others, and the newest at all.

    Versions are without their local part; "" is not there, or not known.
    """

    name: str
    locked: str
    fits: str
    newest: str

    @property
    def is_newer(self) -> bool:
        """Whether a newer one fits."""
        return bool(self.locked and self.fits) and Version(self.fits) > Version(self.locked)

    @property
    def is_held(self) -> bool:
        """Whether the newest one does not fit."""
        return bool(self.newest and self.fits) and Version(self.newest) > Version(self.fits)


def upgrade_targets(recipe: Recipe) -> tuple[tuple[str, Arch], ...]:
    """Return each (Python, arch) that an upgrade has to fit: the profile's, or a target that is none of them."""
    own, mine = recipe.profile.target, (recipe.target.python, recipe.target.arch)
    every = dict.fromkeys((python, arch) for python in (own.python, *own.pythons) for arch in own.arch)
    return tuple(every) if mine in every else (mine,)


def outdated_packages(recipe: Recipe, lock: Lock, pins: Mapping[str, str], stock: Stock) -> tuple[Outdated, ...]:
    """Return a line for each wheel of the profile; `pins` are those that can move together, and where to."""
    locked = {package.name: public(package.version) for package in lock.packages}
    found = []
    for chosen in recipe.wheels:
        name = chosen.package
        own = "" if chosen.version else stock.newest_for(name)
        fits = public(pins.get(name, "")) or max(filter(None, (own, locked.get(name, ""))), key=Version, default="")
        newest = stock.newest.get(name, "")
        if newest and Version(newest) < Version(fits or newest):
            newest = ""  # the index that has it was not asked
        found.append(Outdated(name, locked.get(name, ""), fits, newest))
    return tuple(found)


def source_lines(recipe: Recipe, refs: Mapping[str, tuple[Mapping[str, str], str]]) -> tuple[str, ...]:
    """Return a line for each source: what it is pinned to, and what its repository has that is newer.

    `refs` are {ref: commit} of each, and why they are not known.
    """
    return tuple(f"{c.name}: {_source(c, *refs.get(c.name, ({}, 'not looked at')))}" for c in recipe.sources)


def _source(chosen: Chosen, refs: Mapping[str, str], why: str) -> str:
    pinned = f"pinned to {f'commit {chosen.commit}' if chosen.commit else f'release {chosen.release}'}"
    if why:
        return f"{pinned}; its repository was not asked: {why}"
    tags = {ref.rpartition("/")[2]: commit for ref, commit in refs.items() if ref.startswith("refs/tags/")}
    mine = next((tag for tag, commit in tags.items() if commit == chosen.commit), "")
    newest = max(filter(_tagged, tags), key=Version, default="")
    known = chosen.release or mine or (chosen.version or "")
    is_newer = newest and _tagged(known) and Version(newest) > Version(known)
    parts = [f"{pinned}{f' ({mine})' if mine else ''}"]
    parts += [f"newest tag {newest}, {tags[newest]}"] if is_newer else ["no newer tag"]
    head = refs.get("HEAD", "")
    parts += [f"its branch is at {head}"] if chosen.commit and head and head != chosen.commit else []
    return "; ".join(parts)


def _tagged(tag: str) -> bool:
    """Whether a tag names a release: `v0.13.0`; no candidate."""
    try:
        return not Version(tag).is_prerelease or bool(Version(tag).is_devrelease)
    except InvalidVersion:
        return False


def table(packages: Sequence[Outdated]) -> tuple[str, ...]:
    """Return the lines of a table, with its head."""
    rows = [HEAD, *((p.name, p.locked, p.fits, p.newest) for p in packages)]
    widths = [max(len(cell or NOTHING) for cell in column) for column in zip(*rows, strict=True)]
    cells = ([f"{cell or NOTHING:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows)
    return tuple("  ".join(row).rstrip() for row in cells)


def public(version: str) -> str:
    """Return a version without its local part; "" stays ""."""
    return Version(version).public if version else ""
