"""The package that makes a resolution fail, who requires which version of it, and what the profile could change.

uv writes `Because A depends on B and there is no version of C, we can conclude that …`. Its conclusions and references
to earlier steps (`we know from (1) that …`) are skipped, because they follow from the rest. tests/unit/data/uv_reasons
has real output of uv.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from cannery.catalog.target import parsed_requirement
from cannery.lock.lock import shortest
from cannery.lock.uv import PROJECT
from cannery.recipe.select import parse_pin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cannery.lock.request import LockRequest
    from cannery.recipe.recipe import Recipe

# The most sides, ranges and names in a message.
SIDES, RANGES, MOVERS = 5, 3, 4
NAME = r"(?!and\b|of\b)[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[^\]]*\])?"
RANGE = r"[=<>!~]\S*"
FRAME = re.compile(r"^\s*(error:|cause:|×|╰─▶|│)\s*", re.MULTILINE)
FACTS = re.compile(r"\b[Bb]ecause (?P<facts>.*?)(?:,? ?\bwe can conclude that |\bwe know from |$)")
ASKS = re.compile(
    rf"(?P<by>{NAME})(?:{RANGE})? depends? on (?:one of: |all of: )?"
    rf"(?P<name>{NAME})(?P<wanted>{RANGE})?(?P<more>(?: {NAME}{RANGE})*)"
)


class ItemKind(StrEnum):
    """Where a requirement of the request comes from, in the order in which changes are suggested."""

    TRIAL = "--pin"
    PIN = "pin"
    CONSTRAINT = "constraint"
    OVERRIDE = "override"
    SOURCE = "source"
    REQUIREMENT = "requirement"
    HELD = "bound from images/compatibility.yaml"
    BASE = "requirement of the CANN base"


# The kinds that can change without another base or compatibility table.
MOVABLE = tuple(kind for kind in ItemKind if kind not in {ItemKind.HELD, ItemKind.BASE})


@dataclass(frozen=True)
class Item:
    """One requirement: the distribution, the versions that it allows ("" for any), and its text in the profile."""

    kind: ItemKind
    name: str
    wanted: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.text}" if self.wanted else self.text


@dataclass(frozen=True)
class Side:
    """One side of a conflict: who requires a package, and the ranges that it allows.

    `chain` leads from a requirement of the profile to the package that requires it; it is empty if the profile does.
    `by` is its text in messages.
    """

    chain: tuple[str, ...]
    wanted: tuple[str, ...]
    by: str


@dataclass(frozen=True)
class Conflict:
    """A conflict about the package `name` ("" if unclear): the sides that require it, and items that could change."""

    name: str
    sides: tuple[Side, ...]
    movers: tuple[Item, ...]


def profile_items(request: LockRequest, recipe: Recipe | None) -> tuple[Item, ...]:
    """Return all requirements and bounds of the request, with the texts of the recipe if there is one."""
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
        elif (one := chosen.get(item.name)) and one.component.kind.is_source:
            at = f"commit {one.commit[:12]}" if one.commit else "its release"
            item = _item(ItemKind.SOURCE, text, f"{one.name} {one.version} ({at})")
        elif one:
            item = _item(ItemKind.PIN, text, f"{one.name} {one.version}" if one.version else one.name)
        elif item.name in sources:
            item = _item(ItemKind.SOURCE, text)
        found.append(item)
    found += [_item(ItemKind.CONSTRAINT if text in written else ItemKind.HELD, text) for text in request.constraints]
    # In a forced set every pin is also an override. It is already listed above.
    found += [_item(ItemKind.OVERRIDE, text) for text in request.overrides if text in overrides]
    return tuple(found)


def _item(kind: ItemKind, requirement: str, text: str = "") -> Item:
    parsed = parsed_requirement(requirement)
    return Item(kind, parsed.package, str(parsed.specifier), text or requirement)


def find_conflict(reasons: Reasons, items: Sequence[Item]) -> Conflict:
    """Return the first package whose sides exclude each other. Without one, all items that uv names may change."""
    for name in reasons.names:
        sides = sides_of(name, reasons.asks, items)
        if any(exclude(*pair) for pair in combinations(sides, 2)):
            return make_conflict(name, sides, items)
    named = {*reasons.names}
    return Conflict("", (), _movable([item for item in items if item.name in named], ""))


def make_conflict(name: str, sides: Sequence[Side], items: Sequence[Item]) -> Conflict:
    """Return the conflict about a package, with the items of the profile that affect it."""
    roots = {name, *(side.chain[0] for side in sides if side.chain)}
    return Conflict(name, tuple(sides), _movable([item for item in items if item.name in roots], name))


def _movable(items: Iterable[Item], name: str) -> tuple[Item, ...]:
    movable = [item for item in items if item.kind in MOVABLE and item.wanted]
    return tuple(sorted(movable, key=lambda item: (MOVABLE.index(item.kind), item.name != name)))


def exclude(one: Side, other: Side) -> bool:
    """Whether the ranges of two sides have no version in common. False if a range cannot be read."""
    try:
        return all(
            SpecifierSet(f"{a},{b}".strip(","), prereleases=True).is_unsatisfiable()
            for a, b in product(one.wanted, other.wanted)
        )
    except InvalidSpecifier:
        return False


def sides_of(name: str, asks: Sequence[Ask], items: Sequence[Item]) -> tuple[Side, ...]:
    """Return who requires a package: items of the profile, then other packages. An override replaces all of them."""
    mine = [item for item in items if item.name == name]
    overrides = [item for item in mine if item.kind is ItemKind.OVERRIDE and item.wanted]
    own = overrides or [item for item in mine if item.wanted] or mine
    found = [Side((), (item.wanted,), str(item)) for item in own]
    if overrides:
        return tuple(found)
    roots = {item.name for item in items}
    parents: dict[str, list[str]] = {}
    for ask in asks:
        if ask.name not in roots:
            parents.setdefault(ask.name, []).append(ask.by)
    wanted: dict[str, dict[str, None]] = {}
    for ask in asks:
        if ask.name == name:
            wanted.setdefault(ask.by, {}).update(dict.fromkeys(ask.wanted or ("",)))
    for asker, ranges in wanted.items():
        chain = shortest(parents, asker)
        start = next((str(item) for item in items if item.name == chain[0] and item.wanted), chain[0])
        found.append(Side(chain, tuple(ranges), " → ".join([start, *chain[1:]])))
    return tuple(found)


def who_asks(conflict: Conflict) -> tuple[str, ...]:
    """Return a line for each side, such as `tokenizers >=0.22,<=0.23 by pin transformers 4.57.0`."""
    lines = []
    for side in conflict.sides[:SIDES]:
        ranges = [text or "of any version" for text in side.wanted[:RANGES]]
        ranges += ["…"] if len(side.wanted) > RANGES else []
        lines.append(f"{conflict.name} {' or '.join(ranges)} by {side.by}")
    more = len(conflict.sides) - SIDES
    return (*dict.fromkeys(lines), *([f"and by {more} more"] if more > 0 else []))


def what_can_move(conflict: Conflict, file: str = "") -> tuple[str, ...]:
    """Return a line with the items that could change and the profile's `file`; empty if there are none."""
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
    """The distribution `by` depends on `name`, in one of the ranges `wanted` (empty: any version)."""

    by: str
    name: str
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class Reasons:
    """The dependencies and the names of all distributions in uv's text, in its order."""

    asks: tuple[Ask, ...]
    names: tuple[str, ...]


def read_reasons(stderr: str) -> Reasons:
    """Parse uv's text. If it has another form, the result is empty."""
    text = re.sub(r"\{[^}]*\}", "", FRAME.sub("", stderr).partition("\nhint:")[0])
    facts = [match["facts"] for match in FACTS.finditer(" ".join(text.split()))]
    asks: list[Ask] = []
    for match in (match for part in facts for match in ASKS.finditer(part)):
        by, name = _name(match["by"]), _name(match["name"])
        ranges = [match["wanted"] or "", *re.findall(rf" {NAME}({RANGE})", match["more"])]
        if by != PROJECT and name != "python":
            asks.append(Ask(by, name, tuple(filter(None, ranges))))
    named = [_name(word) for part in facts for word in re.findall(rf"({NAME})(?={RANGE}| |$)", part)]
    return Reasons(
        asks=tuple(dict.fromkeys(asks)),
        names=tuple(dict.fromkeys([*(ask.name for ask in asks), *named])),
    )


def _name(text: str) -> str:
    """Return a normalised name, without extras: `ray[default]` is ray."""
    return canonicalize_name(text.partition("[")[0])
