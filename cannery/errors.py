"""The root of all errors, and an exit code for each kind. `cannery.cli` turns a `CanneryError` into a message.

`what` is what is wrong, `where` names the file, line, option or host, `hint` is what to do next.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the commands."""

    DONE = 0
    USAGE = 2
    FINDINGS = 3
    UNABLE = 4
    BUILD_FAILED = 5
    VERIFY_FAILED = 6
    NETWORK = 7
    DEFECT = 70
    INTERRUPTED = 130


class CanneryError(Exception):
    """The root of every error that a user sees. Raise a subclass; its `code` is the process's exit code."""

    code: ExitCode = ExitCode.USAGE

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        # The file with the whole output of the failed program; "" without one.
        self.log = ""

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.hint:
            lines.append(f"  → {self.hint}")
        if self.log:
            lines.append(f"  log: {self.log}")
        return "\n".join(lines)


class UsageError(CanneryError):
    """Wrong use: unknown profile, variable, pin; broken catalog file."""

    code = ExitCode.USAGE


class FindingsError(CanneryError):
    """A set of versions that cannot work, or an incomplete or stale lock where a complete one is required."""

    code = ExitCode.FINDINGS


class UnableError(CanneryError):
    """The host cannot do it: no engine, QEMU, root or NPU, or too little disk space."""

    code = ExitCode.UNABLE


class BuildFailedError(CanneryError):
    """A build stage failed; the message has the stage and its last lines."""

    code = ExitCode.BUILD_FAILED


class VerifyFailedError(CanneryError):
    """The verify script in an image reported a failure."""

    code = ExitCode.VERIFY_FAILED


class NetworkError(CanneryError):
    """An index or registry could not be reached or refused; the message names it without credentials."""

    code = ExitCode.NETWORK
