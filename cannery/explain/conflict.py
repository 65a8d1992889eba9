"""Which package a failed resolution comes down to, who asks what of it, and what of the profile can be changed.

uv writes `Because A depends on B and there is no version of C, we can conclude that …`. What it concludes, and what it
knows from an earlier step (`we know from (1) that …`), is left out: it follows from the rest.
tests/unit/data/uv_reasons has texts of a real uv.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from cannery.lock.lock import shortest
from cannery.lock.uv import PROJECT
from cannery.recipe.select import parse_pin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cannery.lock.request import LockRequest
    from cannery.recipe.recipe import Chosen, Recipe

# How many who ask, ranges and names a message shows.
SIDES, RANGES, MOVERS = 5, 3, 4
NAME = r"(?!and\b|of\b)[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[^\]]*\])?"
RANGE = r"[=<>!~]\S*"
FRAME = re.compile(r"^\s*(error:|cause:|×|╰─▶|│)\s*", re.MULTILINE)
FACTS = re.compile(r"\b[Bb]ecause (?P<facts>.*?)(?:,? ?\bwe can conclude that |\bwe know from |$)")
ASKS = re.compile(
    rf"(?P<by>{NAME})(?:{RANGE})? depends? on (?:one of: |all of: )?"
    rf"(?P<name>{NAME})(?P<wanted>{RANGE})?(?P<more>(?: {NAME}{RANGE})*)"
)
PYTHON = "python"


class ItemKind(StrEnum):
    """Where a requirement of the request is written. The first ones are the first to think of for a change."""

    TRIAL = "--pin"
    PIN = "pin"
    CONSTRAINT = "constraint"
    OVERRIDE = "override"
    SOURCE = "source"
    REQUIREMENT = "requirement"
    HELD = "bound from images/compatibility.yaml"
    BASE = "requirement of the CANN base"


# What a profile can change without another base or table.
MOVABLE = tuple(kind for kind in ItemKind if kind not in {ItemKind.HELD, ItemKind.BASE})


@dataclass(frozen=True)
class Item:
    """One requirement: the distribution, the versions that it allows ("" for any) and how the profile writes it."""

    kind: ItemKind
    name: str
    wanted: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.text}" if self.wanted else self.text


@dataclass(frozen=True)
class Side:
    """What one asks of a package: ranges of which any will do, through `chain` from a requirement of the profile.

    `by` is who asks, in words. Without a chain the profile itself asks.
    """

    chain: tuple[str, ...]
    wanted: tuple[str, ...]
    by: str


@dataclass(frozen=True)
class Conflict:
    """The package `name` ("" where that is not clear), the sides that ask for it, and what could be changed."""

    name: str
    sides: tuple[Side, ...]
    movers: tuple[Item, ...]

    @property
    def roots(self) -> frozenset[str]:
        """The names of the package, and of the profile's requirements through which it is asked for."""
        return frozenset({self.name, *(side.chain[0] for side in self.sides if side.chain)})


def profile_items(request: LockRequest, recipe: Recipe | None) -> tuple[Item, ...]:
    """Return all that the request asks for, requirements first, in the words of the recipe where there is one."""
    chosen = {c.package: c for c in (*recipe.wheels, *recipe.sources)} if recipe else {}
    trials = {parse_pin(pin)[0]: pin for pin in recipe.pins} if recipe else {}
    written = {item.requirement for item in recipe.profile.constraints} if recipe else {*request.constraints}
    overrides = {item.requirement for item in recipe.profile.overrides} if recipe else {*request.overrides}
    sources = {source.name for source in request.sources}
    found: list[Item] = []
    for text in request.requirements:
        item = _item(ItemKind.BASE if recipe else ItemKind.REQUIREMENT, text)
        if item.name in trials and item.wanted:
            item = _item(ItemKind.TRIAL, text, trials[item.name])
        elif item.name in chosen:
            item = _component(chosen[item.name], text)
        elif item.name in sources:
            item = _item(ItemKind.SOURCE, text)
        found.append(item)
    found += [_item(ItemKind.CONSTRAINT if text in written else ItemKind.HELD, text) for text in request.constraints]
    # Of a forced set every pin is an override; the pin is above.
    found += [_item(ItemKind.OVERRIDE, text) for text in request.overrides if text in overrides]
    return tuple(found)


def _item(kind: ItemKind, requirement: str, text: str = "") -> Item:
    parsed = Requirement(requirement)
    return Item(kind, canonicalize_name(parsed.name), str(parsed.specifier), text or requirement)


def _component(chosen: Chosen, text: str) -> Item:
    if not chosen.component.kind.is_source:
        return _item(ItemKind.PIN, text, f"{chosen.name} {chosen.version}" if chosen.version else chosen.name)
    at = f"commit {chosen.commit[:12]}" if chosen.commit else "its release"
    return _item(ItemKind.SOURCE, text, f"{chosen.name} {chosen.version} ({at})")


def find_conflict(reasons: Reasons, items: Sequence[Item]) -> Conflict:
    """Return the first package of which the sides exclude each other; without one all that uv names is in question."""
    for name in reasons.names:
        sides = sides_of(name, reasons.asks, items)
        if any(exclude(*pair) for pair in combinations(sides, 2)):
            return make_conflict(name, sides, items)
    named = {*reasons.names}
    return Conflict("", (), _movers([item for item in items if item.name in named], ""))


def make_conflict(name: str, sides: Sequence[Side], items: Sequence[Item]) -> Conflict:
    """Return the conflict about a package, with what of the profile decides about it."""
    found = Conflict(name, tuple(sides), ())
    return Conflict(name, tuple(sides), _movers([item for item in items if item.name in found.roots], name))


def _movers(items: Iterable[Item], name: str) -> tuple[Item, ...]:
    movable = [item for item in items if item.kind in MOVABLE and item.wanted]
    return tuple(sorted(movable, key=lambda item: (MOVABLE.index(item.kind), item.name != name)))


def exclude(one: Side, other: Side) -> bool:
    """Whether no version is in a range of both; what cannot be read may be."""
    try:
        return all(
            SpecifierSet(f"{a},{b}".strip(","), prereleases=True).is_unsatisfiable()
            for a, b in product(one.wanted, other.wanted)
        )
    except InvalidSpecifier:
        return False


def sides_of(name: str, asks: Sequence[Ask], items: Sequence[Item]) -> tuple[Side, ...]:
    """Return who asks for a package: the profile's own items, then other packages. An override counts alone."""
    mine = [item for item in items if item.name == name]
    overrides = [item for item in mine if item.kind is ItemKind.OVERRIDE and item.wanted]
    own = overrides or [item for item in mine if item.wanted] or mine
    found = [Side((), (item.wanted,), str(item)) for item in own]
    return tuple(found if overrides else [*found, *_askers(name, asks, items)])


def _askers(name: str, asks: Sequence[Ask], items: Sequence[Item]) -> Iterator[Side]:
    """Give the side of each package that asks, with its chain from the profile."""
    roots = {item.name for item in items}
    parents: dict[str, list[str]] = {}
    for ask in asks:
        if ask.name not in roots:
            parents.setdefault(ask.name, []).append(ask.by)
    for asker in dict.fromkeys(ask.by for ask in asks if ask.name == name):
        wanted = dict.fromkeys(
            text for ask in asks if (ask.by, ask.name) == (asker, name) for text in ask.wanted or ("",)
        )
        chain = shortest(parents, asker)
        root = [item for item in items if item.name == chain[0]]
        start = next((str(item) for item in root if item.wanted), chain[0])
        yield Side(chain, tuple(wanted), " → ".join([start, *chain[1:]]))


def who_asks(conflict: Conflict) -> tuple[str, ...]:
    """Return a line for each side, in the profile's words: `tokenizers >=0.22,<=0.23 by pin transformers 4.57.0`."""
    lines = [f"{conflict.name} {_ranges(side.wanted)} by {side.by}" for side in conflict.sides]
    more = len(lines) - SIDES
    return tuple(dict.fromkeys(lines[:SIDES])) + ((f"and by {more} more",) if more > 0 else ())


def _ranges(wanted: Sequence[str]) -> str:
    words = " or ".join((text or "of any version") for text in wanted[:RANGES])
    return words + (" or …" if len(wanted) > RANGES else "")


def what_can_move(conflict: Conflict, file: str = "") -> tuple[str, ...]:
    """Return what of the profile could be changed, in a line, with the `file` that has it; none without anything."""
    items = [str(item) for item in conflict.movers]
    if not items:
        return ()
    more = f" and {len(items) - MOVERS} more" if len(items) > MOVERS else ""
    is_written = file and any(item.kind is not ItemKind.TRIAL for item in conflict.movers)
    where = f" ({file})" if is_written else ""
    which = "one of these has" if len(items) > 1 else "this has"
    return (f"{which} to change: {', '.join(items[:MOVERS])}{more}{where}",)


@dataclass(frozen=True)
class Ask:
    """The distribution `by` depends on `name`, in any of the ranges `wanted` (none: of any version)."""

    by: str
    name: str
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class Reasons:
    """What uv names: dependencies, and all distributions, in order."""

    asks: tuple[Ask, ...]
    names: tuple[str, ...]


def read_reasons(stderr: str) -> Reasons:
    """Return what uv's text has; nothing where it is of another form."""
    text = re.sub(r"\{[^}]*\}", "", FRAME.sub("", stderr).partition("\nhint:")[0])
    facts = [match["facts"] for match in FACTS.finditer(" ".join(text.split()))]
    asks = [ask for part in facts for ask in _asks(part)]
    named = [_name(word) for part in facts for word in re.findall(rf"({NAME})(?={RANGE}| |$)", part)]
    return Reasons(
        asks=tuple(dict.fromkeys(asks)),
        names=tuple(dict.fromkeys([*(ask.name for ask in asks), *named])),
    )


def _name(text: str) -> str:
    """Return a normalised name, without extras: `ray[default]` is ray."""
    return canonicalize_name(text.partition("[")[0])


def _asks(text: str) -> list[Ask]:
    found = []
    for match in ASKS.finditer(text):
        by, name = _name(match["by"]), _name(match["name"])
        ranges = [match["wanted"] or "", *re.findall(rf" {NAME}({RANGE})", match["more"])]
        if by != PROJECT and name != PYTHON:
            found.append(Ask(by, name, tuple(text for text in ranges if text)))
    return found
