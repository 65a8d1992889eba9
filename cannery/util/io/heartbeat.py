"""A line now and then while a step that prints nothing itself takes long."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Seconds between two lines: CI services end a job that prints nothing for ten minutes.
BEAT = 60.0


@contextmanager
def heartbeat(say: Callable[[str], None], text: Callable[[], str], beat: float = BEAT) -> Iterator[None]:
    """Call `say` with `text()` and the time that has passed, every `beat` seconds until the block ends.

    The thread of the block may be blocked in a read while nothing arrives, so another one prints.
    """
    begun, over = time.monotonic(), threading.Event()

    def tick() -> None:
        while not over.wait(beat):
            say(f"{text()} ({time.monotonic() - begun:.0f} s)")

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
