"""Run a command given as an argument tuple: one `run`, which logs and raises; and signals that wait for an end."""

from __future__ import annotations

import logging
import shlex
import signal
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cannery.errors import CanneryError, UnableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

# What ends a run from outside and can be held: Ctrl-C, a stopped job, a closed terminal.
HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CommandError(CanneryError):
    """A command ended with a non-zero status. Callers turn it into the error of their kind."""

    def __init__(self, args: Sequence[str], returncode: int, stdout: str, stderr: str) -> None:
        tail = "\n".join((stderr or stdout).strip().splitlines()[-15:])
        super().__init__(f"`{shlex.join(args)}` ended with status {returncode}\n{tail}".rstrip())
        self.command = tuple(args)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


@dataclass(frozen=True)
class Result:
    """What a finished command left: status, and both outputs as text."""

    returncode: int
    stdout: str
    stderr: str


def run(  # noqa: PLR0913 - the options of one subprocess call
    args: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
    check: bool = True,
) -> Result:
    """Run `args` to its end and return its output.

    `env` replaces the environment when given; `timeout` is in seconds. Raises `CommandError` on a non-zero status
    (unless `check` is false) and on a time-out (status 124), `UnableError` when the program does not exist.
    """
    command = tuple(str(a) for a in args)
    log.debug("run %s", shlex.join(command))
    try:
        done = subprocess.run(
            command,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise UnableError(f"program not found: {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(command, 124, "", f"no end within {timeout:g} s") from error
    if check and done.returncode != 0:
        raise CommandError(command, done.returncode, done.stdout, done.stderr)
    return Result(done.returncode, done.stdout, done.stderr)


@contextmanager
def signals_held() -> Iterator[list[int]]:
    """Let no signal of HELD interrupt what runs inside; yield the list of those that came.

    They take effect right behind it, unless an exception leaves it, which ends the run anyway. Elsewhere than in the
    main thread there is nothing to hold: Python's handlers run in the main thread alone.

    Handlers and no mask: a mask is one thread's, the kernel then gives the signal to another thread, and Python's
    handler would interrupt the main thread all the same.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before: dict[signal.Signals, Any] = {}
    try:
        for number in HELD:
            before[number] = signal.signal(number, lambda found, _frame: came.append(found))
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python
    for found in dict.fromkeys(came):
        signal.raise_signal(found)
