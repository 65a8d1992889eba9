"""One writer at a time below a checkout's images/."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cannery.edge.files import sha256_bytes
from cannery.edge.write_errors import unwritable
from cannery.edge.write_set import remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.edge.context import Context


@contextmanager
def checkout_held(context: Context) -> Iterator[None]:
    """Hold the checkout for one writer; wait for another one, and say so. Raises `UnableError` when it has no lock.

    It is held for the writing alone, some milliseconds, and not for the minutes of a resolution: so whoever writes
    looks first whether what the new text was made from is still the same. Leftovers of runs that were killed while they
    held it are removed.

    What is locked is the folder images/ itself: nothing is left behind that git would see, it needs no right to write,
    and it is one lock for all users and caches. NFS locks no folders; there it is a file in the cache.
    """
    try:
        held = _folder_lock(context)
    except OSError:
        held = _file_lock(context)
    try:
        remove_leftovers(context.root / "images")
        yield
    finally:
        os.close(held)


def _folder_lock(context: Context) -> int:
    descriptor = os.open(context.root / "images", os.O_RDONLY)
    return _locked(context, descriptor)


def _file_lock(context: Context) -> int:
    name = sha256_bytes(os.fsencode(context.root.resolve()))[:16]
    path = context.cache / f"checkout-{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _locked(context, os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
    except OSError as error:
        raise unwritable(error, path) from error


def _locked(context: Context, descriptor: int) -> int:
    """Lock an open file or folder; closing it, or the end of the process, gives it free."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            context.say("another run of `build.py lock` writes to this checkout: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
