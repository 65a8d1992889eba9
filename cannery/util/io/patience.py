"""A progress line now and then for something that runs long and prints nothing by itself."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Seconds between two lines.
EVERY = 30.0


@contextlib.contextmanager
def patience(say: Callable[[str], None], what: str, every: float = EVERY) -> Iterator[None]:
    """Print every `every` seconds meanwhile that `what` still goes on, and for how long (seconds); nothing before."""
    ended = threading.Event()
    began = time.monotonic()

    def speak() -> None:
        while not ended.wait(every):
            say(f"{what}: {time.monotonic() - began:.0f} s so far")

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # No line may come after the end.
        thread.join()
