"""A line now and then while a step that prints nothing itself takes long."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Seconds before the first line, and between two: CI services end a job that prints nothing for ten minutes.
FIRST, BEAT = 5.0, 60.0


@contextmanager
def heartbeat(say: Callable[[str], None], text: Callable[[], str], beat: float = BEAT) -> Iterator[None]:
    """Call `say` with `text()` after some seconds, then every `beat` seconds with the time so far, until the end.

    The thread of the block may be blocked in a read while nothing arrives, so another one prints.
    """
    begun, over = time.monotonic(), threading.Event()

    def tick() -> None:
        if not over.wait(min(FIRST, beat)):
            say(f"{text()} …")
        while not over.wait(beat):
            say(f"{text()}: {time.monotonic() - begun:.0f} s so far")

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
