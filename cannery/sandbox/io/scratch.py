"""Folders for boxes: where their mounts are made, and what they change."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.util.io.locks import held
from cannery.util.io.write_errors import unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def scratch_folder(cache: Path) -> Iterator[Path]:
    """Give an empty folder below the cache, which is gone afterwards; what runs that were killed left goes before.

    Raises `UnableError` where it cannot be made.
    """
    parent = cache / "boxes"
    with held(parent / "folders.lock", lambda: None):
        for path in parent.iterdir():
            if path.is_dir() and (lock := _locked(path)) is not None:
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
    """Lock a folder until its descriptor is closed, or this process ends; None where another run has it locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
