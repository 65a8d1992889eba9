"""Jobs in threads that never hold up the program: neither while they wait nor when it ends."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class StoppedError(Exception):
    """The run was stopped (Ctrl-C, or another job failed): leave everything as it is."""


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
