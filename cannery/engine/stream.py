"""What a Docker engine streams while it pushes, pulls or loads: lines of JSON, folded into a small state. Pure.

An engine answers 200 and then reports failures *in* the stream.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIGEST = re.compile(r"[dD]igest: (sha256:[0-9a-f]{64})")
_LOADED = re.compile(r"Loaded image(?: ID)?: (\S+)")
# Statuses of a layer that moves no more.
_DONE = frozenset({"Pushed", "Layer already exists", "Pull complete", "Already exists", "Download complete"})


# What a user has to know of an engine that finds no host: it does not have the shell's variables.
ENGINE_PROXY = (
    "the engine has a proxy and a name service of its own, whatever this shell has: `docker info` shows its proxies, "
    "which its daemon.json (`proxies`) or its service's environment sets"
)


class Trouble(StrEnum):
    """What kind of failure an engine reports: who can repair it, and whether another try may help."""

    BUSY = "busy"
    SERVER = "server"
    SPACE = "space"
    DENIED = "denied"
    DAMAGED = "damaged"
    ABSENT = "absent"
    ARCHIVE = "archive"
    REFUSED = "refused"
    PASSING = "passing"


MAY_PASS = frozenset({Trouble.PASSING, Trouble.BUSY, Trouble.SERVER})
# The first match counts. What matches nothing may pass: failures of networks have many texts.
TROUBLES: tuple[tuple[Trouble, str], ...] = (
    (Trouble.BUSY, r"toomanyrequests|too many requests|rate limit|\b429\b"),
    # The disk that is full may be the registry's, and not this host's.
    (Trouble.SERVER, r"http (?:status: )?5\d\d\b|status (?:code|from) .*: 5\d\d\b|insufficient storage"),
    (Trouble.SPACE, r"no space left on device|disk quota exceeded"),
    (
        Trouble.DENIED,
        (
            r"unauthorized|authentication required|no basic auth credentials|\bdenied\b|incorrect username or password"
            r"|insufficient_scope|forbidden|\b40[13]\b|login attempt to"
        ),
    ),
    (
        Trouble.DAMAGED,
        (
            r"verification failed for digest|unexpected commit digest|does not match digest|blob unknown|unknown blob"
            r"|layers from manifest don't match"
        ),
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
            r"|certificate|x509|no such host|fail to parse 'manifest\.json'|manifest_invalid"
            r"|no matching manifest for|does not match the specified platform|does not provide the specified"
        ),
    ),
)


@dataclass(frozen=True)
class Moving:
    """A layer on its way: what the engine reports of it, bytes so far and in all (0: unknown)."""

    status: str
    current: int = 0
    total: int = 0

    @property
    def done(self) -> bool:
        """Whether the engine is done with it."""
        is_loaded = self.status == "Loading layer" and 0 < self.total <= self.current  # the last report of a load
        return self.status in _DONE or self.status.startswith("Mounted from") or is_loaded


@dataclass(frozen=True)
class StreamState:
    """What a stream has reported so far: layers by short id, the digest and the names at its end, its error."""

    layers: Mapping[str, Moving] = field(default_factory=dict)
    digest: str = ""
    loaded: tuple[str, ...] = ()
    error: str = ""

    @property
    def moved(self) -> tuple[int, int]:
        """Bytes so far and in all, of the layers whose sizes are known."""
        known = [layer for layer in self.layers.values() if layer.total]
        return sum(min(layer.current, layer.total) for layer in known), sum(layer.total for layer in known)

    @property
    def counts(self) -> tuple[int, int]:
        """Layers that are done, and all."""
        return sum(layer.done for layer in self.layers.values()), len(self.layers)


def apply_line(state: StreamState, line: bytes) -> StreamState:
    """Return the state after one line. What is no JSON object is an error: engines write nothing else."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        return replace(state, error=state.error or f"the engine's stream is broken: {line[:80]!r}")
    if error := _error(event):
        return replace(state, error=state.error or error)
    return _progress(state, event)


def trouble_of(message: str) -> Trouble:
    """Return what kind of failure an engine's message reports."""
    low = message.lower()
    return next((kind for kind, pattern in TROUBLES if re.search(pattern, low)), Trouble.PASSING)


def _progress(state: StreamState, event: Mapping[str, Any]) -> StreamState:
    aux = event.get("aux")
    if isinstance(aux, dict) and str(aux.get("Digest", "")).startswith("sha256:"):
        return replace(state, digest=str(aux["Digest"]))
    text = str(event.get("status") or event.get("stream") or "")
    if found := _DIGEST.search(text):
        state = replace(state, digest=found[1])
    if found := _LOADED.search(text):
        state = replace(state, loaded=(*state.loaded, found[1]))
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
    if before and not total:  # the last report of a layer has no numbers: its size is as before
        total = before.total
        current = total if text in _DONE else max(current, before.current)
    return Moving(text, current, max(total, current) if total else total)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


# After the engine's own message, by the client's version: "See 'docker run --help'." or "Run '…' for more information".
_HELP = re.compile(r"(?:See|Run) 'docker[^']* --help'.*")
_FROM = re.compile(r"(?:docker: )?(?:Error response from daemon: )?")


def client_words(error: str, status: int) -> str:
    """Return the last line of a client's standard error that is a message; its status where there is none."""
    lines = [line.strip() for line in error.splitlines()]
    messages = [line for line in lines if line and not _HELP.fullmatch(line)]
    return _FROM.sub("", messages[-1], count=1) if messages else f"status {status}"
