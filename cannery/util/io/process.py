"""Runs commands (argument tuples) to their end or with streamed output, and delays signals.

A command with streamed output runs in a new session. Ctrl-C in the terminal then only reaches Cannery, which passes it
on once. If Cannery is killed, the kernel ends the command. Otherwise a git that waits for a silent host would wait
forever, and write into the cache during the next run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cannery.errors import CanneryError, UnableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


log = logging.getLogger(__name__)

# A finished command: its status and both outputs as text.
Result: TypeAlias = "subprocess.CompletedProcess[str]"
# The signals that `signals_held` delays: Ctrl-C, a stopped job, a closed terminal.
HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds between SIGINT and SIGKILL.
CANCEL_SECONDS = 10.0
# Seconds without output after which `output` yields None, so that the caller can update its display.
TICK = 1.0


class CommandError(CanneryError):
    """A command ended with a non-zero status. Callers turn it into a more specific error."""

    def __init__(self, args: Sequence[str], returncode: int, stdout: str, stderr: str) -> None:
        tail = "\n".join((stderr or stdout).strip().splitlines()[-15:])
        super().__init__(f"`{shlex.join(args)}` ended with status {returncode}\n{tail}".rstrip())
        self.command = tuple(args)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


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

    `env` replaces the environment if given; `timeout` is in seconds. Raises `CommandError` for a non-zero status
    (unless `check` is false) and for a time-out (status 124), `UnableError` if the program does not exist.
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
    return done


@contextmanager
def signals_held() -> Iterator[list[int]]:
    """Delay the signals in HELD while the block runs; yield the list of received signals.

    They are raised after the block, unless an exception ends the block. Other threads need no delay, because Python's
    handlers only run in the main thread.

    A signal mask would not work: it is for one thread, so the kernel delivers the signal to another one, and Python's
    handler still interrupts the main thread.
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


def start(command: Sequence[str], env: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Start `command` in `folder` with exactly the environment `env`. Raises `UnableError` if it does not exist.

    The thread that starts it must outlive it: for the kernel, that thread is the parent.
    """
    if shutil.which(command[0], path=env.get("PATH")) is None:
        raise UnableError(f"program not found: {command[0]}", where=str(folder))
    try:
        # One pipe for both outputs: the child can never block on a pipe that nobody reads.
        return subprocess.Popen(
            (*_ending_with_us(env), *command),
            env=dict(env),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise UnableError(f"program not found: {command[0]}", where=str(folder)) from error


def _ending_with_us(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command prefix with which the kernel ends a command together with this thread; empty without setpriv.

    The setpriv of Busybox does not have this option.
    """
    program = shutil.which("setpriv", path=env.get("PATH"))
    is_able = program is not None and Path(program).resolve().name == "setpriv"
    return (str(program), "--pdeathsig", "TERM", "--") if is_able else ()


def output(process: subprocess.Popen[bytes]) -> Iterator[bytes | None]:
    """Yield output as it arrives, and None after each second without output, until the stream or the process ends."""
    if process.stdout is None:
        return
    descriptor = process.stdout.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if selector.select(TICK):
                data = os.read(descriptor, 1 << 16)
                if not data:
                    break
                yield data
            elif process.poll() is not None:
                break  # something else still holds the pipe (a credential helper's daemon)
            else:
                yield None


def lines(process: subprocess.Popen[bytes]) -> Iterator[str | None]:
    """Yield lines as they arrive, and None after each second without output, until the stream or the process ends."""
    rest: list[bytes] = []
    for data in output(process):
        if data is None:
            yield None
            continue
        *whole, last = data.split(b"\n")
        if whole:
            yield b"".join([*rest, whole[0]]).decode(errors="replace")
            yield from (line.decode(errors="replace") for line in whole[1:])
            rest = []
        rest.append(last)
    if left := b"".join(rest):
        yield left.decode(errors="replace")


def cancel(process: subprocess.Popen[bytes]) -> None:
    """Send SIGINT once to the process group, and wait for its end. Output is read meanwhile."""
    _signal(process, signal.SIGINT)
    drain = threading.Thread(target=_drain, args=(process,), daemon=True)
    drain.start()  # or buildx could block on a full pipe while it reports that it was cancelled
    # A second Ctrl-C ends the wait at once; the caller's `finally` then kills.
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(CANCEL_SECONDS)
    _signal(process, signal.SIGKILL)
    process.wait()
    drain.join(1)


def _drain(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(process.stdout.fileno(), 1 << 16):
                pass


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group may outlive its leader (docker ends before its plugin), so the group is signalled in any case.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process if it still runs, and close the pipe."""
    if process.poll() is None:
        _signal(process, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
