"""Lock files, which are released when the process ends, and temporary folders of one run."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from cannery.util.io.files import unwritable, writing

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator


# Seconds between checks whether the run was stopped, while another run holds the lock.
LOOK = 0.2


@contextmanager
def held(path: Path, waiting: Callable[[], None], stop: threading.Event | None = None) -> Iterator[None]:
    """Hold the lock file `path` while the block runs. Missing folders are made.

    `waiting` is called once if another run holds it. Raises `StoppedError` if `stop` is set while this run waits, and
    `UnableError` if the file cannot be locked.
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
    """Take a shared lock on a file, and return its descriptor; None if the file cannot be opened.

    Closing the descriptor, or the end of the process, releases the lock. If the file cannot be opened, nobody can write
    there either.
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
    """Hold an exclusive lock on a file of `shared`, if it can be opened. `waiting` is called once if others hold it."""
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
    """Yield a new folder in `parent`, and remove it at the end. Folders of killed runs are removed at the start.

    Raises `UnableError` if it cannot be made.
    """
    with held(parent.with_name(f"{parent.name}.lock"), lambda: None):
        parent.mkdir(mode=0o700, exist_ok=True)
        for path in parent.iterdir():
            if not path.is_dir():
                path.unlink(missing_ok=True)
            elif (lock := locked_if_free(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
        with writing(parent):
            folder = Path(tempfile.mkdtemp(dir=parent))
        lock = locked_if_free(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def locked_if_free(path: Path) -> int | None:
    """Lock a folder or file and return its descriptor; None if it is missing, not readable, or another run holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
