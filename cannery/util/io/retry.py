"""The one retry policy: four tries, 0.5, 1.5 and 4.5 seconds apart, of what may pass."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_before_delay, wait_exponential

if TYPE_CHECKING:
    from collections.abc import Callable

TRIES = 4
# Seconds before the second try; each further wait is three times as long.
FIRST_WAIT = 0.5


class PassingError(Exception):
    """A try that failed in a way that may pass; the message is the reason."""


def retrying(sleep: Callable[[float], None] = time.sleep, longest: float = float("inf")) -> Retrying:
    """Return the policy: call it with a function that raises `PassingError` when another try may help.

    The last error is raised after four tries, or before a wait that would end later than `longest` seconds after the
    first try. `sleep` waits; what it raises ends the tries.
    """
    return Retrying(
        retry=retry_if_exception_type(PassingError),
        wait=wait_exponential(multiplier=FIRST_WAIT, exp_base=3),
        stop=stop_after_attempt(TRIES) | stop_before_delay(longest),
        sleep=sleep,
        reraise=True,
    )
