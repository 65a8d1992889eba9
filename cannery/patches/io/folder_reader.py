"""A folder as a tree of files, which patches are tried on."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.errors import UnableError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


class FolderReader:
    """A folder as a tree: the same questions as `TreeReader`'s."""

    def __init__(self, folder: Path) -> None:
        """Raise `UsageError` for what is no folder."""
        if not folder.is_dir():
            what = "is no folder" if folder.exists() else "does not exist"
            raise UsageError(f"--tree: {str(folder)!r} {what}", hint="name the folder that the patches are tried on")
        self._folder = folder

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file's path."""
        files = (path for path in sorted(self._folder.rglob("*")) if path.is_file() and not path.is_symlink())
        return tuple(path.relative_to(self._folder).as_posix() for path in files)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when there is none. A link is no file, nor is what lies behind one.

        `path` is one that a patch may name (`cannery.patches.patch_path.safe`). Raises `UnableError` for a file that
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
