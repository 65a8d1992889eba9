"""What a failed resolution comes down to: a package, who asks for it, what could be changed, and sets that work."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from cannery.explain.io.releases import releases_at
from cannery.explain.nearest import candidates, objection, offer
from cannery.lock.io.bound import NoFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.explain.nearest import Candidate
    from cannery.lock.io.uv import Job, UnsolvedError
    from cannery.lock.lock import LockRequest
    from cannery.recipe.recipe import Recipe

    # Resolves a request within so many seconds: name → version, None where nothing works; raises `NetworkError`.
    Attempt = Callable[[LockRequest, float], Mapping[str, str] | None]

WORKERS = 2
# Seconds for all tries together and for one, and how many that work are enough.
BUDGET, LONGEST, ENOUGH = 25.0, 12.0, 3


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


def explained(error: UnsolvedError | NoFileError, job: Job, known: Known, attempt: Attempt) -> FindingsError:
    """Return the error that a user sees in place of `error`; sets near the request are tried by `attempt`.

    Where two sides exclude each other it names the package and both, else it has the resolver's own text.
    """
    items = profile_items(job.request, known.recipe)
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
    lines += what_can_move(conflict, known.recipe.file if known.recipe else "")
    if known.catalog and known.recipe:
        found = candidates(known.recipe, known.catalog, conflict, releases_at(job))
        lines += _offers(found, known.catalog, attempt)
    return FindingsError("\n  ".join(lines), where=job.where, hint=hint)


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
