"""What is newer than a lock has it: the lines of `outdated`, from answers that are there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cannery.catalog.versions import package_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cannery.compat.stock import Stock
    from cannery.lock.lock import Lock, LockedPackage, LockRequest
    from cannery.recipe.recipe import Chosen, Recipe
    from cannery.vocab import Arch

# Of a set that works, and of versions that do not work together, so that one has to try.
HEAD = {
    True: ("package", "locked", "upgraded", "newest"),
    False: ("package", "locked", "to try", "newest"),
}
NOTHING = "-"


@dataclass(frozen=True)
class Outdated:
    """One package: its version in the lock, what an upgrade of all brings, and the newest at all.

    Versions are without their local part; "" is not there, or not known. `direct`: a component of the profile.
    """

    name: str
    locked: str
    upgraded: str
    newest: str
    direct: bool


@dataclass(frozen=True)
class Evidence:
    """What was found out beside the lock.

    `fresh` is the lock with every pin at the newest that fits and all uploads up to today; where that set does not work
    the one with the pins as they are, None when that does not work either. `pins` are those that can move; `stock` is
    what the indexes have.
    """

    fresh: Lock | None
    pins: Mapping[str, str]
    stock: Stock


def upgrade_targets(recipe: Recipe) -> tuple[tuple[str, Arch], ...]:
    """Return each (Python, arch) that an upgrade has to fit: the profile's, or a target that is none of them."""
    own, mine = recipe.profile.target, (recipe.target.python, recipe.target.arch)
    every = dict.fromkeys((python, arch) for python in (own.python, *own.pythons) for arch in own.arch)
    return tuple(every) if mine in every else (mine,)


def at_day(request: LockRequest, day: str) -> LockRequest:
    """Return `request` with its date bound moved to `day`. A package that is held at an earlier day stays held."""
    return replace(request, exclude_newer=max(day, request.exclude_newer), package_dates=_held_days(request))


def _held_days(request: LockRequest) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in request.package_dates if pair[1] < request.exclude_newer)


def changed_names(lock: Lock, fresh: Lock | None) -> tuple[str, ...]:
    """Return the packages that `fresh` has otherwise than `lock`."""
    before = _versions(lock.packages)
    after = _versions(fresh.packages) if fresh else before
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def named_packages(recipe: Recipe, request: LockRequest, lock: Lock, fresh: Lock | None) -> tuple[str, ...]:
    """Return what the profile names: its wheels, in its order; then of the lock what its bounds and dates are about.

    Last what is asked for besides, by CANN or a pin for once, as far as `fresh` has it otherwise.
    """
    profile, there = recipe.profile, {package.name for package in lock.packages}
    bounds = {package_name(item.requirement) for item in (*profile.constraints, *profile.overrides)}
    dates = {str(canonicalize_name(name)) for name in profile.exclude_newer_packages}
    asked = {package_name(text) for text in request.requirements} & {*changed_names(lock, fresh)}
    wheels = [chosen.package for chosen in recipe.wheels]
    return tuple(dict.fromkeys([*wheels, *sorted((bounds | dates) & there), *sorted(asked)]))


def outdated_packages(recipe: Recipe, lock: Lock, found: Evidence, names: Iterable[str]) -> tuple[Outdated, ...]:
    """Return a line for each of `names`, in their order."""
    before = _versions(lock.packages)
    after = {**_versions(found.fresh.packages if found.fresh else lock.packages), **found.pins}
    direct = {chosen.package for chosen in recipe.wheels}
    versions = ((name, public(before.get(name, "")), public(after.get(name, ""))) for name in names)
    return tuple(
        Outdated(name, locked, upgraded, found.stock.newest(name), name in direct)
        for name, locked, upgraded in versions
    )


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


def table(packages: Sequence[Outdated], *, works: bool = True) -> tuple[str, ...]:
    """Return the lines of a table, with its head; `works`: an upgrade of all is a set that works."""
    rows = [HEAD[works], *((p.name, p.locked, p.upgraded, p.newest) for p in packages)]
    widths = [max(len(cell or NOTHING) for cell in column) for column in zip(*rows, strict=True)]
    cells = ([f"{cell or NOTHING:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows)
    return tuple("  ".join(row).rstrip() for row in cells)


def public(version: str) -> str:
    """Return a version without its local part; "" stays ""."""
    return Version(version).public if version else ""


def _versions(packages: Iterable[LockedPackage]) -> dict[str, str]:
    return {package.name: package.version for package in packages}
