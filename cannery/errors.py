"""One error root, one exit code a kind. `cannery.cli` is the only place that catches `CanneryError`.

`what` is what is wrong, `where` names the file, line, option or host, `hint` is what to do next.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the commands (README, "Exit codes")."""

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
    """Root of every error a user sees. Raise a subclass; its `code` is the process's exit code."""

    code: ExitCode = ExitCode.USAGE

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        # The file that has the whole output of the program that failed; "" without one.
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
    """A version set that cannot work, or a lock that is incomplete or stale where a whole one is needed."""

    code = ExitCode.FINDINGS


class UnableError(CanneryError):
    """The host or engine cannot do it: missing engine, QEMU, root, disk space, NPU asked for and absent."""

    code = ExitCode.UNABLE


class BuildFailedError(CanneryError):
    """A build stage failed; the message carries the stage and its last lines."""

    code = ExitCode.BUILD_FAILED


class VerifyFailedError(CanneryError):
    """The verify script in an image reported a failure."""

    code = ExitCode.VERIFY_FAILED


class NetworkError(CanneryError):
    """An index or registry could not be reached or refused; the message names it without credentials."""

    code = ExitCode.NETWORK
