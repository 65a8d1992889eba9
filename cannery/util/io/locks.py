"""One run at a time: lock files, which the end of a process releases; and folders of one run, which go with it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from cannery.util.io.files import unwritable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator


# Seconds between two looks at whether the run was stopped, while another run holds the lock.
LOOK = 0.2


@contextmanager
def held(path: Path, waiting: Callable[[], None], stop: threading.Event | None = None) -> Iterator[None]:
    """Hold the lock file `path`, which is made where it is missing; its folders too.

    `waiting` is called once when another run holds it. Raises `StoppedError` when `stop` is set while this run waits,
    `UnableError` when the file cannot be locked.
    """
    # Several users may work on one checkout.
    lock = FileLock(path, mode=0o666)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            _wait(lock, stop)
    except (OSError, NotImplementedError) as error:
        raise unwritable(error if isinstance(error, OSError) else OSError(str(error)), path) from error
    try:
        yield
    finally:
        lock.release()


def shared(path: Path) -> int | None:
    """Lock a file together with other runs, until the descriptor that is returned is closed, or the process ends.

    None where it cannot be locked: nobody can then write there either.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    except OSError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def alone(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a file of `shared` alone, where it can be locked. `waiting` is called once while others have it."""
    descriptor = shared(path)
    if descriptor is None:
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _wait(lock: FileLock, stop: threading.Event | None) -> None:
    while True:
        try:
            lock.acquire(timeout=LOOK)
        except Timeout:
            if stop is not None and stop.is_set():
                raise StoppedError from None
        else:
            return


class StoppedError(Exception):
    """The run was stopped (Ctrl-C, or another job failed): leave everything as it is."""


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """Give a new folder in `parent` for this user alone. It goes at the end; what killed runs have left there goes now.

    Raises `UnableError` where it cannot be made.
    """
    with held(parent.with_name(f"{parent.name}.lock"), lambda: None):
        parent.mkdir(mode=0o700, exist_ok=True)
        for path in parent.iterdir():
            if not path.is_dir():
                path.unlink(missing_ok=True)
            elif (lock := _locked(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
        try:
            folder = Path(tempfile.mkdtemp(dir=parent))
        except OSError as error:
            raise unwritable(error, parent) from error
        lock = _locked(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock a folder until its descriptor is closed, or this process ends; None where another run has it, or ends it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
