"""Several resolutions at once. Each is a process of uv's that mostly waits for an index, so threads are enough."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cannery.errors import CanneryError, FindingsError, NetworkError, UnableError, UsageError
from cannery.util.io.process import signals_held

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

T = TypeVar("T")
WORKERS = 4
# Seconds between two looks at whether all have ended, and after which those that do not end when asked to are killed.
TICK = 0.1
GRACE = 2.0


def run_jobs(jobs: Sequence[Callable[[], T]]) -> Generator[T | CanneryError, None, None]:
    """Run `jobs` a few at a time; give what each returned, or the `CanneryError` that it raised, in their order.

    An interrupt of the caller starts no further job, ends the processes of those that run, and waits for them. Further
    interrupts wait until that is done: it leaves no process and no folder behind.
    """
    pool = ThreadPoolExecutor(WORKERS)
    futures: list[Future[T]] = []
    try:
        futures += [pool.submit(job) for job in jobs]
        for future in futures:
            try:
                yield future.result()
            except CanneryError as error:
                yield error
    except BaseException:
        while True:
            # A further interrupt may come just before signals are held, and takes effect when they are no more.
            with contextlib.suppress(KeyboardInterrupt):
                _end(pool, futures)
                break
        raise
    pool.shutdown()


def _end(pool: ThreadPoolExecutor, futures: Sequence[Future[T]]) -> None:
    with signals_held():
        pool.shutdown(wait=False, cancel_futures=True)
        start = time.monotonic()
        while any(future.running() for future in futures):
            # Again and again: what failed thereby may start another one to find out why.
            _end_children(signal.SIGTERM if time.monotonic() - start < GRACE else signal.SIGKILL)
            time.sleep(TICK)
        pool.shutdown()


def _end_children(number: signal.Signals) -> None:
    """A terminal's Ctrl-C reaches them by itself; a SIGTERM of this process alone does not.

    No SIGINT: a run that a script starts in its background ignores it, and so do its children.
    """
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in listing.read_text(encoding="ascii").split():
                os.kill(int(child), number)


def raise_failures(failures: Sequence[CanneryError], count: int) -> None:
    """Raise one error for all `failures` of `count` locks, with the worst exit code; nothing without failures."""
    if not failures:
        return
    worst = max(failures, key=lambda failure: failure.code)
    if len(failures) == 1 and count == 1:
        raise worst
    kinds = {kind.code: kind for kind in (UsageError, FindingsError, UnableError, NetworkError)}
    texts = "\n".join(dict.fromkeys(str(failure) for failure in failures))  # a full disk is reported once
    raise kinds.get(worst.code, UsageError)(f"{len(failures)} of {count} locks could not be made\n{texts}")
