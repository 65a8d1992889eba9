"""The error of a failed resolution: the package, who requires it, what could change, and similar sets that work.

A few similar sets are resolved, beginning with the smallest change. Only the resolver knows which ones work.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.compatibility import CANN
from cannery.catalog.target import distance, package_name
from cannery.compat.io.stock import ask_stock, questions_of
from cannery.compat.solve import Solver
from cannery.compat.subject import Subject, is_held, misfits
from cannery.errors import CanneryError, FindingsError, NetworkError
from cannery.explain.conflict import (
    Ask,
    ItemKind,
    find_conflict,
    make_conflict,
    profile_items,
    read_reasons,
    sides_of,
    what_can_move,
    who_asks,
)
from cannery.lock.io.bound import NoFileError
from cannery.lock.io.indexes import PROBE
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options
from cannery.recipe.select import held_bounds, parse_pin, select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.compat.io.stock import Stock
    from cannery.explain.conflict import Conflict, Item
    from cannery.lock.io.indexes import Answer, Place
    from cannery.lock.io.resolve import Attempt, Job, UnsolvedError
    from cannery.lock.request import LockRequest
    from cannery.recipe.recipe import Recipe

# Seconds for all tries and for one try, and the number of working sets that is enough.
BUDGET, LONGEST, ENOUGH = 25.0, 12.0, 3
# The most candidates, and the most of them from the table. Each one is resolved.
MOST, ROWS = 6, 3


def explained(
    error: UnsolvedError | NoFileError, job: Job, catalog: Catalog, recipe: Recipe | None, attempt: Attempt
) -> FindingsError:
    """Return the error that a user sees instead of `error`. `attempt` resolves similar sets.

    The request was made from `recipe`. The request for build tools has no recipe, and gets no similar sets. If two
    sides exclude each other, the error names the package and both sides, else it has the resolver's text.
    """
    items = profile_items(job.request, recipe)
    text, hint = error.what, ""
    if isinstance(error, NoFileError):
        wanted = (f"=={error.pin}",) if error.pin else ()
        asks = tuple(Ask(asker.partition("[")[0], error.name, wanted) for asker in error.askers)
        conflict = make_conflict(error.name, sides_of(error.name, asks, items), items)
    else:
        conflict = find_conflict(read_reasons(error.stderr), items)
        late = re.search(r"`(\S+)` was filtered by `exclude-newer", error.stderr)
        hint = f"`exclude_newer_packages` of the profile lets later uploads of {late[1]} count" if late else ""
        if conflict.name:
            text = f"no set of versions works: no version of {conflict.name} meets all requirements"
    lines = text.splitlines()
    # If only the profile requires it, the line above is enough.
    lines += who_asks(conflict) if len(conflict.sides) > 1 or any(side.chain for side in conflict.sides) else ()
    lines += what_can_move(conflict, recipe.file if recipe else "")
    if recipe:
        found = candidates(recipe, catalog, conflict, _releases(job, catalog, recipe))
        lines += near_sets(found, catalog, attempt)
    return FindingsError("\n  ".join(lines), where=job.where, hint=hint)


def _releases(job: Job, catalog: Catalog, recipe: Recipe) -> Callable[[str, str], bool]:
    """Return a function that checks whether a release (name, version) has a file for the target and date bound.

    The first call queries the indexes.
    """
    request = job.request
    dates = dict(request.package_dates)

    def ask(questions: Sequence[tuple[Place, str]]) -> list[Answer]:
        found = []
        for answer in job.asked.ask(questions, job.settings, PROBE):
            bound = dates.get(canonicalize_name(answer.project), request.exclude_newer)
            files = (file for file in answer.files if not bound or file.uploaded <= bound)
            found.append(replace(answer, files=tuple(files)))
        return found

    @cache
    def stock() -> Stock:
        target = (request.python, request.arch)
        return ask_stock(questions_of(recipe), catalog.indexes, job.settings, [target], ask)

    return lambda name, version: stock().has(name, version)


def near_sets(found: Sequence[Candidate], catalog: Catalog, attempt: Attempt, budget: float = BUDGET) -> Iterator[str]:
    """Resolve the candidates in order, until enough work or `budget` seconds are over. Yield lines with the result."""
    end = time.monotonic() + budget
    offers: dict[str, None] = {}
    tried, trouble = 0, []
    for one in found:
        rest = min(LONGEST, end - time.monotonic())
        if rest <= 0 or len(offers) >= ENOUGH:
            break
        try:
            answer = attempt(one.request, rest)
        except NetworkError as error:
            trouble.append(error.what.partition("\n")[0])
            continue
        tried += 1
        if answer is not None and is_offered(one, catalog, answer) and (words := offer(one, catalog, answer)):
            offers[words] = None
    if offers:
        yield "similar sets that work (each was resolved):"
        yield from (f"  {words}" for words in offers)
    elif tried:
        yield f"similar sets that were tried: {tried}; none works"
    if trouble:
        yield f"sets that could not be tried: {len(trouble)}; {trouble[0]}"


@dataclass(frozen=True)
class Candidate:
    """A set to try: `moved` pins as (name, old version, new version), or `dropped` items."""

    recipe: Recipe
    moved: tuple[tuple[str, str, str], ...] = ()
    dropped: tuple[Item, ...] = ()

    @property
    def request(self) -> LockRequest:
        """The request to the resolver."""
        return lock_request(self.recipe)


def candidates(
    recipe: Recipe, catalog: Catalog, conflict: Conflict, has: Callable[[str, str], bool]
) -> tuple[Candidate, ...]:
    """Return at most `MOST` sets to try: sets from the table for the recipe's CANN, then sets without one item.

    A release in the table only counts if an index has it (`has(name, version)`).
    """
    involved = {conflict.name, *(item.name for item in conflict.movers)}
    solver = Solver(Subject(recipe, catalog, {}), has=has, keeps=True)
    # Packages that depend on each other in the table move together.
    names = sorted(involved & {*solver.subject.versions})
    every = [solver.exactly(name, version) for name in names for version in solver.known(name)]
    moves = _in_order([moved for moved in every if moved], solver.subject)
    rows = [found for moved in moves if (found := _moved(recipe, catalog, moved))]
    dropped = [found for item in conflict.movers for found in _without(recipe, catalog, item)]
    unique: dict[tuple[object, ...], Candidate] = {}
    for candidate in (*rows[:ROWS], *dropped):
        unique.setdefault((candidate.moved, candidate.dropped), candidate)
    return tuple(unique.values())[:MOST]


def is_offered(candidate: Candidate, catalog: Catalog, answer: Mapping[str, str]) -> bool:
    """Whether the rules would accept a resolved set; `answer` is {name: version}."""
    sources = [chosen.package for chosen in candidate.recipe.sources]
    denied = catalog.compatibility.denied(sources)
    if any(fnmatchcase(name, one.pattern) for one in denied for name in answer):
        return False
    changed = frozenset({*(name for name, _old, _new in candidate.moved), *(item.name for item in candidate.dropped)})
    # The rules have already checked the rows of unchanged packages.
    proposed = Subject(candidate.recipe, catalog, {}).moved_to(answer)
    return not any({name, key} & changed for name, key in misfits(proposed))


def offer(candidate: Candidate, catalog: Catalog, answer: Mapping[str, str]) -> str:
    """Describe a set that works: `tokenizers 0.21.4 instead of 0.20.3`; "" if nothing changed."""
    words = [f"{name} {new} instead of {old}" for name, old, new in candidate.moved]
    words += [text for item in candidate.dropped if (text := _dropped_words(item, catalog, answer))]
    return " and ".join(words)


def _dropped_words(item: Item, catalog: Catalog, answer: Mapping[str, str]) -> str:
    found = Version(answer[item.name]).public if item.name in answer else ""
    if item.kind in {ItemKind.CONSTRAINT, ItemKind.OVERRIDE}:
        return f"{item.name} {found} without the {item}" if found else f"no {item}"
    (bound,) = SpecifierSet(item.wanted)
    old, table = Version(bound.version).public, catalog.compatibility
    if not found or found == old:
        return ""
    in_table = any(row.name == item.name for row in table.rows) and not table.rows_of(item.name, found)
    return f"{item.name} {found} instead of {old}{', which no row of the table has' if in_table else ''}"


def _in_order(found: Sequence[dict[str, str]], subject: Subject) -> list[dict[str, str]]:
    """Sort moves by number of packages, then by distance of the releases.

    Of several builds of one release, only one is kept: a build for the target's CANN, or else the nearest.
    """
    here = subject.versions

    def elsewhere(moved: Mapping[str, str]) -> int:
        rows = [subject.table.rows_of(name, version) for name, version in moved.items()]
        return sum(bool(own) and not any(is_held(subject, row, CANN) for row in own) for own in rows)

    def change(moved: Mapping[str, str]) -> tuple[int, list[int]]:
        return len(moved), [sum(part) for part in zip(*(distance(here[n], v) for n, v in moved.items()), strict=True)]

    once: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for moved in sorted(found, key=lambda moved: (elsewhere(moved), change(moved))):
        once.setdefault(tuple(sorted((name, Version(text).base_version) for name, text in moved.items())), moved)
    return sorted(once.values(), key=change)


def _moved(recipe: Recipe, catalog: Catalog, moved: Mapping[str, str]) -> Candidate | None:
    """Return the recipe with the pins of `moved`; None if a source is not known at that version."""
    here = {c.package: c.version for c in recipe.chosen if c.version} | dict(map(parse_pin, recipe.pins))
    kept = [pin for pin in recipe.pins if parse_pin(pin)[0] not in moved]
    try:
        found = _selected(recipe, catalog, (*kept, *(f"{name}=={version}" for name, version in moved.items())))
    except CanneryError:
        return None
    if found.unknown:
        return None
    changes = tuple((name, Version(here[name]).public, version) for name, version in sorted(moved.items()))
    return Candidate(found, changes)


def _selected(recipe: Recipe, catalog: Catalog, pins: Sequence[str]) -> Recipe:
    target: dict[str, Any] = recipe.target.words
    # A lock depends on the CANN version, not on the base image.
    options = Options(**target, base="cann", pins=tuple(pins), force=recipe.force)
    return select(catalog, recipe.name, options, recipe.target.arch, [parse_pin(pin)[0] for pin in pins])


def _without(recipe: Recipe, catalog: Catalog, item: Item) -> Iterator[Candidate]:
    """Yield the recipe without one item, so that the resolver chooses. For a source, yield two other versions."""
    changed = _without_item(recipe, catalog, item)
    if changed is not None:
        yield Candidate(changed, dropped=(item,))
    for chosen in recipe.sources if item.kind is ItemKind.SOURCE else ():
        if chosen.package != item.name or not chosen.version:
            continue
        here = chosen.version
        known = {*chosen.component.releases, *(r.version for r in chosen.component.revisions.values())}
        others = [version for version in known if Version(version) != Version(here)]
        for version in sorted(others, key=lambda version: (distance(here, version), version))[:2]:
            if found := _moved(recipe, catalog, {item.name: version}):
                yield found


def _without_item(recipe: Recipe, catalog: Catalog, item: Item) -> Recipe | None:
    """Return the recipe without one item; None if it needs the item. Without a `--pin`, the profile's pin applies."""
    profile = recipe.profile
    match item.kind:
        case ItemKind.CONSTRAINT:
            kept = tuple(one for one in profile.constraints if one.requirement != item.text)
            return replace(recipe, profile=profile.model_copy(update={"constraints": kept}))
        case ItemKind.OVERRIDE:
            kept = tuple(one for one in profile.overrides if one.requirement != item.text)
            return replace(recipe, profile=profile.model_copy(update={"overrides": kept}))
        case ItemKind.TRIAL:
            return _selected(recipe, catalog, [pin for pin in recipe.pins if parse_pin(pin)[0] != item.name])
        case ItemKind.PIN:
            chosen = tuple(replace(c, version=None) if c.package == item.name else c for c in recipe.chosen)
            # An override of the same package would still fix its version.
            kept = tuple(o for o in profile.overrides if package_name(o.requirement) != item.name)
            free = profile.model_copy(update={"overrides": kept})
            return replace(recipe, profile=free, chosen=chosen, held=held_bounds(chosen, catalog.compatibility))
        case _:
            return None
