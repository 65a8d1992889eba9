"""Shows the progress of a push, pull, bundle or load: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from cannery.util.io.waiting import heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress

# Seconds between two lines without a terminal.
HEARTBEAT = 30.0


class TransferView:
    """The progress of one transfer: layers done, and bytes of `total` (0: unknown), shown by `bar` if there is one."""

    def __init__(self, what: str, total: int, bar: Progress | None = None) -> None:
        self._what, self._total, self._bar = what, total, bar
        self._layers, self._moved = "", 0
        self._task = bar.add_task(what, total=total or None) if bar else None

    def layers(self, done: int, count: int, moved: int = 0, size: int = 0) -> None:
        """Set how many of `count` layers are done, and the bytes moved of `size` (0: unknown)."""
        self._layers = f"{done} of {count} layers"
        self._moved, self._total = (moved, size) if size else (self._moved, self._total)
        self._draw()

    def moved(self, count: int) -> None:
        """Set the bytes that this host has moved so far."""
        self._moved = count
        self._draw()

    def _draw(self) -> None:
        if self._bar and self._task is not None:
            words = f"{self._what} ({self._layers})" if self._layers else self._what
            self._bar.update(self._task, description=words, completed=self._moved, total=self._total or None)

    def details(self) -> str:
        """Return the progress as a text that continues a line."""
        total = f" of {_size(self._total)}" if self._total else ""
        moved = f"{_size(self._moved)}{total}" if self._moved else ""
        return "".join(f", {part}" for part in (self._layers, moved) if part)


@contextmanager
def transfer(what: str, total: int, stream: TextIO, *, is_terminal: bool) -> Iterator[TransferView]:
    """Show the progress of the transfer `what` of `total` bytes (0: unknown) while the block runs.

    Without a terminal, it prints a line at the start, one every half minute, and one at the end.
    """
    if is_terminal:
        with _bar(stream) as bar:
            yield TransferView(what, total, bar)
        return

    def show(text: str) -> None:
        stream.write(f"{text}\n")
        stream.flush()

    view, begun, end = TransferView(what, total), time.monotonic(), "not done"
    show(f"{what}{f' ({_size(total)})' if total else ''}")
    try:
        with heartbeat(show, lambda: f"{what}: in progress{view.details()}", HEARTBEAT):
            yield view
        end = "done"
    finally:
        show(f"{what}: {end}{view.details()} ({time.monotonic() - begun:.0f} s)")


def _bar(stream: TextIO) -> Progress:
    """Return a progress bar, which a thread of rich draws."""
    from rich.console import Console  # noqa: PLC0415 - 50 ms that only a transfer on a terminal pays for
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    # The description uses the remaining width, so that nothing wraps at 80 columns.
    name = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (name, BarColumn(bar_width=16), DownloadColumn(), TimeRemainingColumn())
    console = Console(file=stream, force_terminal=True)
    return Progress(*columns, console=console, redirect_stdout=False, expand=True)


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
