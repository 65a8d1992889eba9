"""The progress of a build as a frozen value: `apply(state, event) -> state`. The only clock is that of the events.

The events are those of `docker buildx bake --progress=rawjson`: BuildKit's client.SolveStatus (vertexes, statuses,
logs, warnings). buildx 0.13 prints each over many lines, later versions print one a line. Both also print plain text
(errors, warnings of bake), as recorded in tests/unit/data. A key of a wrong type counts as absent, so that a newer
BuildKit does not stop a build.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


T = TypeVar("T")
Item = dict[str, Any]


def read_line(pending: str, line: str) -> tuple[str, tuple[Item | str, ...]]:
    """Read one more line, without its newline; return the open part of an object, and what the line completed.

    `pending` is "" at the start. A part that is open at the end of the stream is half an object: drop it.
    """
    if not pending:
        event = _parse(line) if line.startswith("{") else None
        if event is not None:
            return "", (event,)
        return (line, ()) if line.rstrip() == "{" else ("", (line,) if line.strip() else ())
    text = f"{pending}\n{line}"
    if line.rstrip() == "}":
        event = _parse(text)
        return "", (event,) if event is not None else tuple(text.split("\n"))
    if line.startswith((" ", "\t")) or not line:
        return text, ()
    # The object was cut off, and this line is something else: the object is lost.
    return read_line("", line)


def _parse(text: str) -> Item | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def items(value: Item, key: str) -> list[Item]:
    """Return the objects in the list at `key`."""
    found: list[Any] = get(value, key, [])
    return [item for item in found if isinstance(item, dict)]


def get(item: Item, key: str, default: T) -> T:
    """Return the value of a key if it has the type of `default`, else `default`."""
    value = item.get(key)
    return value if type(value) is type(default) else default


def data(item: Item, key: str) -> bytes:
    """Return the bytes of a base64 text, b"" for a broken one."""
    try:
        return base64.b64decode(get(item, key, ""))
    except ValueError:
        return b""


def seconds(item: Item, key: str) -> float | None:
    """Return an RFC 3339 time as seconds since the epoch; None for absent, broken and Go's zero time (year 1)."""
    try:
        moment = datetime.fromisoformat(get(item, key, ""))
    except ValueError:
        return None
    return moment.timestamp() if moment.year > 1 and moment.tzinfo is not None else None


# Lines of plain text kept: bake's errors come last and are short.
_OTHER_LINES = 200
# Lines of a step's output kept for the error message.
_KEPT_LINES = 50
# A line longer than this many bytes is cut: a program that never writes a newline must not fill the memory.
_LONGEST = 256 * 1024
# Terminal escapes and control characters: neither a file nor a message may have them.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b-\x1f\x7f]"
)

_DEFINITION = "[internal] load build definition"
# How BuildKit's error ends for a step that it stops because another one has failed.
_CANCELLED = "context canceled"
# The name of a step, as the Dockerfile frontend and bake write it: `[stage 2/3] RUN …`, `[2/3] RUN …` (the only stage),
# `[linux/arm64 stage 2/3] …` (several platforms), `[internal] load build context`, `exporting to image`.
_HEAD = re.compile(r"\[([^\]]*)\]\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"\d+/\d+")
_PLATFORM = re.compile(r"[a-z0-9]+/[a-z0-9/]+(->[a-z0-9/]+)?")
# BuildKit's own steps, by the first words of their names. The first match counts.
_AROUND = (
    ("load metadata", "base image"),
    ("load build context", "context"),
    ("exporting cache", "cache"),
    ("importing cache", "cache"),
    ("exporting", "export"),
    ("pushing", "export"),
    ("sending tarball", "export"),
)
SETUP = "setup"


class Status(StrEnum):
    """The status of a step or stage. A step is `cancelled` if it was stopped because another one failed."""

    WAITING = "waiting"
    RUNNING = "running"
    CACHED = "cached"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({Status.CACHED, Status.DONE, Status.FAILED, Status.CANCELLED})


@dataclass(frozen=True)
class StepName:
    """A step's name in parts. `is_step` is false for BuildKit's own steps, whose `stage` is a word for them."""

    text: str
    stage: str
    instruction: str
    is_step: bool = False


def parse_name(text: str) -> StepName:
    """Parse the name of a vertex. An unknown form is a step of the stage "setup"."""
    match = _HEAD.match(text)
    words = match[1].split() if match else []
    instruction = " ".join((match[2] if match else text).split())
    if words and _NUMBER.fullmatch(words[-1]):
        names = [word for word in words[:-1] if not _PLATFORM.fullmatch(word)]
        return StepName(text, names[-1] if names else "image", instruction, is_step=True)
    around = next((word for start, word in _AROUND if instruction.startswith(start)), SETUP)
    return StepName(text, "base image" if "auth" in words else around, instruction)


@dataclass(frozen=True)
class Part:
    """The present state of one vertex of BuildKit's graph. Times are seconds since the epoch, None if not yet."""

    started: float | None = None
    completed: float | None = None
    cached: bool = False
    error: str = ""
    weak: bool = False


@dataclass(frozen=True)
class Step:
    """One step of the build as a user counts them.

    BuildKit may make several vertexes of it (`COPY --link` with containerd's image store: a copy and a merge), which
    share a progress group. `parts` are by digest, `transfers` are bytes by name. `tail` are its last lines of output,
    and `open` has the bytes after the last newline of each stream.
    """

    name: StepName = field(default_factory=lambda: parse_name(""))
    parts: Mapping[str, Part] = field(default_factory=dict)
    transfers: Mapping[str, int] = field(default_factory=dict)
    tail: tuple[str, ...] = ()
    open: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The step's status, from its parts. Weak parts count only if BuildKit needed them."""
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
        """The first error of the step itself, and not of one that was stopped because of another step."""
        errors = (part.error for part in self.parts.values())
        return next((error for error in errors if error and not error.endswith(_CANCELLED)), "")

    @property
    def bytes(self) -> int:
        """Bytes transferred so far: context sent, layers pulled."""
        return sum(self.transfers.values())

    @property
    def span(self) -> tuple[float, float | None] | None:
        """When it began and ended (None: it is running); None if it has not begun."""
        begun = [part for part in self.parts.values() if part.started is not None]
        if not begun:
            return None
        ends = [part.completed for part in begun if part.completed is not None]
        start = min(part.started for part in begun if part.started is not None)
        return start, max(ends) if len(ends) == len(begun) else None


@dataclass(frozen=True)
class BuildState:
    """All that the stream has reported so far.

    `fresh` are the lines that the last event adds to the log, as (stage, text). `other` is the output of bake itself.
    """

    steps: Mapping[str, Step] = field(default_factory=dict)
    other: tuple[str, ...] = ()
    fresh: tuple[tuple[str, str], ...] = ()
    started: float | None = None
    now: float = 0.0
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
    def joined(self) -> bool:
        """Whether the step that failed began before this build: it belongs to an earlier build that was ending."""
        span = self.failed.span if self.failed else None
        # Each build begins with this step, which also has times of the engine's clock.
        loaded = [step.span[0] for step in self.steps.values() if step.span and step.name.text.startswith(_DEFINITION)]
        return span is not None and bool(loaded) and span[0] < min(loaded)

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of (cached, ended, all) steps of the Dockerfile.

        BuildKit's own steps (context, export) do not count. Nor does FROM, which it reports as cached or not at random.
        """
        real = [s for s in self.steps.values() if s.name.is_step and not s.name.instruction.startswith("FROM ")]
        found = [step.status for step in real]
        ended = sum(status in {Status.CACHED, Status.DONE} for status in found)
        return found.count(Status.CACHED), ended, len(real)


def apply(state: BuildState, event: Item | str, redact: Callable[[str], str] = str) -> BuildState:
    """Return the state after `event`, an object or text of `read_line`. All texts in it are passed through `redact`."""
    if isinstance(event, str):
        text = redact(event)
        return replace(state, other=(*state.other, text)[-_OTHER_LINES:], fresh=(("bake", text),))
    steps = dict(state.steps)
    vertexes, transfers, chunks = (items(event, key) for key in ("vertexes", "statuses", "logs"))
    for item in vertexes:
        key = _owner(steps, get(item, "digest", ""), get(get(item, "progressGroup", {}), "id", ""))
        steps[key] = _with_part(steps.get(key, Step()), item, redact)
    for item in transfers:
        key = _owner(steps, get(item, "vertex", ""))
        step = steps.get(key, Step())
        steps[key] = replace(step, transfers={**step.transfers, get(item, "id", ""): get(item, "current", 0)})
    fresh = _begun(state.steps, steps)
    for item in chunks:
        key = _owner(steps, get(item, "vertex", ""))
        steps[key], lines = _printed(steps.get(key, Step()), get(item, "stream", 0), data(item, "data"), redact)
        fresh += lines
    for item in vertexes:
        if seconds(item, "completed") is not None:
            key = _owner(steps, get(item, "digest", ""))
            steps[key], lines = _flushed(steps[key], redact)
            fresh += lines
    fresh += _ended(state.steps, steps)
    fresh += [("warning", redact(data(item, "short").decode(errors="replace"))) for item in items(event, "warnings")]
    found = (seconds(i, key) for i in (*vertexes, *transfers, *chunks) for key in ("started", "completed", "timestamp"))
    times = [time for time in found if time is not None]
    return BuildState(
        steps=steps,
        other=state.other,
        fresh=tuple(fresh),
        started=min([*times, *([] if state.started is None else [state.started])], default=None),
        now=max([state.now, *times]),
        events=state.events + 1,
    )


def close(state: BuildState, redact: Callable[[str], str] = str) -> BuildState:
    """Return the state at the end of the stream: `fresh` has the last lines, which had no newline."""
    pairs = {key: _flushed(step, redact) for key, step in state.steps.items()}
    fresh = tuple(line for _, lines in pairs.values() for line in lines)
    return replace(state, steps={key: step for key, (step, _) in pairs.items()}, fresh=fresh)


def _owner(steps: Mapping[str, Step], digest: str, group: str = "") -> str:
    """Return the key of the step that has the vertex `digest`, or the one that it gets."""
    return next((key for key, step in steps.items() if digest in step.parts), group or digest)


def _with_part(step: Step, item: Item, redact: Callable[[str], str]) -> Step:
    group: Item = get(item, "progressGroup", {})
    digest = get(item, "digest", "")
    name = step.name if step.name.text else parse_name(redact(get(group, "name", "") or get(item, "name", "")))
    old = step.parts.get(digest)
    part = Part(
        started=seconds(item, "started"),
        completed=seconds(item, "completed"),
        cached=get(item, "cached", default=False),
        error=redact(get(item, "error", "")),
        weak=get(group, "weak", default=False),
    )
    if part.started is None and old and old.started is not None:
        part = old  # BuildKit may send a vertex again without its times
    return replace(step, name=name, parts={**step.parts, digest: part})


def _printed(step: Step, stream: int, chunk: bytes, redact: Callable[[str], str]) -> tuple[Step, list[tuple[str, str]]]:
    """Return the step with a chunk of its output, and the lines that the chunk completed.

    Each stream has its own open line, because stderr may arrive within a line of stdout.
    """
    *complete, left = (step.open.get(stream, b"") + chunk).split(b"\n")
    if len(left) > _LONGEST:
        complete, left = [*complete, left], b""
    lines = [_line(redact(raw.decode(errors="replace"))) for raw in complete]
    step = replace(step, tail=(*step.tail, *lines)[-_KEPT_LINES:], open={**step.open, stream: left})
    return step, [(step.name.stage, line) for line in lines]


def _line(text: str) -> str:
    """Return a line as a terminal would show it at the end: the last state of a progress bar."""
    states = [_CONTROL.sub("", part).rstrip() for part in text.split("\r")]
    return next((part for part in reversed(states) if part), "")


def _flushed(step: Step, redact: Callable[[str], str]) -> tuple[Step, list[tuple[str, str]]]:
    """Return the step with its open lines ended, and these lines."""
    fresh: list[tuple[str, str]] = []
    for stream in [stream for stream, left in step.open.items() if left]:
        step, lines = _printed(step, stream, b"\n", redact)
        fresh += lines
    return step, fresh


def _begun(before: Mapping[str, Step], steps: Mapping[str, Step]) -> list[tuple[str, str]]:
    return [
        (step.name.stage, f"--- {step.name.instruction}")
        for key, step in steps.items()
        if step.status is not Status.WAITING and before.get(key, Step()).status is Status.WAITING
    ]


def _ended(before: Mapping[str, Step], steps: Mapping[str, Step]) -> list[tuple[str, str]]:
    return [
        (step.name.stage, f"--- {step.status}" + (f": {step.error}" if step.error else ""))
        for key, step in steps.items()
        if step.status in ENDED and step.status is not before.get(key, Step()).status
    ]
