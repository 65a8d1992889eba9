"""What a build is doing, as a frozen value: `apply(state, event) -> state`, no clock but the events' own times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.build.rawjson import Chunk, Event, Other, Vertex
from cannery.build.steplog import StepLog, add_chunk, clip_note, flush
from cannery.build.stepname import StepName, parse_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cannery.build.rawjson import Transfer

# Lines of plain text kept: bake's errors come last and are short.
_OTHER_LINES = 200


class Status(StrEnum):
    """Where a step or stage stands. `cancelled` is a step that was cut off because another one failed."""

    WAITING = "waiting"
    RUNNING = "running"
    CACHED = "cached"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


Intervals = tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class Step:
    """One step of the build as a person counts them.

    BuildKit may work on it in several vertexes (`COPY --link` with the containerd image store: a copy and a merge);
    they then share a progress group. A vertex may also run several times, hence intervals.
    """

    key: str
    name: StepName
    parts: tuple[Vertex, ...] = ()
    intervals: Intervals = ()
    transfers: tuple[tuple[str, int, int], ...] = ()
    log: StepLog = field(default_factory=StepLog)

    @property
    def status(self) -> Status:
        """The step's status, of those of its parts. Weak parts count only when BuildKit needed them."""
        if self.error:
            return Status.FAILED
        if any(part.error for part in self.parts):
            return Status.CANCELLED
        if any(part.started is not None and part.completed is None for part in self.parts):
            return Status.RUNNING
        finished = [part for part in self.parts if part.completed is not None]
        strong = [part for part in self.parts if not part.weak]
        if not finished or any(part.completed is None for part in strong):
            return Status.WAITING
        return Status.CACHED if all(part.cached for part in finished) else Status.DONE

    @property
    def error(self) -> str:
        """The first error that is the step's own; being cancelled for another one's sake is none."""
        return next((p.error for p in self.parts if p.error and not is_cancelled(p.error)), "")

    @property
    def bytes(self) -> int:
        """Bytes transferred so far: context sent, layers pulled."""
        return sum(current for _name, current, _total in self.transfers)

    @property
    def completed(self) -> float | None:
        """When its last part ended; None while any is open."""
        ends = [p.completed for p in self.parts if p.started is not None]
        return max((end for end in ends if end is not None), default=None) if None not in ends else None


@dataclass(frozen=True)
class BuildState:
    """All that the stream has said so far. `fresh` is only what the last event completed: (step key, line)."""

    steps: tuple[Step, ...] = ()
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
        failed = [step for step in self.steps if step.status is Status.FAILED]
        return min(failed, key=lambda step: step.completed or self.now, default=None)


def is_cancelled(error: str) -> bool:
    """Whether an error only says that the build was stopped elsewhere (BuildKit ends such errors so)."""
    return error.endswith("context canceled")


def apply(state: BuildState, event: Event | Other, redact: Callable[[str], str] = str) -> BuildState:
    """Return the state after `event`; every text in it has gone through `redact`."""
    if isinstance(event, Other):
        return replace(state, other=(*state.other, redact(event.text))[-_OTHER_LINES:], fresh=())
    steps = {step.key: step for step in state.steps}
    owner = {part.digest: step.key for step in state.steps for part in step.parts}
    for vertex in event.vertexes:
        key = owner.setdefault(vertex.digest, vertex.group or vertex.digest)
        steps[key] = _with_vertex(steps.get(key), key, vertex, redact)
    for transfer in event.transfers:
        key = owner.get(transfer.vertex, transfer.vertex)
        steps[key] = _with_transfer(steps.get(key) or _nameless(key), transfer)
    fresh: list[tuple[str, str]] = []
    for chunk in event.chunks:
        key = owner.get(chunk.vertex, chunk.vertex)
        step = steps.get(key) or _nameless(key)
        log, lines = add_chunk(step.log, chunk.stream, chunk.data, redact)
        steps[key] = replace(step, log=log)
        fresh += [(key, line) for line in lines]
    for digest in dict.fromkeys(vertex.digest for vertex in event.vertexes if vertex.completed is not None):
        steps[owner[digest]], lines = _flushed(steps[owner[digest]], redact)
        fresh += [(owner[digest], line) for line in lines]
    times = [time for time in _times(event) if time is not None]
    first = [time for time in (state.started, min(times, default=None)) if time is not None]
    return BuildState(
        steps=tuple(steps.values()),
        other=state.other,
        warnings=(*state.warnings, *(redact(text) for text in event.warnings)),
        fresh=tuple(fresh),
        started=min(first, default=None),
        now=max([state.now, *times]),
        clipped=state.clipped or next((note for _key, line in fresh if (note := clip_note(line))), ""),
        events=state.events + 1,
    )


def close(state: BuildState, redact: Callable[[str], str] = str) -> BuildState:
    """Return the state at the end of the stream: last lines that had no newline are in `fresh`."""
    pairs = [_flushed(step, redact) for step in state.steps]
    fresh = tuple((step.key, line) for step, lines in pairs for line in lines)
    return replace(state, steps=tuple(step for step, _lines in pairs), fresh=fresh)


def counts(steps: Iterable[Step]) -> tuple[int, int]:
    """(cached, total) steps of the Dockerfile.

    Not counted: what BuildKit does around them (context, export), and FROM, which it reports as cached or not by
    chance (recorded: both for the same local base).
    """
    real = [step for step in steps if step.name.number and not step.name.instruction.startswith("FROM ")]
    return sum(step.status is Status.CACHED for step in real), len(real)


def settled(state: BuildState) -> BuildState:
    """Return the state of a build that succeeded: steps that never ran were another target's too, and are dropped."""
    return replace(state, steps=tuple(step for step in state.steps if step.status is not Status.WAITING))


def busy_seconds(intervals: Iterable[tuple[float, float | None]], now: float) -> float:
    """Seconds covered by at least one of `intervals`; an open one lasts until `now`."""
    total, reached = 0.0, float("-inf")
    for start, stop in sorted(intervals, key=lambda interval: interval[0]):
        end = max(start, now if stop is None else stop)
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def layers_new_reused(before: Iterable[str], after: Sequence[str]) -> tuple[int, int]:
    """(new, reused) layers of an image: `after` are its diff ids, `before` those of every image seen earlier."""
    known = set(before)
    reused = sum(layer in known for layer in after)
    return len(after) - reused, reused


def _nameless(key: str) -> Step:
    return Step(key, parse_name(""))


def _with_vertex(step: Step | None, key: str, vertex: Vertex, redact: Callable[[str], str]) -> Step:
    name = redact(vertex.group_name or vertex.name)
    step = step or Step(key, parse_name(name))
    vertex = replace(vertex, name=name, error=redact(vertex.error))
    old = next((part for part in step.parts if part.digest == vertex.digest), None)
    if old is None:
        parts = (*step.parts, vertex)
    elif vertex.started is None and old.started is not None:
        parts = step.parts  # BuildKit announces a vertex again without its times; it has not gone back
    else:
        parts = tuple(vertex if part is old else part for part in step.parts)
    intervals = dict(step.intervals)
    if vertex.started is not None:
        # A vertex that starts anew without having ended was given up: close what is open at that moment.
        gone = old.started if old and old.started != vertex.started else None
        if gone is not None and intervals.get(gone, 0.0) is None:
            intervals[gone] = vertex.started
        intervals[vertex.started] = vertex.completed
    named = step.name if step.name.text else parse_name(name)
    return replace(step, name=named, parts=parts, intervals=tuple(intervals.items()))


def _with_transfer(step: Step, transfer: Transfer) -> Step:
    known = {name: (name, current, total) for name, current, total in step.transfers}
    known[transfer.name] = (transfer.name, transfer.current, transfer.total)
    return replace(step, transfers=tuple(known.values()))


def _flushed(step: Step, redact: Callable[[str], str]) -> tuple[Step, tuple[str, ...]]:
    log, lines = flush(step.log, redact)
    return (replace(step, log=log), lines) if lines else (step, ())


def _times(event: Event) -> Iterable[float | None]:
    for vertex in event.vertexes:
        yield vertex.started
        yield vertex.completed
    timed: tuple[Transfer | Chunk, ...] = (*event.transfers, *event.chunks)
    yield from (item.time for item in timed)
