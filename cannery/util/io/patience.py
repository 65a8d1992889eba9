"""Transfers that may be tried again: what has moved stays, so a try that got further is no failure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds before each further try of a transfer that got no further.
WAITS = (2.0, 10.0, 30.0)
T = TypeVar("T")


def patiently(
    job: Callable[[], T], far: Callable[[], Any], passing: Callable[[Exception], str], say: Callable[[str], None]
) -> T:
    """Return what `job` returns; it is run again where its trouble may pass.

    `far` returns how far it is. When a try has got further, the waits begin anew: a broken registry ends it soon, and
    a bad line does not. `passing` returns the words of a trouble that may pass, "" for another one. Raises what `job`
    raises last.
    """
    failures, best = 0, far()
    while True:
        try:
            return job()
        except Exception as error:
            words, now = passing(error), far()
            failures, best = (0, now) if now > best else (failures, best)
            if not words or failures == len(WAITS):
                raise
            say(f"{words}; retry in {WAITS[failures]:g} s, and what has arrived stays")
            time.sleep(WAITS[failures])
            failures += 1
