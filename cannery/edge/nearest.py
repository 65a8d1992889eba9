"""Try sets near one that does not work: a few resolutions, two at a time, within a limit."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.core.candidate import objection, offer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cannery.core.candidate import Candidate
    from cannery.core.catalog import Catalog
    from cannery.core.lock import LockRequest

    # Resolves a request within so many seconds: name → version, None where nothing works.
    Attempt = Callable[[LockRequest, float], Mapping[str, str] | None]

WORKERS = 2
# Seconds for all tries together, and how many that work are enough.
BUDGET, ENOUGH = 25.0, 3


@dataclass(frozen=True)
class Tried:
    """Sets that work, in words, the nearest first; and how many were tried to the end."""

    offers: tuple[str, ...]
    count: int


def try_sets(
    found: Sequence[Candidate], catalog: Catalog, attempt: Attempt, *, budget: float = BUDGET, enough: int = ENOUGH
) -> Tried:
    """Resolve `found` in their order until `enough` work or `budget` seconds are over."""
    end = time.monotonic() + budget
    offers: dict[int, str] = {}
    tried: set[int] = set()

    def work(number: int) -> None:
        rest = end - time.monotonic()
        if rest <= 0 or len(offers) >= enough:
            return
        answer = attempt(found[number].request, rest)
        if time.monotonic() < end or answer is not None:
            tried.add(number)
        if answer is not None and not objection(found[number], catalog, answer):
            words = offer(found[number], catalog, answer)
            if words:
                offers[number] = words

    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work, number) for number in range(len(found))]:
            done.result()
    return Tried(tuple(dict.fromkeys(offers[number] for number in sorted(offers)))[:enough], len(tried))
