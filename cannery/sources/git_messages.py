"""What git says when a fetch fails, told in one line: which kind of trouble it is, and what of it a user needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Trouble(StrEnum):
    """Why a host did not give a commit."""

    DISK = "the cache cannot be written"
    PROXY = "proxy"
    DNS = "host name not found"
    REFUSED = "it gives out no single commits"
    COMMIT = "it has no such commit"
    TLS = "TLS certificate or handshake"
    TIMEOUT = "time-out"
    LOGIN = "it asks for a login, or has no such repository"
    REPOSITORY = "no such repository"
    SERVER = "server error"
    CONNECTION = "connection refused"
    LOST = "connection lost"
    OTHER = "git failed"

    @property
    def is_the_hosts(self) -> bool:
        """Whether the next repository of that host would fare no better."""
        return self in {Trouble.PROXY, Trouble.DNS, Trouble.TLS, Trouble.TIMEOUT, Trouble.CONNECTION}


@dataclass(frozen=True)
class Reason:
    """A failed fetch: its kind, and the detail that git gave (a host name, a status), or ""."""

    trouble: Trouble
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.trouble}: {self.detail}" if self.detail else str(self.trouble)


# git's words under LC_ALL=C, libcurl's and ssh's, in the order in which they are looked for; a group is the detail.
_WORDS: tuple[tuple[Trouble, str], ...] = (
    (Trouble.DISK, r"(No space left on device|Disk quota exceeded|Read-only file system)"),
    (Trouble.DISK, r"(insufficient permission for adding an object|unable to create temporary file)"),
    (Trouble.PROXY, r"Could not resolve proxy: (\S+)"),
    (Trouble.PROXY, r"(?:from proxy after CONNECT|CONNECT tunnel failed|HTTP code \d+ from proxy)"),
    (Trouble.DNS, r"Could not resolve host(?:name)?:? \"?([\w.-]+)"),
    (Trouble.REFUSED, r"does not allow request for unadvertised object|does not support shallow|want \w+ not valid"),
    (Trouble.COMMIT, r"not our ref|no such remote ref|couldn't find remote ref"),
    (Trouble.TLS, r"(SSL certificate problem[^\n]*|server certificate verification failed[^\n]*|SSL connect error)"),
    (Trouble.TLS, r"((?:gnutls_handshake|OpenSSL|TLS)[^\n]*)"),
    (Trouble.TIMEOUT, r"(no word within \d+ s)"),
    (Trouble.TIMEOUT, r"timed out|Timeout was reached|Operation too slow"),
    (Trouble.LOGIN, r"could not read (?:Username|Password)|Authentication failed|terminal prompts disabled"),
    (Trouble.LOGIN, r"Access denied|(Permission denied \([\w,-]+\)|Host key verification failed)"),
    (Trouble.LOGIN, r"returned error: (40[13])"),
    (Trouble.REPOSITORY, r"returned error: (404)|repository '[^\n]*' not found|Repository not found"),
    (Trouble.REPOSITORY, r"does not (?:appear to be a git repository|exist)|is this a git repository"),
    (Trouble.SERVER, r"returned error: (\d+)"),
    (Trouble.CONNECTION, r"Connection refused|Couldn't connect to server|Failed to connect|is unreachable|No route to"),
    (Trouble.LOST, r"Connection reset|Empty reply|hung up unexpectedly|early EOF|RPC failed|unexpected disconnect"),
)
_COMPILED = tuple((trouble, re.compile(words, re.IGNORECASE)) for trouble, words in _WORDS)
# All that git says of an object that a whole repository does not have.
ABSENT = "Not a valid object name"
# The last words of a failure that is none of these are cut here.
_LONGEST = 200


def reason(text: str) -> Reason:
    """Return why a fetch failed, from what git wrote (`text`, under LC_ALL=C, free of secrets)."""
    for trouble, words in _COMPILED:
        found = words.search(text)
        if found:
            return Reason(trouble, next((group for group in found.groups() if group), "").strip())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "")
    return Reason(Trouble.OTHER, last.removeprefix("fatal:").removeprefix("error:").strip()[:_LONGEST])


def unread(lines: Iterable[str]) -> str:
    """Return why git could not read an object, of the lines that it wrote; "" where it is just not there."""
    told = [line.strip() for line in lines if line.startswith(("fatal:", "error:")) and ABSENT not in line]
    best = next((line for line in told if line.startswith("fatal:")), told[0] if told else "")
    return best.partition(":")[2].strip()


def said(output: bytes) -> str:
    """Return git's output as lines, a progress line that rewrites itself only as it ended."""
    lines = output.decode(errors="replace").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines).strip()
