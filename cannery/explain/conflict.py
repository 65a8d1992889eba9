"""Which package a failed resolution comes down to, who asks what of it, and what of the profile can be moved."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from cannery.explain.derivation import BOUND, FactKind
from cannery.explain.profile_items import MOVABLE, ItemKind, named
from cannery.lock.chains import shortest
from cannery.lock.lock import PROFILE_VIA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cannery.explain.derivation import Fact
    from cannery.explain.profile_items import Item

# How many who ask, ranges and names a message shows.
SIDES, RANGES, MOVERS = 5, 3, 4
# What is asked for is not wrong by itself; what is hidden may be had with another date.
NOT_WRONG = frozenset({FactKind.ASKS, FactKind.HIDDEN})
ORDER = {kind: number for number, kind in enumerate(ItemKind)}


@dataclass(frozen=True)
class Side:
    """What one asks of the package: ranges of which any will do, through `chain` from the profile's own requirement.

    `by` says who, in words.
    """

    chain: tuple[str, ...]
    wanted: tuple[str, ...]
    by: str


@dataclass(frozen=True)
class Conflict:
    """The package `name`, the sides that ask for it, and what could be moved.

    `facts` are what uv says is wrong with the package; without any the sides exclude each other. `hidden` are releases
    of it, or of who asks, that a date bound hides.
    """

    name: str
    sides: tuple[Side, ...]
    movers: tuple[Item, ...]
    facts: tuple[Fact, ...] = ()
    hidden: tuple[Fact, ...] = ()

    @property
    def unknown(self) -> bool:
        """Whether no index has the package."""
        return any(fact.kind is FactKind.UNKNOWN for fact in self.facts)


def find_conflict(facts: Sequence[Fact], items: Sequence[Item]) -> Conflict | None:
    """Return what `facts` come down to; None where they are not understood. `items` are those of the request."""
    wrong = next((fact for fact in facts if _is_wrong(fact, facts)), None)
    if wrong is not None:
        mine = tuple(fact for fact in facts if fact.name == wrong.name and fact.kind not in NOT_WRONG)
        return _conflict(wrong.name, facts, items, mine)
    asked: dict[str, dict[str, list[str]]] = {}
    for fact in facts:
        if fact.kind is FactKind.ASKS:
            by = f"{fact.by} {fact.versions}" if fact.by in {PROFILE_VIA, BOUND} else fact.by
            asked.setdefault(fact.name, {}).setdefault(by, []).extend(fact.versions or [""])
    several = [name for name, sides in asked.items() if len(sides) > 1]
    apart = [name for name in several if any(_exclude(*pair) for pair in combinations(asked[name].values(), 2))]
    found = next(iter(apart or several), None)
    if found is None:
        # Of two ranges that one asks for (its own and a constraint's) the only version may be missing.
        gap = next((fact for fact in facts if fact.kind not in NOT_WRONG and fact.name in asked), None)
        return _conflict(gap.name, facts, items, (gap,)) if gap else None
    return _conflict(found, facts, items)


def _is_wrong(fact: Fact, facts: Sequence[Fact]) -> bool:
    """Whether a fact alone leaves nothing of what somebody asks for; others only fill gaps of uv's reasoning."""
    wanted = [f.versions for f in facts if f.kind is FactKind.ASKS and f.name == fact.name]
    match fact.kind:
        case FactKind.UNKNOWN:
            return True
        case FactKind.LACKS:
            return not fact.versions or fact.versions in wanted
        case FactKind.ONLY:
            return any(versions and _exclude(versions, fact.versions) for versions in wanted)
        case FactKind.UNUSABLE:
            only = [f.versions for f in facts if f.kind is FactKind.ONLY and f.name == fact.name]
            return not fact.versions or fact.versions in wanted or fact.versions in only
        case FactKind.ASKS | FactKind.HIDDEN:
            return False


def _exclude(one: Iterable[str], other: Iterable[str]) -> bool:
    """Whether no version is in a range of both; what cannot be read may be."""
    try:
        return all(
            SpecifierSet(f"{a},{b}".strip(","), prereleases=True).is_unsatisfiable() for a, b in product(one, other)
        )
    except InvalidSpecifier:
        return False


def _conflict(name: str, facts: Sequence[Fact], items: Sequence[Item], wrong: Sequence[Fact] = ()) -> Conflict:
    sides = tuple(_sides(name, facts, items))
    roots = {name, *(side.chain[0] for side in sides if side.chain)}
    movers = [item for item in items if item.kind in MOVABLE and item.name in roots and item.wanted]
    movers.sort(key=lambda item: (ORDER[item.kind], item.name != name))
    near = {name, *(link for side in sides for link in side.chain)}
    hidden = tuple(fact for fact in facts if fact.kind is FactKind.HIDDEN and fact.name in near)
    return Conflict(name, sides, tuple(movers), tuple(wrong), hidden)


def _sides(name: str, facts: Sequence[Fact], items: Sequence[Item]) -> Iterator[Side]:
    mine = [fact for fact in facts if fact.kind is FactKind.ASKS and fact.name == name]
    overrides = [item for item in named(items, name) if item.kind is ItemKind.OVERRIDE]
    if overrides:
        # Whoever asks, asks for what the override says: nobody else has a part in it.
        yield from (Side((), (item.wanted,), str(item)) for item in overrides)
        return
    if any(fact.by in {PROFILE_VIA, BOUND} for fact in mine):
        own = named(items, name) or tuple(item for item in items if item.name == name)
        yield from (Side((), (item.wanted,), str(item)) for item in own)
    for asker in dict.fromkeys(fact.by for fact in mine if fact.by not in {PROFILE_VIA, BOUND}):
        wanted = tuple(dict.fromkeys(v for fact in mine if fact.by == asker for v in fact.versions or ("",)))
        chain = _chain(asker, facts)
        yield Side(chain, wanted, _asker_words(chain, items))


def _chain(name: str, facts: Sequence[Fact]) -> tuple[str, ...]:
    """Return the shortest way from a requirement of the profile to `name`, both included."""
    askers: dict[str, list[str]] = {}
    for fact in facts:
        if fact.kind is FactKind.ASKS:
            askers.setdefault(fact.name, []).append(fact.by)
    return shortest(askers, name)


def _asker_words(chain: Sequence[str], items: Sequence[Item]) -> str:
    root = [item for item in items if item.name == chain[0]]
    pinned = [item for item in root if item.wanted] or root
    start = str(pinned[0]) if pinned else chain[0]
    return " → ".join([start, *chain[1:]])


def told(conflict: Conflict) -> tuple[str, ...]:
    """Return a line for each side, in the profile's words: `tokenizers >=0.22,<=0.23 by pin transformers 4.57.0`."""
    lines = [f"{conflict.name} {_ranges(side.wanted)} by {side.by}" for side in conflict.sides]
    more = len(lines) - SIDES
    return tuple(dict.fromkeys(lines[:SIDES])) + ((f"and by {more} more",) if more > 0 else ())


def _ranges(wanted: Sequence[str]) -> str:
    words = " or ".join((text or "of any version") for text in wanted[:RANGES])
    return words + (" or …" if len(wanted) > RANGES else "")


def movable(conflict: Conflict) -> str:
    """Return what of the profile could be moved, in a line; "" when nothing of it decides this."""
    items = [str(item) for item in conflict.movers]
    dates = [_date_words(fact) for fact in conflict.hidden]
    if not items and not dates:
        return ""
    more = [f"{len(items) - MOVERS} more"] if len(items) > MOVERS else []
    names = ", ".join([*items[:MOVERS], *dates]) + "".join(f" and {words}" for words in more)
    return f"{'one of these has' if len(items) + len(dates) > 1 else 'this has'} to move: {names}"


def _date_words(fact: Fact) -> str:
    version = fact.versions[0].removeprefix("==")
    return f"{fact.by} {fact.by_versions[0]}, which hides {fact.name} {version} of {fact.why}"


def is_written(conflict: Conflict) -> bool:
    """Whether the profile's file has any of what could be moved; pins of the command line stand nowhere."""
    return bool(conflict.hidden) or any(item.kind is not ItemKind.TRIAL for item in conflict.movers)


def headline(conflict: Conflict) -> str:
    """Return what is wrong in a sentence, as far as uv's facts tell it."""
    name = conflict.name
    if not conflict.facts:
        return f"no set of versions works: no {name} fits all that ask for it"
    if conflict.unknown:
        return f"{name} was not found on any index"
    fact = conflict.facts[0]
    package = f"{name} {' or '.join(text.removeprefix('==') for text in fact.versions[:RANGES])}".rstrip()
    match fact.kind:
        case FactKind.ONLY:
            return f"no set of versions works: there is only {package}"
        case FactKind.UNUSABLE:
            return f"no set of versions works: {package} {fact.why}"
        case _:
            return f"no set of versions works: there is no {package}"
