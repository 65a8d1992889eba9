"""Show a build: one line for each stage that ends, and on a terminal a last line with what is running."""

from __future__ import annotations

import math
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

_REFRESHES = 4
# Seconds that a change must last to be shown: BuildKit tries a step and starts it again a few ms later.
_STEADY = 0.3
# Seconds between two "still running" lines: CI services end a job that prints nothing for ten minutes.
_HEARTBEAT = 60.0


@dataclass(frozen=True)
class Look:
    """How a build is shown: the words for each stage, and with `is_verbose` also the lines of the log."""

    brings: Mapping[str, Brought]
    is_verbose: bool = False


def make_view(stream: TextIO, look: Look, *, is_terminal: bool, clock: Callable[[], float]) -> View:
    """Return the view for `stream`. `clock` is a monotonic clock in seconds."""
    plain = not is_terminal or look.is_verbose
    return PlainView(stream, look, clock) if plain else LiveView(stream, look, clock)


def head(state: BuildState, look: Look, seconds: float) -> str:
    """Return how far a build is: `7/30 steps (6 cached), 41 s, about 2 min left`."""
    cached, ended, total = state.counts
    if not total:
        return f"no step yet, {seconds:.0f} s"
    left = seconds_left(stages(state), look.brings, seconds)
    shown = f", {duration(left)} left" if left is not None else ""
    return f"{ended}/{total} steps{f' ({cached} cached)' if cached else ''}, {seconds:.0f} s{shown}"


def describe(stage: Stage) -> str:
    """How a stage ended: `done in 12.1 s, 7.8 MB`, `failed after 1.0 s`."""
    match stage.status:
        case Status.FAILED | Status.CANCELLED:
            return f"{stage.status} after {stage.seconds:.1f} s"
        case _:
            part = f" ({stage.cached}/{stage.total} cached)" if stage.cached else ""
            return f"done in {stage.seconds:.1f} s{_megabytes(stage)}{part}"


def _megabytes(stage: Stage) -> str:
    return f", {stage.bytes / 1e6:.1f} MB" if stage.bytes >= 50_000 else ""


class PlainView:
    """Print a line when a stage ends, and one a minute in between. No control codes."""

    heartbeat = _HEARTBEAT

    def __init__(self, stream: TextIO, look: Look, clock: Callable[[], float]) -> None:
        self._stream, self._look, self._clock = stream, look, clock
        # Stages that ended, each with the time since when; and those that are printed.
        self._since: dict[str, float] = {}
        self._printed: set[str] = set()
        # When a line was printed, when an event came, and how many came.
        self._spoke, self._heard, self._events = clock(), clock(), 0

    def update(self, state: BuildState) -> None:
        """Print the stages that have ended and have not started again."""
        if state.events != self._events:
            self._events, self._heard = state.events, self._clock()
        if self._look.is_verbose:
            for stage, line in state.fresh:
                self._print(state, f"[{stage}] {line}")
        self._print_ended(state, steady=_STEADY)
        if self._clock() - self._spoke >= self.heartbeat:
            self._print(state, f"still running: {self._running_text(state)}")

    def finish(self, state: BuildState) -> None:
        """Print the stages that were not printed yet, and the summary."""
        self._heard = self._clock()
        self._print_ended(state, steady=0.0)
        self._print(state, head(state, self._look, state.seconds))

    def _seconds(self, state: BuildState) -> float:
        """Return how long a build has taken until now; its state has the time of the last event."""
        return state.seconds + max(0.0, self._clock() - self._heard)

    def _running_text(self, state: BuildState) -> str:
        """Return how far a build is, and what runs."""
        running = [stage for stage in stages(state) if stage.shown and stage.status is Status.RUNNING]
        words = [f"{words_for(one.label, self._look.brings)}{_megabytes(one)}" for one in running]
        return f"{head(state, self._look, self._seconds(state))}: {', '.join(words) or 'buildx'}"

    def _print_ended(self, state: BuildState, steady: float) -> None:
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
        self._write(f"{self._seconds(state):7.1f} s  {text}")

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class LiveView(PlainView):
    """Print the same lines on a terminal, and below them one that rich redraws: the progress, and what is running."""

    heartbeat = math.inf

    def __init__(self, stream: TextIO, look: Look, clock: Callable[[], float]) -> None:
        super().__init__(stream, look, clock)
        self._state: BuildState | None = None
        self._live: Live | None = None

    def update(self, state: BuildState) -> None:
        """Print the stages that have ended; a thread of rich draws the last line."""
        self._state = state
        if self._live is None:
            self._live = self._start()
        super().update(state)

    def finish(self, state: BuildState) -> None:
        """Remove the last line, and print the rest."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        super().finish(state)

    def _start(self) -> Live:
        # rich takes 50 ms to import, which only a build on a terminal needs.
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        console = Console(file=self._stream, force_terminal=True)
        live = Live(console=console, get_renderable=self._line, refresh_per_second=_REFRESHES, transient=True)
        live.start()
        return live

    def _line(self) -> RenderableType:
        from rich.text import Text  # noqa: PLC0415

        return Text(self._running_text(self._state) if self._state else "", "cyan", no_wrap=True, overflow="ellipsis")

    def _write(self, line: str) -> None:
        if self._live is None:
            super()._write(line)
        else:
            self._live.console.print(line, markup=False, highlight=False)
