"""Signals that wait until something short is done."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# What ends a run from outside and can be held: Ctrl-C, a stopped job, a closed terminal.
HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_held() -> Iterator[list[int]]:
    """Let no signal of HELD interrupt what runs inside; yield the list of those that came.

    They take effect right behind it, unless an exception leaves it, which ends the run anyway. Elsewhere than in the
    main thread there is nothing to hold: Python's handlers run in the main thread alone.

    Handlers and no mask: a mask is one thread's, the kernel then gives the signal to another thread, and Python's
    handler would interrupt the main thread all the same.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before: dict[signal.Signals, Any] = {}
    try:
        for number in HELD:
            before[number] = signal.signal(number, lambda found, _frame: came.append(found))
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python
    for found in dict.fromkeys(came):
        signal.raise_signal(found)
