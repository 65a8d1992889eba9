"""Try sets near one that does not work: a few resolutions, two at a time, within a limit."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import NetworkError
from cannery.explain.candidate import objection, offer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.explain.candidate import Candidate
    from cannery.lock.lock import LockRequest

    # Resolves a request within so many seconds: name → version, None where nothing works; raises `NetworkError`.
    Attempt = Callable[[LockRequest, float], Mapping[str, str] | None]

WORKERS = 2
# Seconds for all tries together and for one, and how many that work are enough.
BUDGET, LONGEST, ENOUGH = 25.0, 12.0, 3


@dataclass(frozen=True)
class Tried:
    """Sets that work, in words, the nearest first; how many were tried to the end; why others could not be tried."""

    offers: tuple[str, ...]
    count: int
    trouble: tuple[str, ...] = ()


def try_sets(
    found: Sequence[Candidate], catalog: Catalog, attempt: Attempt, *, budget: float = BUDGET, enough: int = ENOUGH
) -> Tried:
    """Resolve `found` in their order until `enough` work or `budget` seconds are over."""
    end = time.monotonic() + budget
    offers: dict[int, str] = {}
    tried: set[int] = set()
    trouble: dict[int, str] = {}

    def work(number: int) -> None:
        rest = min(LONGEST, end - time.monotonic())
        if rest <= 0 or len(offers) >= enough:
            return
        start = time.monotonic()
        try:
            answer = attempt(found[number].request, rest)
        except NetworkError as error:
            trouble[number] = error.what.partition("\n")[0]
            return
        if answer is None and time.monotonic() - start >= rest:
            return
        tried.add(number)
        words = (
            "" if answer is None or objection(found[number], catalog, answer) else offer(found[number], catalog, answer)
        )
        if words:
            offers[number] = words

    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work, number) for number in range(len(found))]:
            done.result()
    kept = tuple(dict.fromkeys(offers[number] for number in sorted(offers)))[:enough]
    return Tried(kept, len(tried), tuple(trouble[number] for number in sorted(trouble)))
