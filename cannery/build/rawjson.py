"""The stream of `docker buildx bake --progress=rawjson`, line by line, as frozen events.

The objects are BuildKit's client.SolveStatus (vertexes, statuses, logs, warnings). buildx 0.13 prints them indented
over many lines, later ones print one a line, and both mix plain text in (errors, warnings of bake), as recorded in
tests/unit/data. Unknown keys are ignored, a key of the wrong type reads as absent: a newer BuildKit must not end a
build.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Vertex:
    """One node of the build graph as it stands now. Times are seconds since the epoch, None when not yet."""

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
    """Bytes moved for a vertex: context sent, layer pulled. `total` is 0 when unknown."""

    vertex: str
    name: str
    current: int
    total: int
    time: float | None


@dataclass(frozen=True)
class Chunk:
    """A piece of a step's output, cut anywhere, also inside a line or a character. Stream 1 is stdout, 2 stderr."""

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
    """A line of the stream that is not JSON: what bake itself says."""

    text: str


def read_line(pending: str, line: str) -> tuple[str, tuple[Event | Other, ...]]:
    """Read one more line (no newline at its end); return what is still open and the events that it completed.

    `pending` is "" at the start. What is pending at the end of the stream is half an object: drop it.
    """
    if not pending:
        if not line.startswith("{"):
            return "", ((Other(line),) if line.strip() else ())
        event = _parse(line)
        if event is not None:
            return "", (event,)
        return (line, ()) if line.rstrip() == "{" else ("", (Other(line),))
    if line.rstrip() == "}":
        event = _parse(f"{pending}\n}}")
        return "", (event,) if event is not None else tuple(Other(part) for part in f"{pending}\n{line}".split("\n"))
    if line.startswith((" ", "\t")) or not line:
        return f"{pending}\n{line}", ()
    # The writer was cut off inside an object and something else speaks: the object is lost, the words are not.
    return read_line("", line)


def _parse(text: str) -> Event | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return Event(
        vertexes=tuple(_vertex(item) for item in _items(value, "vertexes")),
        transfers=tuple(_transfer(item) for item in _items(value, "statuses")),
        chunks=tuple(_chunk(item) for item in _items(value, "logs")),
        warnings=tuple(_bytes(item, "short").decode(errors="replace") for item in _items(value, "warnings")),
    )


def _vertex(item: dict[str, Any]) -> Vertex:
    group = item.get("progressGroup")
    group = group if isinstance(group, dict) else {}
    return Vertex(
        digest=_text(item, "digest"),
        name=_text(item, "name"),
        started=_time(item, "started"),
        completed=_time(item, "completed"),
        cached=item.get("cached") is True,
        error=_text(item, "error"),
        group=_text(group, "id"),
        group_name=_text(group, "name"),
        weak=group.get("weak") is True,
    )


def _transfer(item: dict[str, Any]) -> Transfer:
    time = _time(item, "completed") or _time(item, "timestamp") or _time(item, "started")
    return Transfer(_text(item, "vertex"), _text(item, "id"), _int(item, "current"), _int(item, "total"), time)


def _chunk(item: dict[str, Any]) -> Chunk:
    return Chunk(_text(item, "vertex"), _int(item, "stream"), _bytes(item, "data"), _time(item, "timestamp"))


def _items(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = value.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _text(item: dict[str, Any], key: str) -> str:
    value = item.get(key)
    return value if isinstance(value, str) else ""


def _int(item: dict[str, Any], key: str) -> int:
    value = item.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _bytes(item: dict[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(_text(item, key))
    except (binascii.Error, ValueError):
        return b""


def _time(item: dict[str, Any], key: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None for absent, broken and Go's zero time (year 1)."""
    try:
        moment = datetime.fromisoformat(_text(item, key))
    except ValueError:
        return None
    return moment.timestamp() if moment.year > 1 and moment.tzinfo is not None else None
