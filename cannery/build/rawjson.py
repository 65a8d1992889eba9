"""The stream of `docker buildx bake --progress=rawjson`, line by line, and safe ways to read its objects.

The objects are BuildKit's client.SolveStatus (vertexes, statuses, logs, warnings). buildx 0.13 prints them indented
over many lines, later ones print one a line, and both mix plain text in (errors, warnings of bake), as recorded in
tests/unit/data. A key of the wrong type reads as absent: a newer BuildKit must not end a build.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any, TypeVar

T = TypeVar("T")
Item = dict[str, Any]


def read_line(pending: str, line: str) -> tuple[str, tuple[Item | str, ...]]:
    """Read one more line (no newline at its end); return what is still open, and the objects or texts it completed.

    `pending` is "" at the start. What is pending at the end of the stream is half an object: drop it.
    """
    if not pending:
        event = _parse(line) if line.startswith("{") else None
        if event is not None:
            return "", (event,)
        return (line, ()) if line.rstrip() == "{" else ("", (line,) if line.strip() else ())
    whole = f"{pending}\n{line}"
    if line.rstrip() == "}":
        event = _parse(whole)
        return "", (event,) if event is not None else tuple(whole.split("\n"))
    if line.startswith((" ", "\t")) or not line:
        return whole, ()
    # The writer was cut off inside an object, and another one writes: the object is lost, its text is not.
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
    """Return the value of a key where it has the type of `default`, else `default`."""
    value = item.get(key)
    return value if type(value) is type(default) else default


def data(item: Item, key: str) -> bytes:
    """Return the bytes of a base64 text; none for a broken one."""
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
