"""Commands given as argument tuples: run to their end, or read as their output comes; and signals that wait for an end.

A child that is read as it writes gets a session of its own: the terminal's Ctrl-C then reaches only Cannery, which
passes it on once. Where Cannery itself is killed, the kernel ends the child: a git that waits for a silent host would
wait for good, and write into the cache beside the next run.
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

# A finished command: its status, and both outputs as text.
Result: TypeAlias = "subprocess.CompletedProcess[str]"
# What ends a run from outside and can be held: Ctrl-C, a stopped job, a closed terminal.
HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds that the child gets to end by itself after SIGINT, before it is killed.
CANCEL_SECONDS = 10.0
# Seconds without output after which `output` gives None, so that the caller can show that time goes on.
TICK = 1.0


class CommandError(CanneryError):
    """A command ended with a non-zero status. Callers turn it into the error of their kind."""

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
    return done


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


def start(command: Sequence[str], env: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Start `command` in `folder` with `env` as its whole environment. Raises UnableError when it is absent.

    Start it in a thread that outlives it: to the kernel that thread is the parent.
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
    """Return the words that make the kernel end a command together with this thread; none without setpriv.

    Busybox has one that knows no such option.
    """
    program = shutil.which("setpriv", path=env.get("PATH"))
    is_able = program is not None and Path(program).resolve().name == "setpriv"
    return (str(program), "--pdeathsig", "TERM", "--") if is_able else ()


def output(process: subprocess.Popen[bytes]) -> Iterator[bytes | None]:
    """Output as it comes, None after each second without any; ends with the stream or the process."""
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
    """Lines as they come, None after each second without any output; ends with the stream or the process."""
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
    """Send SIGINT once to the process group, wait for a clean cancel, read what is still written meanwhile."""
    _signal(process, signal.SIGINT)
    drain = threading.Thread(target=_drain, args=(process,), daemon=True)
    drain.start()  # else buildx could block on a full pipe while it reports that it was cancelled
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
    # The group may outlive its leader (docker ends before its plugin), so it is asked also when the leader is gone.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing behind: kill what still runs, close the pipe."""
    if process.poll() is None:
        _signal(process, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
