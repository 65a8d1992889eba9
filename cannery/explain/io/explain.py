"""What a failed resolution comes down to: a package, who asks for it, what could be changed, and sets that work."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from cannery.compat.io.stock import ask_stock, questions_of
from cannery.errors import FindingsError, NetworkError
from cannery.explain.conflict import (
    Ask,
    find_conflict,
    make_conflict,
    profile_items,
    read_reasons,
    sides_of,
    what_can_move,
    who_asks,
)
from cannery.explain.nearest import candidates, objection, offer
from cannery.lock.io.bound import NoFileError
from cannery.lock.io.indexes import PROBE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.compat.stock import Stock
    from cannery.explain.nearest import Candidate
    from cannery.lock.io.indexes import Answer, Listed, Place
    from cannery.lock.io.resolve import Attempt, Job, UnsolvedError
    from cannery.recipe.recipe import Recipe

# Seconds for all tries together and for one, and how many that work are enough.
BUDGET, LONGEST, ENOUGH = 25.0, 12.0, 3


def explained(
    error: UnsolvedError | NoFileError, job: Job, catalog: Catalog, recipe: Recipe | None, attempt: Attempt
) -> FindingsError:
    """Return the error that a user sees in place of `error`; sets near the request are tried by `attempt`.

    The request was made from `recipe`; that of the build tools has none, and no sets near it.
    Where two sides exclude each other it names the package and both, else it has the resolver's own text.
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
            text = f"no set of versions works: no {conflict.name} fits all that ask for it"
    lines = text.splitlines()
    # What only the profile asks for is in the line above.
    lines += who_asks(conflict) if len(conflict.sides) > 1 or any(side.chain for side in conflict.sides) else ()
    lines += what_can_move(conflict, recipe.file if recipe else "")
    if recipe:
        found = candidates(recipe, catalog, conflict, _releases(job, catalog, recipe))
        lines += near_sets(found, catalog, attempt)
    return FindingsError("\n  ".join(lines), where=job.where, hint=hint)


def _releases(job: Job, catalog: Catalog, recipe: Recipe) -> Callable[[str, str], bool]:
    """Return a function: whether a release (name, version) has a file for the target up to the date bound.

    The indexes are asked when it is first called.
    """
    request = job.request
    dates = dict(request.package_dates)

    def ask(questions: Sequence[tuple[Place, str]]) -> list[Answer]:
        answers = job.asked.ask(questions, job.settings, PROBE)
        return [replace(answer, files=tuple(filter(is_early, answer.files))) for answer in answers]

    def is_early(file: Listed) -> bool:
        return file.uploaded <= dates.get(file.name, request.exclude_newer)

    @cache
    def stock() -> Stock:
        target = (request.python, request.arch)
        return ask_stock(questions_of(recipe), catalog.indexes, job.settings, [target], ask)

    return lambda name, version: stock().has(name, version)


def near_sets(found: Sequence[Candidate], catalog: Catalog, attempt: Attempt, budget: float = BUDGET) -> Iterator[str]:
    """Resolve `found` in their order, until enough work or `budget` seconds are over; give what came of it in lines."""
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
        if answer is not None and not objection(one, catalog, answer) and (words := offer(one, catalog, answer)):
            offers[words] = None
    if offers:
        yield "near it works (each was resolved):"
        yield from (f"  {words}" for words in offers)
    elif tried:
        yield f"of {tried} sets near it that were tried, none works"
    if trouble:
        yield f"sets that could not be tried: {len(trouble)}; {trouble[0]}"
