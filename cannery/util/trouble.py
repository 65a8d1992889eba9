"""The kinds of failure with a host on the network, and a parser of messages of git, curl, ssh and uv."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The result of a request to a host."""

    OK = "ok"
    EMPTY = "empty list"
    NOT_FOUND = "404 not found"
    DENIED = "access denied"
    BUSY = "too many requests"
    SERVER = "server error"
    DNS = "host name not found"
    REFUSED = "connection refused"
    RESET = "connection lost"
    TIMEOUT = "time-out"
    TLS = "TLS certificate or handshake"
    PROXY = "proxy"
    OTHER = "no package index"
    # For git hosts, and for a cache that a program writes.
    LOGIN = "it asks for a login, or has no such repository"
    REPOSITORY = "no such repository"
    COMMIT = "it has no such commit"
    SINGLE = "it does not serve single commits"
    DISK = "the cache cannot be written"
    FAILED = "failed"


# Failures of a host: the next request to it would fail too.
OF_HOST = frozenset({State.DNS, State.REFUSED, State.TIMEOUT, State.TLS, State.PROXY, State.BUSY})
_NETWORK = OF_HOST | {State.DENIED, State.LOGIN, State.SERVER, State.RESET}


@dataclass(frozen=True)
class Reason:
    """A failure that a program reported: its kind, and a detail (a host name, a status), or ""."""

    state: State
    detail: str = ""

    @property
    def is_network(self) -> bool:
        """Whether the network, or a host on it, failed."""
        return self.state in _NETWORK

    def __str__(self) -> str:
        return f"{self.state}: {self.detail}" if self.detail else str(self.state)


# Messages of git (with LC_ALL=C), libcurl, ssh and uv, in the order of the search. A group is the detail.
_WORDS: tuple[tuple[State, str], ...] = (
    (State.DISK, r"(No space left on device|Disk quota exceeded|Read-only file system)"),
    (State.DISK, r"(insufficient permission for adding an object|unable to create temporary file)"),
    (State.PROXY, r"Could not resolve proxy: (\S+)"),
    (State.PROXY, r"(?:from proxy after CONNECT|CONNECT tunnel failed|HTTP code \d+ from proxy)"),
    (State.DNS, r"Could not resolve host(?:name)?:? \"?([\w.-]+)|dns error"),
    (State.SINGLE, r"does not allow request for unadvertised object|does not support shallow|want \w+ not valid"),
    (State.COMMIT, r"not our ref|no such remote ref|couldn't find remote ref"),
    (State.TLS, r"(SSL certificate problem[^\n]*|server certificate verification failed[^\n]*|SSL connect error)"),
    (State.TLS, r"((?:gnutls_handshake|OpenSSL|TLS)[^\n]*)|invalid peer certificate"),
    (State.TIMEOUT, r"(no output within \d+ s)"),
    (State.TIMEOUT, r"timed out|Timeout was reached|Operation too slow"),
    (State.LOGIN, r"could not read (?:Username|Password)|Authentication failed|terminal prompts disabled"),
    (State.LOGIN, r"Access denied|(Permission denied \([\w,-]+\)|Host key verification failed)"),
    (State.LOGIN, r"returned error: (40[13])"),
    (State.REPOSITORY, r"returned error: (404)|repository '[^\n]*' not found|Repository not found"),
    (State.REPOSITORY, r"does not appear to be a git repository|repository '[^\n]*' does not exist"),
    (State.REPOSITORY, r"is this a git repository"),
    (State.BUSY, r"429 Too Many Requests"),
    (State.SERVER, r"returned error: (\d+)|HTTP status \w+ error \((\d+)"),
    (State.REFUSED, r"Connection refused|Couldn't connect to server|Failed to connect|is unreachable|No route to"),
    (State.REFUSED, r"connect error"),
    (State.RESET, r"Connection reset|Empty reply|hung up unexpectedly|early EOF|RPC failed|unexpected disconnect"),
    (State.RESET, r"error sending request|Failed to fetch|Request failed|error decoding response|Received some unexp"),
)
_COMPILED = tuple((state, re.compile(words, re.IGNORECASE)) for state, words in _WORDS)
# The text of any other failure is cut at this length.
_LONGEST = 200


def reason(text: str) -> Reason:
    """Return why a program failed, from its output `text` (without secrets)."""
    for state, words in _COMPILED:
        found = words.search(text)
        if found:
            return Reason(state, next((group for group in found.groups() if group), "").strip())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "")
    return Reason(State.FAILED, last.removeprefix("fatal:").removeprefix("error:").strip()[:_LONGEST])
