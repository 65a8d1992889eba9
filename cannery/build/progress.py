"""What a build is doing, as a frozen value: `apply(state, event) -> state`, no clock but the events' own times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.build.rawjson import Event, Other, Vertex
from cannery.build.steplog import StepLog, add_chunk, clip_note, flush
from cannery.build.stepname import StepName, parse_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cannery.build.rawjson import Chunk, Transfer

# Lines of plain text kept: bake's errors come last and are short.
_OTHER_LINES = 200


class Status(StrEnum):
    """The status of a step or stage. `cancelled` is a step that was cut off because another one failed."""

    WAITING = "waiting"
    RUNNING = "running"
    CACHED = "cached"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Step:
    """One step of the build as a person counts them.

    BuildKit may work on it in several vertexes (`COPY --link` with the containerd image store: a copy and a merge);
    they then share a progress group.
    """

    key: str
    name: StepName
    parts: Mapping[str, Vertex] = field(default_factory=dict)
    transfers: Mapping[str, int] = field(default_factory=dict)
    log: StepLog = field(default_factory=StepLog)

    @property
    def status(self) -> Status:
        """The step's status, of those of its parts. Weak parts count only when BuildKit needed them."""
        parts = self.parts.values()
        if self.error:
            return Status.FAILED
        if any(part.error for part in parts):
            return Status.CANCELLED
        if any(part.started is not None and part.completed is None for part in parts):
            return Status.RUNNING
        finished = [part for part in parts if part.completed is not None]
        if not finished or any(part.completed is None for part in parts if not part.weak):
            return Status.WAITING
        return Status.CACHED if all(part.cached for part in finished) else Status.DONE

    @property
    def error(self) -> str:
        """The first error that is the step's own; being cancelled because of another one is none."""
        own = (part.error for part in self.parts.values() if part.error and not is_cancelled(part.error))
        return next(own, "")

    @property
    def bytes(self) -> int:
        """Bytes transferred so far: context sent, layers pulled."""
        return sum(self.transfers.values())

    @property
    def span(self) -> tuple[float, float | None] | None:
        """When it began and ended (None: it is running); None when it has not begun."""
        begun = [part for part in self.parts.values() if part.started is not None]
        if not begun:
            return None
        ends = [part.completed for part in begun if part.completed is not None]
        start = min(part.started for part in begun if part.started is not None)
        return start, max(ends) if len(ends) == len(begun) else None


@dataclass(frozen=True)
class BuildState:
    """All that the stream has reported so far. `fresh` is only what the last event completed: (step key, line)."""

    steps: Mapping[str, Step] = field(default_factory=dict)
    other: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fresh: tuple[tuple[str, str], ...] = ()
    started: float | None = None
    now: float = 0.0
    clipped: str = ""
    events: int = 0

    @property
    def seconds(self) -> float:
        """Seconds from the first to the latest event."""
        return max(0.0, self.now - self.started) if self.started is not None else 0.0

    @property
    def failed(self) -> Step | None:
        """The step that failed first, by its end."""
        failed = [step for step in self.steps.values() if step.status is Status.FAILED]
        return min(failed, key=lambda step: (step.span and step.span[1]) or self.now, default=None)

    @property
    def counts(self) -> tuple[int, int, int]:
        """(cached, ended, all) steps of the Dockerfile.

        Not counted: what BuildKit does around them (context, export), and FROM, which it reports as cached or not by
        chance (recorded: both for the same local base).
        """
        real = [s for s in self.steps.values() if s.name.is_step and not s.name.instruction.startswith("FROM ")]
        found = [step.status for step in real]
        ended = sum(status in {Status.CACHED, Status.DONE} for status in found)
        return found.count(Status.CACHED), ended, len(real)


def is_cancelled(error: str) -> bool:
    """Whether an error only reports that the build was stopped elsewhere (BuildKit ends such errors so)."""
    return error.endswith("context canceled")


def apply(state: BuildState, event: Event | Other, redact: Callable[[str], str] = str) -> BuildState:
    """Return the state after `event`; every text in it has gone through `redact`."""
    if isinstance(event, Other):
        return replace(state, other=(*state.other, redact(event.text))[-_OTHER_LINES:], fresh=())
    steps = dict(state.steps)
    owner = {digest: step.key for step in steps.values() for digest in step.parts}
    for vertex in event.vertexes:
        key = owner.setdefault(vertex.digest, vertex.group or vertex.digest)
        steps[key] = _with_vertex(steps.get(key) or _nameless(key), vertex, redact)
    for transfer in event.transfers:
        key = owner.get(transfer.vertex, transfer.vertex)
        step = steps.get(key) or _nameless(key)
        steps[key] = replace(step, transfers={**step.transfers, transfer.name: transfer.current})
    fresh: list[tuple[str, str]] = []
    for chunk in event.chunks:
        key = owner.get(chunk.vertex, chunk.vertex)
        step = steps.get(key) or _nameless(key)
        log, lines = add_chunk(step.log, chunk.stream, chunk.data, redact)
        steps[key] = replace(step, log=log)
        fresh += [(key, line) for line in lines]
    for key in dict.fromkeys(owner[vertex.digest] for vertex in event.vertexes if vertex.completed is not None):
        steps[key], lines = _flushed(steps[key], redact)
        fresh += [(key, line) for line in lines]
    times = [time for time in _times(event) if time is not None]
    return BuildState(
        steps=steps,
        other=state.other,
        warnings=(*state.warnings, *(redact(text) for text in event.warnings)),
        fresh=tuple(fresh),
        started=min([*times, *([] if state.started is None else [state.started])], default=None),
        now=max([state.now, *times]),
        clipped=state.clipped or next((note for _, line in fresh if (note := clip_note(line))), ""),
        events=state.events + 1,
    )


def close(state: BuildState, redact: Callable[[str], str] = str) -> BuildState:
    """Return the state at the end of the stream: last lines that had no newline are in `fresh`."""
    pairs = {key: _flushed(step, redact) for key, step in state.steps.items()}
    fresh = tuple((key, line) for key, (_, lines) in pairs.items() for line in lines)
    return replace(state, steps={key: step for key, (step, _) in pairs.items()}, fresh=fresh)


def _nameless(key: str) -> Step:
    return Step(key, parse_name(""))


def _with_vertex(step: Step, vertex: Vertex, redact: Callable[[str], str]) -> Step:
    name = step.name if step.name.text else parse_name(redact(vertex.group_name or vertex.name))
    old = step.parts.get(vertex.digest)
    if vertex.started is None and old and old.started is not None:
        vertex = old  # BuildKit announces a vertex again without its times; it has not gone back
    else:
        vertex = replace(vertex, name=redact(vertex.name), error=redact(vertex.error))
    return replace(step, name=name, parts={**step.parts, vertex.digest: vertex})


def _flushed(step: Step, redact: Callable[[str], str]) -> tuple[Step, tuple[str, ...]]:
    log, lines = flush(step.log, redact)
    return (replace(step, log=log), lines) if lines else (step, ())


def _times(event: Event) -> Iterable[float | None]:
    for vertex in event.vertexes:
        yield vertex.started
        yield vertex.completed
    timed: tuple[Transfer | Chunk, ...] = (*event.transfers, *event.chunks)
    yield from (item.time for item in timed)
