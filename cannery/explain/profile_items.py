"""What of a request can be moved, in the words in which the profile writes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cannery.recipe.select import parse_pin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.lock.lock import LockRequest
    from cannery.recipe.recipe import Chosen, Recipe


class ItemKind(StrEnum):
    """Where a requirement of the request stands. The order is that in which they are thought of first."""

    TRIAL = "--pin"
    PIN = "pin"
    CONSTRAINT = "constraint"
    OVERRIDE = "override"
    SOURCE = "source"
    REQUIREMENT = "requirement"
    HELD = "bound from images/compatibility.yaml"
    BASE = "requirement of the CANN base"


# What a profile can say otherwise without another base or table.
MOVABLE = frozenset({*ItemKind} - {ItemKind.HELD, ItemKind.BASE})


@dataclass(frozen=True)
class Item:
    """One requirement: the distribution, the versions that it allows ("" for any) and how the profile writes it."""

    kind: ItemKind
    name: str
    wanted: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.text}" if self.wanted else self.text


def profile_items(request: LockRequest, recipe: Recipe | None) -> tuple[Item, ...]:
    """Return all that the request asks for, requirements first; without a recipe by the request's own words."""
    if recipe is None:
        return tuple(_plain(request))
    return (*_requirements(request, recipe), *_bounds(request, recipe))


def _item(kind: ItemKind, requirement: str, text: str = "") -> Item:
    parsed = Requirement(requirement)
    return Item(kind, canonicalize_name(parsed.name), str(parsed.specifier), text or requirement)


def _plain(request: LockRequest) -> Iterator[Item]:
    from_git = {source.name for source in request.sources}
    for text in request.requirements:
        item = _item(ItemKind.REQUIREMENT, text)
        yield _item(ItemKind.SOURCE, text) if item.name in from_git else item
    yield from (_item(ItemKind.CONSTRAINT, text) for text in request.constraints)
    yield from (_item(ItemKind.OVERRIDE, text) for text in request.overrides)


def _requirements(request: LockRequest, recipe: Recipe) -> Iterator[Item]:
    chosen = {c.package: c for c in (*recipe.wheels, *recipe.sources)}
    trials = {parse_pin(pin)[0]: pin for pin in recipe.pins}
    for text in request.requirements:
        item = _item(ItemKind.BASE, text)
        component = chosen.get(item.name)
        if item.name in trials and item.wanted:
            yield _item(ItemKind.TRIAL, text, trials[item.name])
        elif component is not None:
            yield _component(component, text)
        else:
            yield item


def _component(chosen: Chosen, text: str) -> Item:
    if not chosen.component.kind.is_source:
        words = f"{chosen.name} {chosen.version}" if chosen.version else chosen.name
        return _item(ItemKind.PIN, text, words)
    at = f"commit {chosen.commit[:12]}" if chosen.commit else "its release"
    return _item(ItemKind.SOURCE, text, f"{chosen.name} {chosen.version} ({at})")


def _bounds(request: LockRequest, recipe: Recipe) -> Iterator[Item]:
    written = {item.requirement for item in recipe.profile.constraints}
    for text in request.constraints:
        yield _item(ItemKind.CONSTRAINT if text in written else ItemKind.HELD, text)
    overrides = {item.requirement for item in recipe.profile.overrides}
    # Of a forced set every pin is an override; the pin stands above.
    yield from (_item(ItemKind.OVERRIDE, text) for text in request.overrides if text in overrides)


def named(items: Sequence[Item], name: str) -> tuple[Item, ...]:
    """Return the items that say something about the versions of `name`."""
    return tuple(item for item in items if item.name == name and item.wanted)
