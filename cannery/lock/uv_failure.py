"""What kind of failure uv reports: no set works, an index fails, this host cannot, or anything else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from cannery.lock.uv_output import UNSATISFIABLE
from cannery.util.trouble import reason


class FailureKind(StrEnum):
    """Whose failure it is."""

    UNSOLVED = "no set of versions works"
    NETWORK = "an index fails"
    SYSTEM = "the operating system refuses"
    OTHER = "uv fails"


@dataclass(frozen=True)
class UvFailure:
    """A failure; of `SYSTEM` with the error number and the path that uv names ("" for none)."""

    kind: FailureKind
    number: int = 0
    path: str = ""


_OS_ERROR = re.compile(r"\(os error (?P<number>\d+)\)")
# Error numbers of connections: broken pipe, address, network, reset, time-out, refused, host.
_OF_NETWORK = frozenset({32, 98, 99, 100, 101, 103, 104, 107, 110, 111, 112, 113})
_PATH = re.compile(r"`(?P<path>[^`\n]+)`")
# It then lists the fields that it knows, which have words of the network.
_UNREAD = re.compile(r"Failed to parse:? `?(?P<file>uv\.toml|pyproject\.toml)")


def uv_failure(stderr: str) -> UvFailure:
    """Read what `uv` wrote before it ended with a status that is not 0."""
    if UNSATISFIABLE in stderr:
        return UvFailure(FailureKind.UNSOLVED)
    # A full disk ends a download, so uv reports a failed download, with this at the end.
    for line in stderr.splitlines():
        found = _OS_ERROR.search(line)
        if found and int(found["number"]) not in _OF_NETWORK:
            return UvFailure(FailureKind.SYSTEM, int(found["number"]), _path(line) or _path(stderr))
    is_network = not _UNREAD.search(stderr) and reason(stderr).is_network
    return UvFailure(FailureKind.NETWORK if is_network else FailureKind.OTHER)


def _path(text: str) -> str:
    return next((found["path"] for found in _PATH.finditer(text) if "/" in found["path"]), "")
