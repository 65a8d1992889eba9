"""What a person sees of a push, pull, save or load: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress, TaskID

    from cannery.engine.stream import StreamState

# Seconds between two lines without a terminal: CI services end a job that says nothing for ten minutes.
HEARTBEAT = 30.0
# Bars of layers at once, below the one of the whole; those that are done give way.
BARS = 8


class PlainView:
    """A line when it begins, one every half minute whatever happens, one at the end. No control codes."""

    def __init__(self, what: str, total: int, stream: TextIO, *, beat: float = HEARTBEAT) -> None:
        self._what, self._total, self._stream, self._beat = what, total, stream, beat
        self._begun = time.monotonic()
        self._words = ""
        self._moved = 0
        self._over = threading.Event()
        # The one that reads the stream is blocked in it while an engine is silent: another one has to speak.
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def state(self, state: StreamState) -> None:
        """Keep what is to be said next."""
        now, total = state.moved
        done, layers = state.counts
        sized = f", {_size(now)} of {_size(total)}" if total else ""
        self._words = f"{done} of {layers} layers{sized}" if layers else ""

    def moved(self, count: int) -> None:
        """Keep what is to be said next."""
        self._moved = count

    def begin(self) -> None:
        """Say that it begins."""
        self._say(f"{self._what}{f' ({_size(self._total)})' if self._total else ''}")
        self._thread.start()

    def end(self, *, whole: bool) -> None:
        """Say how it ended."""
        self._over.set()
        self._thread.join()
        self._say(f"{self._what}: {'done' if whole else 'not done'}{self._told()}")

    def _tick(self) -> None:
        while not self._over.wait(self._beat):
            self._say(f"{self._what}: still at it{self._told()}")

    def _told(self) -> str:
        parts = [self._words, f"{_size(self._moved)} through this host" if self._moved else ""]
        seconds = f"{time.monotonic() - self._begun:.0f} s"
        return f" ({', '.join(part for part in (*parts, seconds) if part)})"

    def _say(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class BarView:
    """rich's bars: one of the whole, and one of each layer on its way. They are drawn by a thread of rich's own."""

    def __init__(self, what: str, total: int, stream: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415 - 50 ms that only a transfer on a terminal pays for
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TransferSpeedColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        console = Console(file=stream, force_terminal=True)
        self._progress: Progress = Progress(*columns, TimeElapsedColumn(), console=console, redirect_stdout=False)
        self._whole = self._progress.add_task(what, total=total or None)
        self._bars: dict[str, TaskID] = {}

    def state(self, state: StreamState) -> None:
        """Move the bars."""
        now, total = state.moved
        if total:
            self._progress.update(self._whole, completed=now, total=total)
        for name, layer in state.layers.items():
            bar = self._bars.get(name)
            if layer.done:
                if bar is not None:
                    self._progress.remove_task(self._bars.pop(name))
            elif bar is not None:
                words = f"  {name} {layer.status}"
                self._progress.update(bar, description=words, completed=layer.current, total=layer.total or None)
            elif layer.total and len(self._bars) < BARS:
                self._bars[name] = self._progress.add_task(f"  {name} {layer.status}", total=layer.total)

    def moved(self, count: int) -> None:
        """Move the bar of the whole."""
        self._progress.update(self._whole, completed=count)

    def begin(self) -> None:
        """Take the terminal."""
        self._progress.start()

    def end(self, *, whole: bool) -> None:
        """Give the terminal back."""
        del whole
        for bar in self._bars.values():
            self._progress.remove_task(bar)
        self._progress.stop()


TransferView = PlainView | BarView


@contextmanager
def transfer(what: str, total: int, stream: TextIO, *, is_terminal: bool) -> Iterator[TransferView]:
    """Show a transfer of `total` bytes (0: unknown) while the body runs; `what` says in words what is on its way."""
    view: TransferView = BarView(what, total, stream) if is_terminal else PlainView(what, total, stream)
    view.begin()
    whole = False
    try:
        yield view
        whole = True
    finally:
        view.end(whole=whole)


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
