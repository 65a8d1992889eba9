"""`outdated`: what a lock would be today, beside what it is. Nothing below images/ is written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cannery.core.errors import CanneryError, FindingsError
from cannery.core.lock_change import lock_change
from cannery.core.lock_request import lock_request
from cannery.core.outdated import Evidence, at_day, changed_names, outdated_packages, source_lines
from cannery.core.pin_moves import PinMoves, newest_pins, with_pins
from cannery.core.stock import Allowed
from cannery.edge.indexes import Asked
from cannery.edge.locks import resolve_lock
from cannery.edge.shelf import make_shelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from cannery.core.catalog import Catalog
    from cannery.core.lock import Lock
    from cannery.core.lock_change import LockChange
    from cannery.core.outdated import Outdated
    from cannery.core.recipe import Recipe
    from cannery.edge.context import Context


@dataclass(frozen=True)
class Report:
    """What was found: `packages` and `sources`, what an upgrade of all would change, and what could not be found out.

    `upgrade` is None when no set of versions works; `problems` then say why. `troubles`: indexes that were not asked.
    """

    day: str
    packages: tuple[Outdated, ...]
    sources: tuple[str, ...]
    upgrade: LockChange | None
    problems: tuple[str, ...]
    troubles: tuple[str, ...]


def look(context: Context, catalog: Catalog, recipe: Recipe, lock: Lock, today: str) -> Report:
    """Compare `lock`, the current one of `recipe`, with what the indexes have `today`.

    Raises `NetworkError` when the resolver cannot reach its indexes.
    """
    table, target = catalog.compatibility, recipe.target
    request = lock_request(recipe)
    day = max(today, request.exclude_newer)
    resolve = partial(resolve_lock, context, catalog, command="outdated", asked=Asked())
    fresh, problem = _attempt(partial(resolve, at_day(request, day)), FindingsError)
    names = dict.fromkeys([*(c.package for c in recipe.wheels), *changed_names(lock, fresh)])
    shelf = make_shelf(context, catalog, recipe, names, ((target.python, target.arch),))
    fitting = Allowed(shelf, request)
    moves = PinMoves(recipe, table, (target.python,), fitting.has)
    pins = newest_pins(recipe, table, (target.python,), fitting.has, fitting.newest_for)
    last, last_problem = fresh, ""
    if pins:
        moved = at_day(lock_request(with_pins(recipe, table, pins)), day)
        # A bound index that is not reached is no reason to end without what is known by now.
        last, last_problem = _attempt(partial(resolve, moved), CanneryError)
    problems = (
        (f"with the date bound at {day} and the pins as they are", problem),
        ("with every pin at the newest that fits", last_problem),
    )
    evidence = Evidence(
        fresh=fresh,
        pins=pins,
        newest={name: shelf.newest(name) for name in names},
        in_table=frozenset(name for name in moves.pins if moves.in_table(name)),
    )
    return Report(
        day=day,
        packages=outdated_packages(recipe, request, lock, evidence),
        sources=source_lines(recipe),
        upgrade=lock_change(lock.packages, last.packages) if last else None,
        problems=tuple(f"{what}: {text}" for what, text in problems if text),
        troubles=shelf.troubles,
    )


def _attempt(resolve: Callable[[], Lock], kind: type[CanneryError]) -> tuple[Lock | None, str]:
    """Resolve; return the lock, or after an error of `kind` what it says. Raises every other error."""
    try:
        return resolve(), ""
    except kind as error:
        return None, str(error)
