"""What a failed resolution comes down to: a package, who asks for it, what could be changed, and sets that work."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, NetworkError
from cannery.explain.conflict import (
    Ask,
    Reasons,
    find_conflict,
    make_conflict,
    profile_items,
    read_reasons,
    sides_of,
    what_can_move,
    who_asks,
)
from cannery.explain.io.missing import Headline, absence, releases_at
from cannery.explain.nearest import candidates, objection, offer
from cannery.lock.io.bound import NoFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.errors import CanneryError
    from cannery.explain.conflict import Conflict, Item
    from cannery.explain.nearest import Candidate
    from cannery.lock.io.uv import Job, UnsolvedError
    from cannery.lock.lock import LockRequest
    from cannery.recipe.recipe import Recipe

    # Resolves a request within so many seconds: name → version, None where nothing works; raises `NetworkError`.
    Attempt = Callable[[LockRequest, float], Mapping[str, str] | None]

WORKERS = 2
# Seconds for all tries together and for one, and how many that work are enough.
BUDGET, LONGEST, ENOUGH = 25.0, 12.0, 3
# Packages in doubt that the indexes are asked about.
DOUBTS = 4


@dataclass(frozen=True)
class Known:
    """What is known beside the request: the catalog, and the recipe that the request was made from."""

    catalog: Catalog | None
    recipe: Recipe | None


@dataclass(frozen=True)
class Tried:
    """Sets that work, in words, the nearest first; how many were tried to the end; why others could not be tried."""

    offers: tuple[str, ...]
    count: int
    trouble: tuple[str, ...] = ()


def explained(error: UnsolvedError | NoFileError, job: Job, known: Known, attempt: Attempt) -> CanneryError:
    """Return the error that a user sees in place of `error`.

    Indexes are asked (within the limit of a probe), and sets near the request are tried by `attempt`. It is a
    `NetworkError` when an index fails only at the page of the package.
    """
    items = profile_items(job.request, known.recipe)
    reasons = _no_file(error) if isinstance(error, NoFileError) else read_reasons(error.stderr)
    try:
        head, conflict = _missing(reasons, items, job)
    except NetworkError as trouble:
        return trouble
    if conflict is None:
        conflict = find_conflict(reasons, items)
        # Where no two sides exclude each other, the resolver's own text is shown: names are put in.
        name = conflict.name
        head = Headline(f"no set of versions works: no {name} fits all that ask for it" if name else error.what)
    lines = [*head.text.splitlines()]
    # What only the profile asks for is in the line above.
    lines += who_asks(conflict) if not head.is_about_one or any(side.chain for side in conflict.sides) else ()
    lines += what_can_move(conflict, known.recipe.file if known.recipe else "")
    if known.catalog and known.recipe:
        found = candidates(known.recipe, known.catalog, conflict, releases_at(job))
        lines += _offers(found, known.catalog, attempt)
    return FindingsError("\n  ".join(lines), where=job.where, hint=head.hint)


def _missing(reasons: Reasons, items: Sequence[Item], job: Job) -> tuple[Headline, Conflict | None]:
    """Return the first package in doubt of which no release can be used, by its index."""
    for name in reasons.doubts[:DOUBTS]:
        sides = sides_of(name, reasons.asks, items)
        found = absence(name, sides, job)
        if found:
            return replace(found, is_about_one=True), make_conflict(name, sides, items)
    return Headline(""), None


def _no_file(error: NoFileError) -> Reasons:
    wanted = (f"=={error.pin}",) if error.pin else ()
    asks = tuple(Ask(asker.partition("[")[0], error.name, wanted) for asker in error.askers)
    return Reasons(asks, (error.name,), (error.name,))


def _offers(found: Sequence[Candidate], catalog: Catalog, attempt: Attempt) -> Iterator[str]:
    if not found:
        return
    tried = try_sets(found, catalog, attempt)
    if tried.offers:
        yield "near it works (each was resolved):"
        yield from (f"  {words}" for words in tried.offers)
    elif tried.count:
        yield f"of {tried.count} sets near it that were tried, none works"
    if tried.trouble:
        yield f"sets that could not be tried: {len(tried.trouble)}; {tried.trouble[0]}"
    elif not tried.offers and not tried.count:
        yield "no set near it could be tried in time"


def try_sets(
    found: Sequence[Candidate], catalog: Catalog, attempt: Attempt, *, budget: float = BUDGET, enough: int = ENOUGH
) -> Tried:
    """Resolve `found` in their order, two at a time, until `enough` work or `budget` seconds are over."""
    end = time.monotonic() + budget
    offers: dict[int, str] = {}
    tried: set[int] = set()
    trouble: dict[int, str] = {}

    def work(number: int) -> None:
        rest = min(LONGEST, end - time.monotonic())
        if rest <= 0 or len(offers) >= enough:
            return
        one, start = found[number], time.monotonic()
        try:
            answer = attempt(one.request, rest)
        except NetworkError as error:
            trouble[number] = error.what.partition("\n")[0]
            return
        if answer is None and time.monotonic() - start >= rest:
            return
        tried.add(number)
        if answer is not None and not objection(one, catalog, answer) and (words := offer(one, catalog, answer)):
            offers[number] = words

    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work, number) for number in range(len(found))]:
            done.result()
    kept = tuple(dict.fromkeys(offers[number] for number in sorted(offers)))[:enough]
    return Tried(kept, len(tried), tuple(trouble[number] for number in sorted(trouble)))
