"""A folder that one run at a time writes to.

What is locked is the folder itself: nothing is left behind beside it, it needs no right to write, and it is one lock
for all users and caches. NFS locks no folders; there it is a file in the cache.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cannery.util.io.files import sha256_bytes
from cannery.util.io.write_errors import unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cannery.context import Context


@contextmanager
def folder_held(context: Context, folder: Path, waiting: str) -> Iterator[None]:
    """Hold a folder, which is made where it is not there; wait for another run that does, and say `waiting` then.

    The end of the process gives it free. Raises `OSError` where it cannot be made, `UnableError` when it has no lock.
    """
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
    try:
        held = _locked(context, os.open(folder, os.O_RDONLY), waiting)
    except OSError:
        held = _file_lock(context, folder, waiting)
    try:
        yield
    finally:
        os.close(held)


def _file_lock(context: Context, folder: Path, waiting: str) -> int:
    name = sha256_bytes(os.fsencode(folder.resolve()))[:16]
    path = context.cache / f"folder-{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _locked(context, os.open(path, os.O_RDWR | os.O_CREAT, 0o644), waiting)
    except OSError as error:
        raise unwritable(error, path) from error


def _locked(context: Context, descriptor: int, waiting: str) -> int:
    """Lock an open file or folder; closing it gives it free."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            context.say(waiting)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
