"""Archives on this host's disk: written under another name and renamed when whole, with the side file last."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tarfile
import zlib
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from cannery.engine.io.client import counted
from cannery.errors import CanneryError, FindingsError, UsageError
from cannery.ship.bundle import SideFile, file_faults, read_side, side_text
from cannery.util.io.files import BY_OUTPUT, check_folder_of, is_of_files, unwritable, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cannery.engine.io.client import TransferView
    from cannery.ship.bundle import Held

BLOCK = 1 << 20


class Part:
    """`FILE.part` while it is written: counts and hashes what goes in. `folder` is where it is.

    Set `image` to the image that the archive holds before the end.
    """

    image: Held

    def __init__(self, stream: IO[bytes], folder: Path) -> None:
        self.folder = folder
        self._stream = stream
        self._digest = hashlib.sha256()
        self.bytes = 0

    def write(self, data: bytes) -> int:
        """Write."""
        self._stream.write(data)
        self._digest.update(data)
        self.bytes += len(data)
        return len(data)

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of what was written."""
        return self._digest.hexdigest()


def side_path(path: Path) -> Path:
    """Return the path of an archive's side file."""
    return path.with_name(f"{path.name}.json")


def check_place(path: Path) -> None:
    """Raise `UsageError` where no file can be written at `path`: a folder, a link, a pipe, or in a missing folder.

    A file gets its name by a rename, which replaces a link or pipe.
    """
    try:
        if path.is_dir():
            raise UsageError("it is a folder", where=str(path), hint="OUTPUT is a file: name one in it")
        if path.is_symlink():
            hint = f"name the file that it leads to: {path.readlink()}"
            raise UsageError("it is a symbolic link, which the file would replace", where=str(path), hint=hint)
        if path.exists() and not path.is_file():
            raise UsageError("it is no plain file", where=str(path), hint="OUTPUT is a file: name another")
        check_folder_of(path)
    except OSError as error:
        raise unwritable(error, path, BY_OUTPUT) from error


@contextmanager
def whole_file(path: Path, base: Held | None = None) -> Iterator[Part]:
    """Give the part that becomes `path` when the body ends, and write its side file then.

    The old side file goes first. So whenever the run is killed, there is the old pair, or a file without a side file,
    or the new pair. Raises `UnableError` for a disk that takes no more, and `UsageError` while another run writes the
    same file.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("a+b") as stream:
            _hold(stream, part)
            try:
                stream.truncate(0)
                found = Part(stream, path.parent)
                yield found
                stream.flush()
                os.fsync(stream.fileno())
                side_path(path).unlink(missing_ok=True)
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        side = SideFile("bundle", path.name, found.bytes, found.sha256, found.image, base)
        write_atomic(side_path(path), side_text(side))
    except OSError as error:
        if isinstance(error, CanneryError) or not is_of_files(error):
            raise
        raise unwritable(error, path, BY_OUTPUT) from error


def _hold(stream: IO[bytes], part: Path) -> None:
    """Lock `part`; raise `UsageError` where another run holds it, or has renamed it since it was opened."""
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_mine = os.path.samestat(os.fstat(stream.fileno()), part.stat())
    except (BlockingIOError, FileNotFoundError):
        is_mine = False
    if not is_mine:
        raise UsageError("another run writes this file", where=str(part), hint="wait for it, or name another")


def read_blocks(path: Path) -> Iterator[bytes]:
    """Give a file's content."""
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            yield block


def read_side_of(path: Path) -> SideFile | None:
    """Return an archive's side file, None where there is none. Raises `FindingsError` for a broken one."""
    beside = side_path(path)
    if beside.exists() and not beside.is_file():
        raise FindingsError("it is no plain file", where=str(beside), hint="move it away")
    try:
        return read_side(beside.read_text(encoding="utf-8"), str(beside))
    except FileNotFoundError:
        return None
    except ValueError as error:  # no text
        raise FindingsError("it is no side file of a Cannery archive", where=str(beside)) from error


def check_file(path: Path, side: SideFile, view: TransferView) -> None:
    """Read a file and raise `FindingsError` when it is not the one that its side file describes."""
    size = path.stat().st_size
    digest = hashlib.sha256()
    if size == side.bytes:
        for block in counted(read_blocks(path), view):
            digest.update(block)
    if faults := file_faults(side, size, digest.hexdigest()):
        raise FindingsError(
            "; ".join(faults), where=str(path), hint="copy it again, with its side file, or make it again"
        )


def check_members(path: Path) -> None:
    """Raise `FindingsError` for an archive with a pipe or device in it: an engine that opens one waits for ever.

    The engine reports what else is wrong with an archive. A header may demand any size.
    """
    broken = (OSError, tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError, MemoryError)
    with suppress(*broken), tarfile.open(path) as tar:
        while (member := tar.next()) is not None:
            is_known = member.isfile() or member.isdir() or member.issym() or member.islnk()
            if not is_known or member.size < 0:
                hint = "it is not from `docker save` or `build.py bundle`: make it again"
                raise FindingsError(f"{member.name} in it is no file or folder", where=str(path), hint=hint)
