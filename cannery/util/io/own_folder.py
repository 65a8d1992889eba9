"""A folder of one run, which is gone when the run is: at its end, or when the next run finds that it was killed."""

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
    """Lock a folder until its descriptor is closed, or this process ends; None where another run has it locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
