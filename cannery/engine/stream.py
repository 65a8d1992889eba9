"""Finds the kind of failure in a message of a Docker engine."""

from __future__ import annotations

import re
from enum import StrEnum

# A hint for an engine that cannot resolve a host name. An engine does not see the variables of the shell.
ENGINE_PROXY = (
    "the engine uses its own proxy and name service, not this shell's: `docker info` shows its proxies, "
    "which its daemon.json (`proxies`) or its service's environment sets"
)


class Trouble(StrEnum):
    """The kinds of failure that an engine reports."""

    BUSY = "busy"
    SERVER = "server"
    SPACE = "space"
    DENIED = "denied"
    DAMAGED = "damaged"
    ABSENT = "absent"
    ARCHIVE = "archive"


# The first match counts.
TROUBLES: tuple[tuple[Trouble, str], ...] = (
    (Trouble.BUSY, r"toomanyrequests|too many requests|rate limit|\b429\b"),
    # Before SPACE: the full disk may be that of the registry, not of this host.
    (Trouble.SERVER, r"http (?:status: )?5\d\d\b|status (?:code|from) .*: 5\d\d\b|insufficient storage"),
    (Trouble.SPACE, r"no space left on device|disk quota exceeded"),
    (Trouble.DENIED, r"unauthorized|authentication required|no basic auth credentials|\bdenied\b|login attempt to"),
    (Trouble.DENIED, r"incorrect username or password|insufficient_scope|forbidden|\b40[13]\b"),
    (Trouble.DAMAGED, r"verification failed for digest|unexpected commit digest|does not match digest|blob unknown"),
    (Trouble.DAMAGED, r"unknown blob|layers from manifest don't match"),
    (Trouble.ABSENT, r"manifest unknown|manifest for \S+ not found|not found: |repository name not known"),
    (Trouble.ABSENT, r"does not exist"),
    (Trouble.ARCHIVE, r"invalid diffid|invalid tar header|unexpected eof.*archive|archive/tar|invalid manifest"),
    (Trouble.ARCHIVE, r"unrecognized image|manifest\.json: no such file|invalid checksum digest"),
    (Trouble.ARCHIVE, r"docker-import-\d+/\S+: no such file"),
)


def trouble_of(message: str) -> Trouble | None:
    """Return the kind of failure in an engine's message; None for any other message."""
    low = message.lower()
    return next((kind for kind, pattern in TROUBLES if re.search(pattern, low)), None)


# Text that the client prints after the engine's message, depending on its version.
_HELP = re.compile(r"(?:See|Run) 'docker[^']* --help'.*")
_FROM = re.compile(r"(?:docker: )?(?:Error response from daemon: )?")


def client_words(error: str, status: int) -> str:
    """Return the last message in a client's standard error, or else its exit status."""
    lines = [line.strip() for line in error.splitlines()]
    messages = [line for line in lines if line and not _HELP.fullmatch(line)]
    return _FROM.sub("", messages[-1], count=1) if messages else f"status {status}"
