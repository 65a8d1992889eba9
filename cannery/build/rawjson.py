"""The stream of `docker buildx bake --progress=rawjson`, line by line, as frozen events.

The objects are BuildKit's client.SolveStatus (vertexes, statuses, logs, warnings). buildx 0.13 prints them indented
over many lines, later ones print one a line, and both mix plain text in (errors, warnings of bake), as recorded in
tests/unit/data. Unknown keys are ignored, a key of the wrong type reads as absent: a newer BuildKit must not end a
build.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

T = TypeVar("T")
Item = dict[str, Any]


@dataclass(frozen=True)
class Vertex:
    """One node of the build graph as it is now. Times are seconds since the epoch, None when not yet."""

    digest: str
    name: str
    started: float | None = None
    completed: float | None = None
    cached: bool = False
    error: str = ""
    group: str = ""
    group_name: str = ""
    weak: bool = False


@dataclass(frozen=True)
class Transfer:
    """Bytes moved for a vertex so far: context sent, layer pulled."""

    vertex: str
    name: str
    current: int
    time: float | None


@dataclass(frozen=True)
class Chunk:
    """A piece of a step's output; it may end inside a line or a character. Stream 1 is stdout, 2 stderr."""

    vertex: str
    stream: int
    data: bytes
    time: float | None


@dataclass(frozen=True)
class Event:
    """One SolveStatus."""

    vertexes: tuple[Vertex, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Other:
    """A line of the stream that is not JSON: what bake itself prints."""

    text: str


def read_line(pending: str, line: str) -> tuple[str, tuple[Event | Other, ...]]:
    """Read one more line (no newline at its end); return what is still open and the events that it completed.

    `pending` is "" at the start. What is pending at the end of the stream is half an object: drop it.
    """
    if not pending:
        event = _parse(line) if line.startswith("{") else None
        if event is not None:
            return "", (event,)
        return (line, ()) if line.rstrip() == "{" else ("", (Other(line),) if line.strip() else ())
    whole = f"{pending}\n{line}"
    if line.rstrip() == "}":
        event = _parse(whole)
        return "", (event,) if event is not None else tuple(map(Other, whole.split("\n")))
    if line.startswith((" ", "\t")) or not line:
        return whole, ()
    # The writer was cut off inside an object, and another one writes: the object is lost, its text is not.
    return read_line("", line)


def _parse(text: str) -> Event | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return Event(
        vertexes=tuple(map(_vertex, _items(value, "vertexes"))),
        transfers=tuple(map(_transfer, _items(value, "statuses"))),
        chunks=tuple(
            Chunk(_get(one, "vertex", ""), _get(one, "stream", 0), _bytes(one, "data"), _time(one, "timestamp"))
            for one in _items(value, "logs")
        ),
        warnings=tuple(_bytes(one, "short").decode(errors="replace") for one in _items(value, "warnings")),
    )


def _vertex(item: Item) -> Vertex:
    group: Item = _get(item, "progressGroup", {})
    return Vertex(
        digest=_get(item, "digest", ""),
        name=_get(item, "name", ""),
        started=_time(item, "started"),
        completed=_time(item, "completed"),
        cached=_get(item, "cached", default=False),
        error=_get(item, "error", ""),
        group=_get(group, "id", ""),
        group_name=_get(group, "name", ""),
        weak=_get(group, "weak", default=False),
    )


def _transfer(item: Item) -> Transfer:
    time = _time(item, "completed") or _time(item, "timestamp") or _time(item, "started")
    return Transfer(_get(item, "vertex", ""), _get(item, "id", ""), _get(item, "current", 0), time)


def _items(value: Item, key: str) -> list[Item]:
    found: list[Any] = _get(value, key, [])
    return [item for item in found if isinstance(item, dict)]


def _get(item: Item, key: str, default: T) -> T:
    """Return the value of a key where it has the type of `default`."""
    value = item.get(key)
    return value if type(value) is type(default) else default


def _bytes(item: Item, key: str) -> bytes:
    try:
        return base64.b64decode(_get(item, key, ""))
    except ValueError:
        return b""


def _time(item: Item, key: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None for absent, broken and Go's zero time (year 1)."""
    try:
        moment = datetime.fromisoformat(_get(item, key, ""))
    except ValueError:
        return None
    return moment.timestamp() if moment.year > 1 and moment.tzinfo is not None else None
