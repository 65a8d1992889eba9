"""Errors of the file system in a user's words: which file, why, what next."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from cannery.errors import UnableError

if TYPE_CHECKING:
    from pathlib import Path

_ROOM = "free some disk space, then run the same command again"
_ELSEWHERE = "work on a checkout, or with a CANNERY_CACHE, that is not"
BY_OUTPUT = "name a place on another one with --output"
_RIGHT = "make it writable for you, then run the same command again"
_NEXT = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "the limit of a file's size (ulimit -f) is too small for it",
    errno.EACCES: _RIGHT,
    errno.EPERM: _RIGHT,
    errno.EEXIST: "a file is where a folder is wanted: move it away",
    errno.ENOTDIR: "a file is where a folder is wanted: move it away",
    errno.EISDIR: "a folder is where a file is wanted: move it away",
    errno.EIO: "look at the disk, then run the same command again",
}


def is_of_files(error: OSError) -> bool:
    """Whether `error` is one that `unwritable` has words for; those of connections have other numbers or none."""
    return error.errno in _NEXT or error.errno == errno.EROFS


def unwritable(error: OSError, path: Path | str, elsewhere: str = _ELSEWHERE) -> UnableError:
    """Return the error to raise when `path` cannot be written; `elsewhere` is the hint how to name another place."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    hint = _NEXT.get(error.errno or 0, "run the same command again when that is mended")
    if error.errno == errno.EROFS:
        hint = f"its file system is mounted read-only: {elsewhere}"
    return UnableError(f"cannot be written: {reason[:1].lower()}{reason[1:]}", where=str(path), hint=hint)
