"""Folders of resolutions that were killed. One that ends, or is interrupted, removes its own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# How `cannery.lock.io.resolve` names its folders in the cache.
RESOLVING = "resolve-*"
# Seconds after which such a folder is nobody's: a resolution takes minutes at most.
STALE = 86400.0


def remove_stale(cache: Path, now: float) -> None:
    """Remove what killed resolutions left in the cache more than a day before `now`, as far as it can be removed."""
    for folder in cache.glob(RESOLVING):
        try:
            is_old = now - folder.lstat().st_mtime > STALE
        except FileNotFoundError:  # another thread's or run's, which has just ended
            continue
        if is_old:
            shutil.rmtree(folder, ignore_errors=True)
