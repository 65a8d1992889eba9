"""What a person sees of a build: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.build.progress import Status, counts
from cannery.build.stages import ENDED, Stage, stages

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from rich.console import RenderableType
    from rich.live import Live

    from cannery.build.io.buildx import View
    from cannery.build.progress import BuildState

_REFRESHES = 8
# Rows of stages that ended most recently, below those that run.
_RECENT = 5
# BuildKit probes a step and starts it again a few ms later: a change is told when it has lasted this long (seconds).
_STEADY = 0.3
# Seconds between two "still running" lines: CI services end a job that says nothing for ten minutes.
_HEARTBEAT = 60.0


def make_view(stream: TextIO, *, is_terminal: bool, clock: Callable[[], float], no_color: bool | None = None) -> View:
    """Return the view for `stream`. `clock` is a monotonic clock in seconds; `no_color` None reads NO_COLOR."""
    return LiveView(stream, clock, no_color=no_color) if is_terminal else PlainView(stream, clock)


def summary(state: BuildState) -> str:
    """One line for the end and the head of the table: `6/7 steps cached, 12.3 s`."""
    return _head(state, f"{state.seconds:.1f} s")


def describe(stage: Stage) -> str:
    """How a stage ended: `done in 12.1 s, 7.8 MB`, `cached`, `failed after 1.0 s: RUN …`."""
    size = f", {_megabytes(stage.bytes)}" if stage.bytes >= 50_000 else ""
    match stage.status:
        case Status.CACHED:
            return f"cached{size}"
        case Status.FAILED:
            return f"failed after {stage.seconds:.1f} s: {_clip(stage.instruction, 100)}"
        case Status.CANCELLED:
            return f"cancelled after {stage.seconds:.1f} s"
        case _:
            part = f" ({stage.cached}/{stage.total} cached)" if stage.cached else ""
            return f"done in {stage.seconds:.1f} s{size}{part}"


@dataclass
class _Told:
    """What plain lines said of a stage, and since when it stands as it does."""

    status: Status
    since: float
    started: bool = False
    ended: bool = False


class PlainView:
    """One line when a stage starts, one when it ends, a sign of life each minute between them. No control codes."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._told: dict[str, _Told] = {}
        self._spoke = clock()

    def update(self, state: BuildState) -> None:
        """Print what has changed and lasted."""
        self._tell(state, steady=_STEADY)
        now = self._clock()
        if now - self._spoke >= _HEARTBEAT:
            running = [stage.label for stage in stages(state) if stage.shown and stage.status is Status.RUNNING]
            self._say(state, f"still running: {', '.join(running) or 'buildx'}")

    def finish(self, state: BuildState) -> None:
        """Print the ends not yet told, and the summary."""
        self._tell(state, steady=0.0)
        self._say(state, summary(state))

    def _tell(self, state: BuildState, steady: float) -> None:
        now = self._clock()
        for stage in stages(state):
            told = self._told.setdefault(stage.label, _Told(stage.status, now))
            if told.status is not stage.status:
                told.status, told.since = stage.status, now
            if not stage.shown or told.ended or now - told.since < steady:
                continue
            if stage.status is Status.RUNNING and not told.started:
                told.started = True
                self._say(state, f"{stage.label}: {_clip(stage.instruction, 100)}")
            elif stage.status is Status.CACHED:
                told.ended = True  # the summary counts them; a build of nothing says nothing else
            elif stage.status in ENDED:
                told.ended = True
                self._say(state, f"{stage.label}: {describe(stage)}")

    def _say(self, state: BuildState, text: str) -> None:
        self._spoke = self._clock()
        self._stream.write(f"{state.seconds:7.1f} s  {text}\n")
        self._stream.flush()


class LiveView:
    """A table that rich draws anew at most eight times a second: running stages, then those that ended last."""

    def __init__(self, stream: TextIO, clock: Callable[[], float], *, no_color: bool | None = None) -> None:
        self._stream = stream
        self._clock = clock
        self._no_color = no_color
        self._state: BuildState | None = None
        self._heard = clock()
        self._live: Live | None = None

    def update(self, state: BuildState) -> None:
        """Take the state; rich's own thread draws it."""
        if self._state is None or self._state.events != state.events:
            self._heard = self._clock()
        self._state = state
        if self._live is None:
            self._live = self._start()

    def finish(self, state: BuildState) -> None:
        """Draw the last state once and give the terminal back."""
        self._state = state
        if self._live is not None:
            self._heard = self._clock()
            self._live.stop()
            self._live = None

    def _start(self) -> Live:
        # rich takes 50 ms to import: only a build on a terminal pays for it.
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        console = Console(file=self._stream, force_terminal=True, no_color=self._no_color)
        live = Live(console=console, get_renderable=self._table, refresh_per_second=_REFRESHES, redirect_stdout=False)
        live.start()
        return live

    def _table(self) -> RenderableType:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, expand=True, show_header=True, header_style="bold")
        state = self._state
        if state is None:
            return table
        waited = max(0.0, self._clock() - self._heard)
        rows = _rows(stages(state))
        table.title = Text(_head(state, f"{state.seconds + waited:.0f} s"))
        table.title_justify = "left"
        # Only the last column takes what room is left: rich would else shrink the short ones in its favour, to nothing.
        table.add_column("stage", no_wrap=True, min_width=min(30, max((len(row.label) for row in rows), default=5)))
        table.add_column("state", no_wrap=True, min_width=max(len(status) for status in Status))
        table.add_column("s", justify="right", no_wrap=True, min_width=6)
        table.add_column("MB", justify="right", no_wrap=True, min_width=7)
        table.add_column("at", no_wrap=True, overflow="ellipsis", ratio=1)
        for stage in rows:
            running = stage.status is Status.RUNNING
            size = f"{stage.bytes / 1e6:.1f}" if stage.bytes >= 50_000 else ""
            at = Text(_clip(stage.instruction, 200)) if running or stage.status is Status.FAILED else Text("")
            status = Text(str(stage.status), style=_STYLES[stage.status])
            seconds = stage.seconds + (waited if running else 0.0)
            table.add_row(Text(stage.label), status, f"{seconds:.1f}", size, at)
        return table


_STYLES = {
    Status.WAITING: "dim",
    Status.RUNNING: "cyan",
    Status.CACHED: "dim green",
    Status.DONE: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "yellow",
}


def _rows(all_stages: tuple[Stage, ...]) -> list[Stage]:
    shown = [stage for stage in all_stages if stage.shown]
    running = [stage for stage in shown if stage.status in {Status.RUNNING, Status.FAILED}]
    ended = [stage for stage in shown if stage.status in ENDED and stage.status is not Status.FAILED]
    recent = sorted(ended, key=lambda stage: stage.ended or 0.0)[-_RECENT:]
    return [*running, *reversed(recent)]


def _head(state: BuildState, seconds: str) -> str:
    cached, total = counts(state.steps)
    return f"{cached}/{total} steps cached, {seconds}" if total else f"no step yet, {seconds}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
