"""What a person sees of a push, pull, save or load: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from cannery.util.io.waiting import heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.engine.stream import StreamState

# Seconds between two lines without a terminal.
HEARTBEAT = 30.0


class PlainView:
    """A line when it begins, one every half minute, one at the end. No control codes."""

    def __init__(self, what: str, total: int, stream: TextIO) -> None:
        self._what, self._total, self._stream = what, total, stream
        self._words = ""
        self._moved = 0

    def state(self, state: StreamState) -> None:
        """Take the state of an engine's stream."""
        now, total = state.moved
        done, layers = state.counts
        sized = f", {_size(now)} of {_size(total)}" if total else ""
        self._words = f"{done} of {layers} layers{sized}" if layers else ""

    def moved(self, count: int) -> None:
        """Take the bytes that this host has moved so far."""
        self._moved = count

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Print the lines while the block runs."""
        begun, end = time.monotonic(), "not done"
        self._print(f"{self._what}{f' ({_size(self._total)})' if self._total else ''}")
        try:
            with heartbeat(self._print, lambda: f"{self._what}: in progress{self._details()}", HEARTBEAT):
                yield
            end = "done"
        finally:
            self._print(f"{self._what}: {end}{self._details()} ({time.monotonic() - begun:.0f} s)")

    def _details(self) -> str:
        moved = f"{_size(self._moved)}{f' of {_size(self._total)}' if self._total else ''}" if self._moved else ""
        return "".join(f", {part}" for part in (self._words, moved) if part)

    def _print(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class BarView:
    """rich's bar of the whole, with the layers that are done. A thread of rich's own draws it."""

    def __init__(self, what: str, total: int, stream: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415 - 50 ms that only a transfer on a terminal pays for
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.table import Column  # noqa: PLC0415

        # The description takes the room that is left, so that nothing wraps at 80 columns.
        name = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
        columns = (name, BarColumn(bar_width=16), DownloadColumn(), TimeRemainingColumn())
        console = Console(file=stream, force_terminal=True)
        self._what = what
        self._progress = Progress(*columns, console=console, redirect_stdout=False, expand=True)
        self._whole = self._progress.add_task(what, total=total or None)

    def state(self, state: StreamState) -> None:
        """Take the state of an engine's stream."""
        now, total = state.moved
        done, layers = state.counts
        if layers:
            self._progress.update(self._whole, description=f"{self._what} ({done} of {layers} layers)")
        if total:
            self._progress.update(self._whole, completed=now, total=total)

    def moved(self, count: int) -> None:
        """Take the bytes that this host has moved so far."""
        self._progress.update(self._whole, completed=count)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw the bar while the block runs."""
        with self._progress:
            yield


TransferView = PlainView | BarView


@contextmanager
def transfer(what: str, total: int, stream: TextIO, *, is_terminal: bool) -> Iterator[TransferView]:
    """Show a transfer of `total` bytes (0: unknown) while the block runs; `what` names it."""
    view: TransferView = BarView(what, total, stream) if is_terminal else PlainView(what, total, stream)
    with view.shown():
        yield view


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
