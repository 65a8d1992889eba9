"""A child process whose output is read as it comes, and which Ctrl-C ends cleanly.

The child gets a session of its own: the terminal's Ctrl-C then reaches only Cannery, which passes it on once. Where
Cannery itself is killed, the kernel ends the child: a git that waits for a silent host would wait for good, and write
into the cache beside the next run.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import UnableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Seconds that the child gets to end by itself after SIGINT, before it is killed.
CANCEL_SECONDS = 10.0
# Seconds without output after which `lines` gives None, so that the caller can show that time goes on.
_TICK = 1.0


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
    """Return the words before a command that the kernel is to end with this thread; none where there is no setpriv.

    Busybox has one that knows no such option.
    """
    program = shutil.which("setpriv", path=env.get("PATH"))
    is_able = program is not None and Path(program).resolve().name == "setpriv"
    return (str(program), "--pdeathsig", "TERM", "--") if is_able else ()


def lines(process: subprocess.Popen[bytes]) -> Iterator[str | None]:
    """Lines as they come, None after each second without any; ends with the stream or the process."""
    if process.stdout is None:
        return
    descriptor = process.stdout.fileno()
    rest: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(_TICK):
                if process.poll() is not None:
                    break  # something else still holds the pipe (a credential helper's daemon)
                yield None
                continue
            data = os.read(descriptor, 1 << 16)
            if not data:
                break
            *whole, last = data.split(b"\n")
            if whole:
                yield b"".join([*rest, whole[0]]).decode(errors="replace")
                yield from (line.decode(errors="replace") for line in whole[1:])
                rest = []
            rest.append(last)
    if left := b"".join(rest):
        yield left.decode(errors="replace")


@contextlib.contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C meanwhile: a stopped CI job must not leave a build running in the engine."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
