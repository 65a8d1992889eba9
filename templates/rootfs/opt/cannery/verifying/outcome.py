"""What a check says."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What one check found. `unable`: a failure of the machine at hand, not of the image (exit 3 instead of 1)."""

    status: str
    message: str
    details: tuple[str, ...] = ()
    unable: bool = False
    id: str = ""
    level: str = ""


def passed(message: str) -> Outcome:
    """The fact holds."""
    return Outcome("passed", message)


def failed(message: str, details: Iterable[str] = (), *, unable: bool = False) -> Outcome:
    """The fact does not hold."""
    return Outcome("failed", message, tuple(details), unable)


def warning(message: str) -> Outcome:
    """Worth knowing; does not change the exit code."""
    return Outcome("warning", message)


def skipped(reason: str, details: Iterable[str] = ()) -> Outcome:
    """Not looked at, and why."""
    return Outcome("skipped", reason, tuple(details))


def judged(faults: Sequence[str], good: str) -> Outcome:
    """Passed when there is no fault; one fault is the message itself, more are the details."""
    if not faults:
        return passed(good)
    return failed(faults[0]) if len(faults) == 1 else failed(f"{len(faults)} faults", faults)
