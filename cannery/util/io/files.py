"""Atomic writes, SHA-256 of files, paths of settings, and messages for errors of the file system."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cannery.errors import UnableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

# The settings file in the working directory.
OF_FOLDER = "cannery.toml"
_ROOM = "free some disk space, then run the same command again"
_ELSEWHERE = "work on another checkout, or set CANNERY_CACHE to another folder"
BY_OUTPUT = "name a place on another one with --output"
_RIGHT = "make it writable for you"
_NEXT = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "the limit of a file's size (ulimit -f) is too small for it",
    errno.EACCES: _RIGHT,
    errno.EPERM: _RIGHT,
    errno.EEXIST: "a file is where a folder is wanted: move it away",
    errno.ENOTDIR: "a file is where a folder is wanted: move it away",
    errno.EISDIR: "a folder is where a file is wanted: move it away",
    errno.ENAMETOOLONG: "use a folder with a shorter name",
    errno.ELOOP: "a symbolic link leads back to itself: remove it",
    errno.EIO: "check the disk, then run the same command again",
}


def home_of(env: Mapping[str, str]) -> Path | None:
    """Return the user's home folder; None for a uid without a name if HOME is not set."""
    try:
        return Path(env.get("HOME") or Path.home())
    except RuntimeError:
        return None


def write_atomic(path: Path, data: bytes | str, mode: int = 0o644) -> bool:
    """Write `data` to `path` through a temporary file in the same folder, and return whether the content changed.

    After an interrupted run or a power failure, the file is either the old or the new one. Missing folders are made.
    """
    content = data.encode() if isinstance(data, str) else data
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:  # it names a file that was never there
        raise OSError(error.errno, error.strerror, str(path.parent)) from error
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())  # or the name may reach the disk before the content
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True


def read_json(path: Path, read: Callable[[Any], T]) -> T | None:
    """Return `read` of the JSON in a file; None if the file is missing, damaged or of another form."""
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def check_folder_of(path: Path) -> None:
    """Raise `UsageError` if the folder of a user's output `path` does not exist."""
    if not path.parent.is_dir():
        raise UsageError("no such folder", where=str(path.parent), hint="make it first, or name another one")


def sha256_file(path: Path) -> str:
    """Return the hex SHA-256 of a file, read in blocks (constant memory)."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_bytes(data: bytes) -> str:
    """Return the hex SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def shown_path(path: Path, root: Path) -> Path:
    """Return a path for messages: relative to the folder `root` if it is inside."""
    return path.relative_to(root) if path.is_relative_to(root) else path


def local_sha256(path: Path, cache: Path) -> str:
    """Return the hex SHA-256 of a local file. It is cached until the size or mtime of the file changes.

    A wheel of 200 MB takes a second, and every lock needs its hash. Each path has its own cache file below
    `<cache>/wheels/.hashes`, so that parallel runs do not overwrite each other's.
    """
    note = cache / "wheels" / ".hashes" / f"{sha256_bytes(str(path).encode())[:32]}.json"
    status = path.stat()
    key = [str(path), status.st_size, status.st_mtime_ns]
    if known := read_json(note, lambda value: str(value["sha256"]) if value["key"] == key else ""):
        return known
    found = sha256_file(path)
    write_atomic(note, json.dumps({"key": key, "sha256": found}))
    return found


def user_file(env: Mapping[str, str]) -> Path:
    """Return the user's settings file: cannery/config.toml below XDG_CONFIG_HOME, or else `~/.config`."""
    home = env.get("XDG_CONFIG_HOME") or (home_of(env) or Path("/")) / ".config"
    return Path(home) / "cannery/config.toml"


def is_of_files(error: OSError) -> bool:
    """Whether `error` is one that `unwritable` has a message for. Connection errors have other numbers or none."""
    return error.errno in _NEXT or error.errno == errno.EROFS


def unwritable(error: OSError, path: Path | str, elsewhere: str = _ELSEWHERE) -> UnableError:
    """Return the error for a `path` that cannot be written; `elsewhere` is the hint for choosing another place."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    hint = _NEXT.get(error.errno or 0, "run the same command again when that is mended")
    if error.errno == errno.EROFS:
        hint = f"its file system is mounted read-only: {elsewhere}"
    elif hint == _RIGHT:
        hint = f"{hint}, or {elsewhere}"
    return UnableError(f"cannot be written: {reason[:1].lower()}{reason[1:]}", where=str(path), hint=hint)


@contextmanager
def writing(path: Path | str, elsewhere: str = _ELSEWHERE) -> Iterator[None]:
    """Raise `UnableError` (see `unwritable`) for an error of the file system in a block that writes `path`.

    Other errors are raised as they are: those of a connection are `OSError` too.
    """
    try:
        yield
    except OSError as error:
        if not is_of_files(error):
            raise
        raise unwritable(error, path, elsewhere) from error


class Blocks(io.RawIOBase):
    """An unbuffered file that reads from blocks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__()
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        """Read."""
        self._rest = self._rest or memoryview(next(filter(None, self._blocks), b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def as_file(blocks: Iterator[bytes]) -> io.BufferedReader:
    """Return a buffered file that reads from blocks."""
    return io.BufferedReader(Blocks(blocks), 1 << 20)


def remove_path(path: Path) -> None:
    """Remove a folder or file, if it is there. Raises `UnableError` for what this user may not remove."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:  # of a file in it, without its folder
        raise unwritable(error, path) from error


class Use(NamedTuple):
    """The bytes on disk of a file, how many of its hard links were found, and how many there are."""

    bytes: int
    found: int = 1
    links: int = 1


def disk_use(place: Path) -> dict[str, Use]:
    """Return the use of a file, or of each file below a folder, by device and inode.

    A file with several links has one inode, so it is counted once when the results of several places are joined.
    """
    found: dict[str, Use] = {}
    walked = os.walk(place) if place.is_dir() and not place.is_symlink() else [(str(place.parent), [], [place.name])]
    for folder, _, names in walked:
        for name in names:
            with suppress(FileNotFoundError):  # another run has removed it
                status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - many files
                inode = f"{status.st_dev}:{status.st_ino}"
                count = found[inode].found + 1 if inode in found else 1
                found[inode] = Use(status.st_blocks * 512, count, status.st_nlink)
    return found
