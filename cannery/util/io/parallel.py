"""Jobs beside each other, none of which may hold up the program: neither while it waits nor when it ends."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def begin(job: Callable[[], T]) -> Future[T]:
    """Run `job` in a thread of its own. What it raises is raised by the future's `result`.

    An executor's threads are joined when Python exits, and no time-out ends a name service's or a credential helper's
    silence: here such a thread is left behind.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to whoever asks for the result
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
