"""What kind of failure uv tells of: no set works, an index fails, this host cannot, or uv was called wrongly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from signal import Signals

from cannery.lock.uv_output import UNSATISFIABLE
from cannery.util.trouble import reason


class FailureKind(StrEnum):
    """Whose failure it is."""

    UNSOLVED = "no set of versions works"
    NETWORK = "an index fails"
    SYSTEM = "the operating system refuses"
    KILLED = "ended by a signal"
    INPUT = "uv does not take what the profile says"
    DEFECT = "uv does not take how it is called"
    OTHER = "uv fails"


@dataclass(frozen=True)
class UvFailure:
    """A failure; of `SYSTEM` with the error number and the path that uv names ("" for none), of `KILLED` the signal."""

    kind: FailureKind
    number: int = 0
    path: str = ""
    signal: str = ""


_OS_ERROR = re.compile(r"\(os error (?P<number>\d+)\)")
# Error numbers of connections: broken pipe, address, network, reset, time-out, refused, host.
_OF_NETWORK = frozenset({32, 98, 99, 100, 101, 103, 104, 107, 110, 111, 112, 113})
_PATH = re.compile(r"`(?P<path>[^`\n]+)`")
_UNREAD = re.compile(r"Failed to parse:? `?(?P<file>uv\.toml|pyproject\.toml)")
# The lines of the two files that hold what a profile or an index's entry says, as uv quotes them.
_OF_PROFILE = re.compile(r"^\s*\d+ \|\s*((\w+-)?dependencies|exclude-newer(-package)?|url)\s*=", re.MULTILINE)
_CALLED_WRONGLY = re.compile(r"^error: (unexpected argument|invalid value|the argument|unrecognized)", re.MULTILINE)


def uv_failure(status: int, stderr: str) -> UvFailure:
    """Read what `uv` wrote before it ended with `status` (negative: the number of a signal), which is not 0."""
    if status < 0:
        return UvFailure(FailureKind.KILLED, number=-status, signal=_signal(-status))
    if UNSATISFIABLE in stderr:
        return UvFailure(FailureKind.UNSOLVED)
    # A full disk ends a download, so it is told of as a failure of that, with this at the end.
    for line in stderr.splitlines():
        found = _OS_ERROR.search(line)
        if found and int(found["number"]) not in _OF_NETWORK:
            return UvFailure(FailureKind.SYSTEM, int(found["number"]), _path(line) or _path(stderr))
    # Before those of the network: it lists the fields that it knows, which have words of it.
    if _UNREAD.search(stderr):
        return UvFailure(FailureKind.INPUT if _OF_PROFILE.search(stderr) else FailureKind.DEFECT)
    if reason(stderr).is_network:
        return UvFailure(FailureKind.NETWORK)
    return UvFailure(FailureKind.DEFECT if _CALLED_WRONGLY.search(stderr) else FailureKind.OTHER)


def _path(text: str) -> str:
    return next((found["path"] for found in _PATH.finditer(text) if "/" in found["path"]), "")


def _signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
