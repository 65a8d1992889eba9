"""What takes long: jobs in threads that never hold up the program, a line now and then, and transfers tried again."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Seconds before each further try of a transfer that got no further.
WAITS = (2.0, 10.0, 30.0)
T = TypeVar("T")
# Seconds before the first line, and between two: CI services end a job that prints nothing for ten minutes.
FIRST, BEAT = 5.0, 60.0


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


def begin(job: Callable[[], T]) -> Future[T]:
    """Run `job` in a thread of its own. What it raises is raised by the future's `result`.

    An executor joins its threads when Python exits, and no time-out ends a silent name service or credential helper:
    such a thread is left behind here.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to whoever asks for the result
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
