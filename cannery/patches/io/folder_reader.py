"""A folder as a tree of files, which patches are tried on."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.errors import UnableError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


class FolderReader:
    """A folder as a tree (`cannery.patches.tree.Files`)."""

    def __init__(self, folder: Path) -> None:
        """Raise `UsageError` for what is no folder."""
        if not folder.is_dir():
            what = "is no folder" if folder.exists() else "does not exist"
            raise UsageError(f"--tree: {str(folder)!r} {what}", hint="name the folder that the patches are tried on")
        self._folder = folder

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when there is none. A link is no file, nor is what lies behind one.

        `path` stays inside the tree. Raises `UnableError` for a file that
        cannot be read.
        """
        place = self._folder
        try:
            for part in PurePosixPath(path).parts:
                place /= part
                if place.is_symlink():
                    return None
            return place.read_bytes() if place.is_file() else None
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnableError(f"cannot be read: {reason}", where=str(place), hint="make it readable for you") from error

    def is_executable(self, path: str) -> bool:
        """Whether a file may be executed."""
        return self.read(path) is not None and os.access(self._folder / path, os.X_OK)
