"""`lock --upgrade NAME`: which edits of the profile let a package be newer.

A lock is a function of the profile, so an upgrade is an edit of the profile: a pin is raised within the compatible rows
of the table, with what stands beside it there; what is not pinned gets a later date bound of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from packaging.version import Version

from cannery.core.errors import FindingsError, UsageError
from cannery.core.pin_moves import PinMoves, with_pins
from cannery.core.profile_edit import Edit, SetBound, SetDate, SetVersion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cannery.core.outdated import Newest
    from cannery.core.recipe import Chosen
    from cannery.core.wishes import Editable, Wish

LATER = "upgraded by build.py lock --upgrade"
HELD = "set by build.py lock --upgrade"


class Stock(Protocol):
    """What the indexes have (`cannery.edge.shelf.Shelf`)."""

    def has(self, name: str, version: str) -> bool:
        """Whether there is a release for every target."""

    def newest(self, name: str) -> Newest:
        """Return the newest release of all."""

    def newest_for(self, name: str) -> str | None:
        """Return the newest release for every target."""

    def uploaded(self, name: str, version: str) -> str:
        """Return the day on which a release came; "" where that is not told."""


@dataclass(frozen=True)
class Upgrade:
    """The edits of the profile, and a line for every wish that needs none."""

    edits: tuple[Edit, ...]
    notes: tuple[str, ...]


def upgrade_edits(subject: Editable, wishes: Sequence[Wish], stock: Stock, today: str) -> Upgrade:
    """Return what to change in the profile so that `wishes`, checked ones, come true.

    Raises `FindingsError` for a version that no index has for every target of the profile, `UsageError` for two wishes
    that move one pin to two versions.
    """
    pins: dict[str, str] = {}
    edits: list[Edit] = []
    notes: list[str] = []
    for wish in wishes:
        if wish.version and not stock.has(wish.name, wish.version):
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
                notes.append(
                    f"{wish.name}: uploads up to {subject.bound(wish.name)} count already; `lock` resolves anew"
                )
    return Upgrade((*_pin_edits(subject, pins, stock, today), *edits), tuple(notes))


def _moved_pins(subject: Editable, pins: Mapping[str, str], wish: Wish, stock: Stock) -> tuple[dict[str, str], str]:
    """Return the pins to change for a wish about a pinned package, or why none is."""
    recipe = with_pins(subject.recipe, subject.table, pins)
    moves = PinMoves(recipe, subject.table, subject.pythons, stock.has)
    present = moves.pins[wish.name]
    if wish.version:
        note = f"{wish.name}: pinned to {present} already" if Version(present) == Version(wish.version) else ""
        return _exact_pins(moves, wish.name, wish.version), note
    if moves.in_table(wish.name):
        reason = f"no row of the table for CANN {recipe.target.cann} that fits the rest is newer"
        return moves.newest(wish.name), "" if moves.newest(wish.name) else f"{wish.name} stays at {present}: {reason}"
    latest = stock.newest_for(wish.name)
    if latest is None or Version(latest) <= Version(Version(present).public):
        return {}, f"{wish.name} stays at {present}: no index has a newer one for every Python and arch of the profile"
    return {wish.name: latest}, ""


def _exact_pins(moves: PinMoves, name: str, version: str) -> dict[str, str]:
    """Return the pins to change for one version: all that the table knows to fit, else those that it names beside it.

    A release that it does not know moves alone. What the rules say of the set is asked once it is resolved.
    """
    for sources in (True, False):
        found = moves.exactly(name, version, sources=sources) if moves.in_table(name) else None
        if found is not None:
            return found
    return {name: version}


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
            yield SetDate(wish.name, today, LATER)
        return
    yield SetVersion(chosen.name, wish.version) if chosen else SetBound(wish.name, wish.version, HELD)
    yield from _dated(subject, wish.name, wish.version, stock, today)


def _dated(subject: Editable, name: str, version: str, stock: Stock, today: str) -> Iterator[Edit]:
    """Give a later date bound for a release that came after the present one."""
    if stock.uploaded(name, version) > subject.bound(name):
        yield SetDate(name, today, LATER)


def asked_names(subject: Editable, wishes: Collection[Wish]) -> tuple[str, ...]:
    """Return the packages whose releases have to be known: those of the wishes, and pins that may move with them."""
    moves = PinMoves(subject.recipe, subject.table, subject.pythons, lambda _name, _version: True)
    beside = [name for name in moves.pins if moves.in_table(name)] if any(w.name in moves.pins for w in wishes) else []
    return tuple(dict.fromkeys([*(wish.name for wish in wishes), *beside]))
