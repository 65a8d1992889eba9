"""What a person sees of a build: a live table on a terminal, elsewhere one line for each stage that ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.build.progress import ENDED, Status
from cannery.build.stages import Stage, duration, seconds_left, stages, words_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from rich.console import RenderableType
    from rich.live import Live

    from cannery.build.io.buildx import View
    from cannery.build.progress import BuildState
    from cannery.build.stages import Brought

_REFRESHES = 8
# Rows of stages that run, and of those that ended most recently below them.
_RUNNING = 8
_RECENT = 5
# BuildKit probes a step and starts it again a few ms later: a change is shown when it has lasted this long (seconds).
_STEADY = 0.3
# Seconds between two "still running" lines: CI services end a job that prints nothing for ten minutes.
_HEARTBEAT = 60.0
_STYLES = {
    Status.WAITING: "dim",
    Status.RUNNING: "cyan",
    Status.CACHED: "dim green",
    Status.DONE: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "yellow",
}


@dataclass(frozen=True)
class Look:
    """How a build is shown: what each stage brings, and with `is_verbose` also the lines of the log."""

    brings: Mapping[str, Brought]
    is_verbose: bool = False


def make_view(stream: TextIO, look: Look, *, is_terminal: bool, clock: Callable[[], float]) -> View:
    """Return the view for `stream`. `clock` is a monotonic clock in seconds."""
    plain = not is_terminal or look.is_verbose
    return PlainView(stream, look, clock) if plain else LiveView(stream, look, clock)


def head(state: BuildState, look: Look, seconds: float) -> str:
    """One line for the end and the head of the table: `7/30 steps (6 cached), 41 s, about 2 min left`."""
    cached, ended, total = state.counts
    if not total:
        return f"no step yet, {seconds:.0f} s"
    left = seconds_left(stages(state), look.brings, seconds)
    shown = f", {duration(left)} left" if left is not None else ""
    return f"{ended}/{total} steps{f' ({cached} cached)' if cached else ''}, {seconds:.0f} s{shown}"


def describe(stage: Stage) -> str:
    """How a stage ended: `done in 12.1 s, 7.8 MB`, `failed after 1.0 s`."""
    size = f", {stage.bytes / 1e6:.1f} MB" if stage.bytes >= 50_000 else ""
    match stage.status:
        case Status.FAILED | Status.CANCELLED:
            return f"{stage.status} after {stage.seconds:.1f} s"
        case _:
            part = f" ({stage.cached}/{stage.total} cached)" if stage.cached else ""
            return f"done in {stage.seconds:.1f} s{size}{part}"


class PlainView:
    """One line when a stage ends, and a sign of life each minute between them. No control codes."""

    def __init__(self, stream: TextIO, look: Look, clock: Callable[[], float]) -> None:
        self._stream, self._look, self._clock = stream, look, clock
        # Stages that ended, each with the time since when; True once it is printed.
        self._since: dict[str, float] = {}
        self._printed: set[str] = set()
        self._spoke = clock()
        self._waited = _Waited(clock)

    def update(self, state: BuildState) -> None:
        """Print what has ended and stayed so."""
        self._waited.hear(state)
        if self._look.is_verbose:
            for stage, line in state.fresh:
                self._print(state, f"[{stage}] {line}")
        self._ends(state, steady=_STEADY)
        if self._clock() - self._spoke >= _HEARTBEAT:
            running = [stage.label for stage in stages(state) if stage.shown and stage.status is Status.RUNNING]
            done = head(state, self._look, state.seconds + self._waited.seconds)
            self._print(state, f"still running: {', '.join(running) or 'buildx'} ({done})")

    def finish(self, state: BuildState) -> None:
        """Print the ends that were not printed yet, and the summary."""
        self._waited.hear(state)
        self._ends(state, steady=0.0)
        self._print(state, head(state, self._look, state.seconds))

    def _ends(self, state: BuildState, steady: float) -> None:
        now = self._clock()
        for stage in stages(state):
            if stage.status not in ENDED:
                self._since.pop(stage.label, None)
                continue
            since = self._since.setdefault(stage.label, now)
            if not stage.shown or stage.label in self._printed or now - since < steady:
                continue
            self._printed.add(stage.label)
            if stage.status is not Status.CACHED:  # the summary counts them
                words = words_for(stage.label, self._look.brings)
                name = stage.label if words == stage.label else f"{stage.label} ({words})"
                self._print(state, f"{name}: {describe(stage)}")

    def _print(self, state: BuildState, text: str) -> None:
        self._spoke = self._clock()
        self._stream.write(f"{state.seconds + self._waited.seconds:7.1f} s  {text}\n")
        self._stream.flush()


class _Waited:
    """How long a build has sent no event: the seconds of its state end at the last one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heard = clock()
        self._events: int | None = None

    def hear(self, state: BuildState) -> None:
        """Take a state: a new event ends the wait."""
        if state.events != self._events:
            self._events, self._heard = state.events, self._clock()

    @property
    def seconds(self) -> float:
        """Seconds since the last event."""
        return max(0.0, self._clock() - self._heard)


class LiveView:
    """A table that rich redraws at most eight times a second: running stages, then those that ended last."""

    def __init__(self, stream: TextIO, look: Look, clock: Callable[[], float]) -> None:
        self._stream, self._look = stream, look
        self._state: BuildState | None = None
        self._waited = _Waited(clock)
        self._live: Live | None = None

    def update(self, state: BuildState) -> None:
        """Take the state; rich's own thread draws it."""
        self._waited.hear(state)
        self._state = state
        if self._live is None:
            self._live = self._start()

    def finish(self, state: BuildState) -> None:
        """Draw the last state once and give the terminal back."""
        self._state = state
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _start(self) -> Live:
        # rich takes 50 ms to import: only a build on a terminal pays for it.
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        console = Console(file=self._stream, force_terminal=True)
        live = Live(console=console, get_renderable=self._table, refresh_per_second=_REFRESHES, redirect_stdout=False)
        live.start()
        return live

    def _table(self) -> RenderableType:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, expand=True, show_header=False)
        state = self._state
        if state is None:
            return table
        waited = self._waited.seconds
        table.title = Text(head(state, self._look, state.seconds + waited), style="bold")
        table.title_justify = "left"
        table.add_column("brings", no_wrap=True, overflow="ellipsis", ratio=1)
        table.add_column("state", no_wrap=True, min_width=max(len(status) for status in Status))
        table.add_column("seconds", justify="right", no_wrap=True, min_width=8)
        table.add_column("size", justify="right", no_wrap=True, min_width=10)
        rows, more = self._rows(stages(state))
        for stage in rows:
            seconds = stage.seconds + (waited if stage.status is Status.RUNNING else 0.0)
            size = f"{stage.bytes / 1e6:.1f} MB" if stage.bytes >= 50_000 else ""
            status = Text(str(stage.status), style=_STYLES[stage.status])
            table.add_row(Text(words_for(stage.label, self._look.brings)), status, f"{seconds:.1f} s", size)
        if more:
            table.add_row(Text(f"and {more} more"), Text("running", style=_STYLES[Status.RUNNING]), "", "")
        return table

    def _rows(self, every: tuple[Stage, ...]) -> tuple[list[Stage], int]:
        """Return the rows to draw, the largest first, and how many more stages run."""
        shown = [stage for stage in every if stage.shown]
        brings = self._look.brings
        size = {stage.label: brings[stage.label].bytes if stage.label in brings else 0 for stage in shown}
        running = sorted((s for s in shown if s.status is Status.RUNNING), key=lambda one: -size[one.label])
        failed = [stage for stage in shown if stage.status is Status.FAILED]
        ended = [stage for stage in shown if stage.status in ENDED and stage.status is not Status.FAILED]
        recent = sorted(ended, key=lambda stage: stage.ended or 0.0)[-_RECENT:]
        return [*failed, *running[:_RUNNING], *reversed(recent)], len(running[_RUNNING:])
