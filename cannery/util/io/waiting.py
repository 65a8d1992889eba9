"""Long operations: jobs in threads that do not delay the exit, progress lines, and retries of transfers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Seconds before each retry of a transfer without progress.
WAITS = (2.0, 10.0, 30.0)
T = TypeVar("T")
# Seconds before the first line and between lines. CI services end a job that prints nothing for ten minutes.
FIRST, BEAT = 5.0, 60.0


def patiently(
    job: Callable[[], T], progress: Callable[[], Any], passing: Callable[[Exception], str], say: Callable[[str], None]
) -> T:
    """Return the result of `job`, which is retried after temporary errors.

    After a try that increases `progress`, the waits start again: a bad connection does not end the transfer, but a
    broken registry does. `passing` returns the message of a temporary error, or "". Raises the last error of `job`.
    """
    failures, best = 0, progress()
    while True:
        try:
            return job()
        except Exception as error:
            words, now = passing(error), progress()
            failures, best = (0, now) if now > best else (failures, best)
            if not words or failures == len(WAITS):
                raise
            say(f"{words}; retry in {WAITS[failures]:g} s, and what has arrived stays")
            time.sleep(WAITS[failures])
            failures += 1


@contextmanager
def heartbeat(say: Callable[[str], None], text: Callable[[], str], beat: float = BEAT) -> Iterator[None]:
    """While the block runs, call `say` with `text()` after some seconds, and then every `beat` seconds with the time.

    It uses another thread, because the thread of the block may wait in a read.
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


def begin(job: Callable[[], T]) -> Future[T]:
    """Run `job` in a new thread. The future's `result` raises its exception.

    An executor would join its threads when Python exits, and a silent name service or credential helper may never end.
    This thread does not delay the exit.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
