"""What a Docker engine's messages mean: which kind of failure it is. Pure."""

from __future__ import annotations

import re
from enum import StrEnum

# What a user has to know of an engine that finds no host: it does not have the shell's variables.
ENGINE_PROXY = (
    "the engine has a proxy and a name service of its own, whatever this shell has: `docker info` shows its proxies, "
    "which its daemon.json (`proxies`) or its service's environment sets"
)


class Trouble(StrEnum):
    """What kind of failure an engine reports: who can repair it."""

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
)


def trouble_of(message: str) -> Trouble | None:
    """Return what kind of failure an engine's message reports, None for any other."""
    low = message.lower()
    return next((kind for kind, pattern in TROUBLES if re.search(pattern, low)), None)


# After the engine's own message, by the client's version: "See 'docker run --help'." or "Run '…' for more information".
_HELP = re.compile(r"(?:See|Run) 'docker[^']* --help'.*")
_FROM = re.compile(r"(?:docker: )?(?:Error response from daemon: )?")


def client_words(error: str, status: int) -> str:
    """Return the last line of a client's standard error that is a message; its status where there is none."""
    lines = [line.strip() for line in error.splitlines()]
    messages = [line for line in lines if line and not _HELP.fullmatch(line)]
    return _FROM.sub("", messages[-1], count=1) if messages else f"status {status}"
