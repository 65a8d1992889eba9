"""`lock --upgrade NAME`: which edits of the profile let a package be newer.

A lock is a function of the profile, so an upgrade is an edit of the profile: a pin is raised within the compatible rows
of the table, with what stands beside it there; what is not pinned gets a later date bound of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.compat.pin_moves import PinMoves, with_pins
from cannery.compat.stock import Allowed
from cannery.errors import FindingsError, NetworkError, UsageError
from cannery.lock.request import lock_request
from cannery.upgrade.edit import Edit, SetBound, SetDate, SetVersion, held_bound
from cannery.upgrade.upgrade_reason import HELD, LATER, reason_after

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cannery.compat.stock import Stock
    from cannery.recipe.recipe import Chosen, Recipe
    from cannery.upgrade.wishes import Editable, Wish


@dataclass(frozen=True)
class Upgrade:
    """The edits of the profile, and a line for every wish that needs none."""

    edits: tuple[Edit, ...]
    notes: tuple[str, ...]


def upgrade_edits(subject: Editable, wishes: Sequence[Wish], stock: Stock, today: str) -> Upgrade:
    """Return what to change in the profile so that `wishes`, checked ones, come true.

    Raises `FindingsError` for a version that no index has for every target of the profile, `NetworkError` where that is
    not known since one was not reached, `UsageError` for two wishes that move one pin to two versions.
    """
    pins: dict[str, str] = {}
    edits: list[Edit] = []
    notes: list[str] = []
    for asked in wishes:
        wish = replace(asked, version=stock.spelt(asked.name, asked.version)) if asked.version else asked
        if wish.version and not stock.has(wish.name, wish.version):
            if trouble := stock.trouble(wish.name):
                raise NetworkError(f"whether there is {wish} is not known: {trouble}", where=subject.file)
            newest = stock.newest(wish.name).version
            raise FindingsError(
                f"no index has {wish} for every Python and arch of the profile",
                where=subject.file,
                hint=f"the newest release is {newest}" if newest else "",
            )
        chosen = subject.chosen(wish.name)
        if chosen and chosen.version:
            moved, note = _moved_pins(subject, pins, wish, stock)
            _refuse_clash(wishes, wish, moved)
            pins |= moved
            notes += [note] if note else []
        else:
            more = tuple(_loosened(subject, wish, chosen, stock, today))
            edits += more
            if not more:
                notes.append(f"{wish.name}: uploads up to {subject.bound(wish.name)} count already")
    return Upgrade((*_pin_edits(subject, pins, stock, today), *edits), tuple(notes))


def _moved_pins(subject: Editable, pins: Mapping[str, str], wish: Wish, stock: Stock) -> tuple[dict[str, str], str]:
    """Return the pins to change for a wish about a pinned package, or why none is."""
    recipe = with_pins(subject.recipe, subject.table, pins)
    fitting = Allowed(stock, lock_request(recipe))
    moves = PinMoves(recipe, subject.table, subject.pythons, fitting.has)
    present = moves.pins[wish.name]
    if wish.version:
        note = f"{wish.name}: pinned to {present} already" if Version(present) == Version(wish.version) else ""
        return _exact_pins(subject, recipe, wish, wish.version, stock), note
    if moves.in_table(wish.name):
        moved = moves.newest(wish.name)
        if moved:
            return moved, ""
        further = PinMoves(recipe, subject.table, subject.pythons, fitting.has, named=True).newest(wish.name)
        return {}, f"{wish.name} stays at {present}: {_why_not_newer(moves, further, recipe, wish.name)}"
    latest = fitting.newest_for(wish.name)
    if latest is None or Version(latest) <= Version(Version(present).public):
        reason = "no index has a newer one that the rest of the profile allows, for every Python and arch of it"
        if trouble := stock.trouble(wish.name):
            raise NetworkError(f"{wish.name}: whether there is a newer one is not known: {trouble}", where=subject.file)
        return {}, f"{wish.name} stays at {present}: {reason}"
    return {wish.name: latest}, ""


def _why_not_newer(moves: PinMoves, further: Mapping[str, str], recipe: Recipe, name: str) -> str:
    """Say why no row is to move to. `further` are pins of a row that lacks only the rows of what it names, if any."""
    bare = [f"{other} {version}" for other, version in further.items() if moves.is_only_named(other, version)]
    if not bare:
        return f"no row of the table for CANN {recipe.target.cann} that fits the rest is newer"
    return (
        f"{name} {further[name]} goes with {', '.join(bare)}, which has no row of its own in the table, "
        f"so its Pythons are not known; --upgrade {name}=={further[name]} takes it all the same"
    )


def _exact_pins(subject: Editable, recipe: Recipe, wish: Wish, version: str, stock: Stock) -> dict[str, str]:
    """Return the pins to change for one version: those that then fit the whole set, else those that its rows name.

    A release that the table does not know moves alone. What the rules say of the set is asked afterwards.
    """
    for strict, named in ((True, False), (True, True), (False, False), (False, True)):
        moves = PinMoves(recipe, subject.table, subject.pythons, stock.has, strict=strict, named=named)
        found = moves.exactly(wish.name, version) if moves.in_table(wish.name) else None
        if found is not None:
            return found
    return {wish.name: version}


def _refuse_clash(wishes: Iterable[Wish], cause: Wish, moved: Mapping[str, str]) -> None:
    for wish in wishes:
        if wish.version and Version(moved.get(wish.name, wish.version)) != Version(wish.version):
            raise UsageError(f"--upgrade: {cause} goes with {wish.name} {moved[wish.name]}, not with {wish}")


def _pin_edits(subject: Editable, pins: Mapping[str, str], stock: Stock, today: str) -> Iterator[Edit]:
    for name, version in pins.items():
        chosen = subject.chosen(name)
        if chosen and chosen.version and Version(chosen.version) != Version(version):
            reason = reason_after(chosen.reason, chosen.version, version, LATER) if chosen.reason else ""
            yield SetVersion(chosen.name, version, reason)
            yield from _dated(subject, name, version, stock, today)


def _loosened(subject: Editable, wish: Wish, chosen: Chosen | None, stock: Stock, today: str) -> Iterator[Edit]:
    """Give the edits for a package that is not pinned: a later date, or for an exact version a pin or a bound."""
    if wish.version is None:
        if subject.bound(wish.name) < today:
            yield _later(subject, wish.name, today)
        return
    yield SetVersion(chosen.name, wish.version) if chosen else _bound(subject, wish.name, wish.version)
    yield from _dated(subject, wish.name, wish.version, stock, today)


def _dated(subject: Editable, name: str, version: str, stock: Stock, today: str) -> Iterator[Edit]:
    """Give a later date bound for a release that came after the present one."""
    if stock.uploaded(name, version) > subject.bound(name):
        yield _later(subject, name, today)


def _later(subject: Editable, name: str, today: str) -> SetDate:
    there = subject.dated(name)
    return SetDate(name, today, reason_after(there.reason, there.date, today, LATER) if there else LATER)


def _bound(subject: Editable, name: str, version: str) -> SetBound:
    there = held_bound(subject.recipe.profile, name)
    return SetBound(name, version, reason_after(there[1], there[0], version, HELD) if there else HELD)


def asked_names(subject: Editable, wishes: Collection[Wish]) -> tuple[str, ...]:
    """Return the packages whose releases have to be known: those of the wishes, and pins that may move with them."""
    moves = PinMoves(subject.recipe, subject.table, subject.pythons, lambda _name, _version: True)
    beside = [name for name in moves.pins if moves.in_table(name)] if any(w.name in moves.pins for w in wishes) else []
    return tuple(dict.fromkeys([*(wish.name for wish in wishes), *beside]))
