"""Single files of a source as it came: of a commit's tar, a local tree's, or a source distribution."""

from __future__ import annotations

import tarfile
import zlib
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.sources.requires import is_requirement_file

if TYPE_CHECKING:
    from pathlib import Path

# What tarfile and gzip raise for an archive that is cut off or damaged.
_UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError)


class TreeReader:
    """The files of one archive by their path in the tree. Without the one top folder of a source distribution.

    Symbolic links and folders are no files here. Raises `UnableError` for an archive that cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._archive = tarfile.open(file)  # noqa: SIM115 - close() does
            names = [member.name for member in self._archive if member.isreg()]
            links = [member.name for member in self._archive if member.issym() or member.islnk()]
        except _UNREADABLE as error:
            raise UnableError(f"{file.name} cannot be read: {error}", where=str(file.parent)) from error
        # As templates/tools/common/hook.py unpacks it: only what is compressed is a source distribution.
        is_sdist = file.suffix != ".tar" and len({name.split("/")[0] for name in names}) == 1
        self._names = {name.partition("/")[2] if is_sdist else name: name for name in names}
        self.links = frozenset(name.partition("/")[2] if is_sdist else name for name in links)

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file's path."""
        return tuple(self._names)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when there is none."""
        member = self._names.get(path)
        if member is None:
            return None
        try:
            stream = self._archive.extractfile(member)
            return stream.read() if stream else None
        except _UNREADABLE as error:
            raise UnableError(f"{self._file.name} cannot be read: {error}", where=str(self._file.parent)) from error

    def is_executable(self, path: str) -> bool:
        """Whether a file may be executed; False for one that is not there."""
        member = self._names.get(path)
        return member is not None and bool(self._archive.getmember(member).mode & 0o100)

    def trouble(self, path: str) -> str:
        """Return why no file can be written at `path`: a symlink on the way, or a file and a folder of one name.

        "" where one can. What is written through a symlink would change another file.
        """
        parts = path.split("/")
        ways = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        link = next((way for way in ways if way in self.links), None)
        if link is not None:
            return f"{link} is a symlink in the tree"
        file = next((way for way in ways[:-1] if way in self._names), None)
        if file is not None:
            return f"{file} is a file in the tree, and no folder"
        return f"{path} is a folder in the tree" if any(name.startswith(f"{path}/") for name in self._names) else ""


def requirement_texts(tree: TreeReader) -> dict[str, str]:
    """Return the files of a tree that may say what it asks for: {path: text}."""
    wanted = [path for path in tree.paths if is_requirement_file(path)]
    return {path: (tree.read(path) or b"").decode("utf-8", "replace") for path in wanted}
