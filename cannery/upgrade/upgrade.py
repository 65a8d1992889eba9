"""`lock --upgrade NAME`: which edits of the profile let a package be newer.

A lock is a function of the profile, so an upgrade is an edit of the profile. A pin moves to a newer release that fits
the table, together with the pins beside it there. What is not pinned gets a later date bound of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.compatibility import CANN
from cannery.compat.solve import upgrader, with_pins
from cannery.compat.stock import Allowed
from cannery.errors import FindingsError, NetworkError, UsageError
from cannery.lock.request import lock_request
from cannery.upgrade.edit import Edit, SetBound, SetDate, SetVersion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cannery.compat.solve import Solver
    from cannery.compat.stock import Stock
    from cannery.recipe.recipe import Chosen
    from cannery.upgrade.wishes import Editable, Wish


@dataclass(frozen=True)
class Upgrade:
    """The edits of the profile, and a line for every wish that needs none."""

    edits: tuple[Edit, ...]
    notes: tuple[str, ...]


def upgrade_edits(subject: Editable, wishes: Sequence[Wish], stock: Stock, today: str) -> Upgrade:
    """Return what to change in the profile so that `wishes`, checked ones, come true.

    Raises `FindingsError` for a version that no index has for every target of the profile, `NetworkError` where that is
    not known since an index was not reached, `UsageError` for two wishes that move one pin to two versions.
    """
    pins: dict[str, str] = {}
    edits: list[Edit] = []
    notes: list[str] = []
    for asked in wishes:
        wish = replace(asked, version=stock.spelt(asked.name, asked.version)) if asked.version else asked
        if wish.version and not stock.has(wish.name, wish.version):
            raise _absent(subject, wish, stock)
        chosen = subject.chosen(wish.name)
        if chosen and chosen.version:
            moved, note = _moved_pins(subject, pins, wish, stock)
            _refuse_clash(wishes, wish, moved)
            pins |= moved
            notes += [note] if note else []
        elif more := tuple(_loosened(subject, wish, chosen, stock, today)):
            edits += more
        else:
            notes.append(f"{wish.name}: uploads up to {subject.bound(wish.name)} count already")
    return Upgrade((*_pin_edits(subject, pins, stock, today), *edits), tuple(notes))


def asked_names(subject: Editable, wishes: Collection[Wish]) -> tuple[str, ...]:
    """Return the packages whose releases have to be known: those of the wishes, and pins that may move with them."""
    solver = upgrader(subject.recipe, subject.catalog)
    pins = [c.package for c in subject.recipe.wheels if c.package in (solver.movable or ())]
    beside = [name for name in pins if solver.known(name)] if any(wish.name in pins for wish in wishes) else []
    return tuple(dict.fromkeys([*(wish.name for wish in wishes), *beside]))


def _absent(subject: Editable, wish: Wish, stock: Stock) -> FindingsError | NetworkError:
    if trouble := stock.trouble.get(wish.name):
        return NetworkError(f"whether there is {wish} is not known: {trouble}", where=subject.file)
    newest = stock.newest(wish.name)
    return FindingsError(
        f"no index has {wish} for every Python and arch of the profile",
        where=subject.file,
        hint=f"the newest release is {newest}" if newest else "",
    )


def _moved_pins(subject: Editable, pins: Mapping[str, str], wish: Wish, stock: Stock) -> tuple[Mapping[str, str], str]:
    """Return the pins to change for a wish about a pinned package, or why none is."""
    recipe = with_pins(subject.recipe, subject.catalog, pins)
    fitting = Allowed(stock, lock_request(recipe))
    solver = upgrader(recipe, subject.catalog, subject.pythons, fitting.has)
    present = solver.subject.versions[wish.name]
    stays = f"{wish.name} stays at {present}"
    if wish.version:
        note = f"{wish.name}: pinned to {present} already" if Version(present) == Version(wish.version) else ""
        return _exact_pins(replace(solver, has=stock.has), wish.name, wish.version), note
    if solver.known(wish.name):
        moved = solver.newest(wish.name)
        reason = f"no row of the table for CANN {recipe.target.cann} that fits the rest is newer"
        return moved, "" if moved else f"{stays}: {reason}"
    latest = fitting.newest_for(wish.name)
    if latest is not None and Version(latest) > Version(Version(present).public):
        return {wish.name: latest}, ""
    if trouble := stock.trouble.get(wish.name):
        raise NetworkError(f"{wish.name}: whether there is a newer one is not known: {trouble}", where=subject.file)
    reason = "no index has a newer one that the rest of the profile allows, for every Python and arch of it"
    return {}, f"{stays}: {reason}"


def _exact_pins(solver: Solver, name: str, version: str) -> Mapping[str, str]:
    """Return the pins to change for one version: those that then fit the whole set, else those that its rows name.

    A release that the table does not know moves alone. The rules judge the new set afterwards.
    """
    if not solver.known(name):
        return {name: version}
    sources = (c.package for c in solver.subject.recipe.sources)
    found = solver.exactly(name, version)
    loose = found if found is not None else replace(solver, ignored=frozenset({CANN, *sources})).exactly(name, version)
    return loose if loose is not None else {name: version}


def _refuse_clash(wishes: Iterable[Wish], cause: Wish, moved: Mapping[str, str]) -> None:
    for wish in wishes:
        if wish.version and Version(moved.get(wish.name, wish.version)) != Version(wish.version):
            raise UsageError(f"--upgrade: {cause} goes with {wish.name} {moved[wish.name]}, not with {wish}")


def _pin_edits(subject: Editable, pins: Mapping[str, str], stock: Stock, today: str) -> Iterator[Edit]:
    for name, version in pins.items():
        chosen = subject.chosen(name)
        if chosen and chosen.version and Version(chosen.version) != Version(version):
            yield SetVersion(chosen.name, version)
            yield from _dated(subject, name, version, stock, today)


def _loosened(subject: Editable, wish: Wish, chosen: Chosen | None, stock: Stock, today: str) -> Iterator[Edit]:
    """Give the edits for a package that is not pinned: a later date, or for an exact version a pin or a bound."""
    if wish.version is None:
        if subject.bound(wish.name) < today:
            yield SetDate(wish.name, today)
        return
    if chosen:
        yield SetVersion(chosen.name, wish.version)
    else:
        yield SetBound(wish.name, wish.version)
    yield from _dated(subject, wish.name, wish.version, stock, today)


def _dated(subject: Editable, name: str, version: str, stock: Stock, today: str) -> Iterator[Edit]:
    """Give a later date bound for a release that came after the present one."""
    if stock.uploaded(name, version) > subject.bound(name):
        yield SetDate(name, today)
