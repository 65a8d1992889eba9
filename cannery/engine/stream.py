"""What a Docker engine streams while it pushes, pulls or loads: lines of JSON, folded into a small state. Pure.

An engine answers 200 and then tells of failures *in* the stream; whoever does not look there counts them as done.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A line longer than this is no event of an engine's.
MAX_LINE = 1 << 20
_PUSHED = re.compile(r"digest: (sha256:[0-9a-f]{64})")
_PULLED = re.compile(r"Digest: (sha256:[0-9a-f]{64})")
_LOADED = re.compile(r"Loaded image(?: ID)?: (\S+)")
# Statuses of a layer that is done with; what has one of them moves no more.
_DONE = frozenset({"Pushed", "Layer already exists", "Pull complete", "Already exists", "Download complete"})


class Trouble(StrEnum):
    """What kind of failure an engine tells of: who could mend it, and whether another try may help."""

    DENIED = "denied"
    ABSENT = "absent"
    PLATFORM = "platform"
    SPACE = "space"
    ARCHIVE = "archive"
    REFUSED = "refused"
    PASSING = "passing"


# First match wins; what none of them matches is taken for one that may pass: a registry that flakes has many words.
TROUBLES: tuple[tuple[Trouble, str], ...] = (
    (Trouble.SPACE, r"no space left on device|disk quota exceeded|insufficient storage"),
    (Trouble.PASSING, r"toomanyrequests|too many requests|\b429\b"),
    (
        Trouble.DENIED,
        (
            r"unauthorized|authentication required|no basic auth credentials|\bdenied\b|incorrect username or password"
            r"|insufficient_scope|forbidden|\b40[13]\b|login attempt to"
        ),
    ),
    (
        Trouble.PLATFORM,
        r"no matching manifest for|does not match the specified platform|does not provide the specified",
    ),
    (
        Trouble.ABSENT,
        r"manifest unknown|manifest for \S+ not found|not found: |repository name not known|does not exist",
    ),
    (
        Trouble.ARCHIVE,
        (
            r"invalid diffid|invalid tar header|unexpected eof.*archive|archive/tar|invalid manifest|unrecognized image"
            r"|manifest\.json: no such file|invalid checksum digest|docker-import-\d+/\S+: no such file"
        ),
    ),
    (
        Trouble.REFUSED,
        (
            r"invalid reference format|manifest invalid|name invalid|unsupported|tag .*immutable|http response to https"
            r"|certificate|x509|no such host"
        ),
    ),
)


@dataclass(frozen=True)
class Moving:
    """One layer on its way: the engine's short id of it, what it says of it, bytes so far and in all (0: unknown)."""

    status: str
    current: int = 0
    total: int = 0

    @property
    def done(self) -> bool:
        """Whether the engine is done with it."""
        is_loaded = self.status == "Loading layer" and 0 < self.total <= self.current  # an engine says no more of it
        return self.status in _DONE or self.status.startswith("Mounted from") or is_loaded


@dataclass(frozen=True)
class StreamState:
    """All that a stream has said: layers by id, the digest and the names that it ends with, and its error."""

    layers: Mapping[str, Moving] = field(default_factory=dict)
    digest: str = ""
    loaded: tuple[str, ...] = ()
    error: str = ""
    events: int = 0

    @property
    def moved(self) -> tuple[int, int]:
        """Bytes so far and in all, of the layers whose sizes are known."""
        known = [layer for layer in self.layers.values() if layer.total]
        return sum(min(layer.current, layer.total) for layer in known), sum(layer.total for layer in known)

    @property
    def counts(self) -> tuple[int, int]:
        """Layers that are done, and all."""
        return sum(layer.done for layer in self.layers.values()), len(self.layers)


class LineBuffer:
    """Bytes in, whole lines out: an engine's chunks end anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give the lines that are whole by now. Raises `ValueError` for a line without end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise ValueError("a line without end")
        yield from (line for line in lines if line.strip())

    def rest(self) -> Iterator[bytes]:
        """Give what stands behind the last line end."""
        if self._rest.strip():
            yield self._rest
        self._rest = b""


def apply_line(state: StreamState, line: bytes) -> StreamState:
    """Return the state after one line. What is no JSON object is an error, since engines write nothing else."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        return replace(state, error=state.error or f"the engine's stream is broken: {line[:80]!r}")
    return _apply(replace(state, events=state.events + 1), event)


def _apply(state: StreamState, event: Mapping[str, Any]) -> StreamState:
    error = _error(event)
    if error:
        return replace(state, error=state.error or error)
    aux = event.get("aux")
    if isinstance(aux, dict) and str(aux.get("Digest", "")).startswith("sha256:"):
        return replace(state, digest=str(aux["Digest"]))
    text = str(event.get("status") or event.get("stream") or "")
    found = _PUSHED.search(text) or _PULLED.search(text)
    state = replace(state, digest=found[1]) if found else state
    loaded = _LOADED.search(text)
    state = replace(state, loaded=(*state.loaded, loaded[1])) if loaded else state
    name = event.get("id")
    if not isinstance(name, str) or not name or text.startswith(("Pulling from", "The push refers")):
        return state
    return replace(state, layers={**state.layers, name: _moving(state.layers.get(name), text, event)})


def _error(event: Mapping[str, Any]) -> str:
    detail = event.get("errorDetail")
    message = detail.get("message") if isinstance(detail, dict) else None
    return str(message or event.get("error") or "").strip()


def _moving(before: Moving | None, text: str, event: Mapping[str, Any]) -> Moving:
    detail = event.get("progressDetail")
    numbers = detail if isinstance(detail, dict) else {}
    current, total = (_number(numbers.get(key)) for key in ("current", "total"))
    if before and not total:  # the last word on a layer has no numbers: it is as large as it was
        total = before.total
        current = total if text in _DONE else max(current, before.current)
    return Moving(text, current, max(total, current) if total else total)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def trouble_of(message: str) -> Trouble:
    """Return what kind of failure an engine's message tells of."""
    low = message.lower()
    return next((kind for kind, pattern in TROUBLES if re.search(pattern, low)), Trouble.PASSING)
