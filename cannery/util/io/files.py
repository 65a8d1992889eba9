"""Files written whole or not at all, their SHA-256, where settings are, and errors of the file system in words."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cannery.errors import UnableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

# In the working folder.
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
    errno.EIO: "check the disk, then run the same command again",
}


def home_of(env: Mapping[str, str]) -> Path | None:
    """Return the user's home folder; None for a user id without a name where HOME is not set."""
    try:
        return Path(env.get("HOME") or Path.home())
    except RuntimeError:
        return None


def write_atomic(path: Path, data: bytes | str, mode: int = 0o644) -> bool:
    """Write `data` to `path` through a temporary file beside it; return whether the content changed.

    An interrupted run leaves the old file or the new one, never half of it, and so does a machine that loses power.
    Folders are made as needed.
    """
    content = data.encode() if isinstance(data, str) else data
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())  # else the name may reach the disk before what is in the file
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True


def read_json(path: Path, read: Callable[[Any], T]) -> T | None:
    """Return what `read` makes of the JSON in a file; None where there is none, or it is damaged or of another form."""
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def check_folder_of(path: Path) -> None:
    """Raise `UsageError` where the folder that a user's output `path` is to be in is missing."""
    if not path.parent.is_dir():
        raise UsageError("no such folder", where=str(path.parent), hint="make it first, or name another one")


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file, read in blocks (constant memory)."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_bytes(data: bytes) -> str:
    """Hex SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def shown_path(path: Path, root: Path) -> Path:
    """Return how a path is printed: relative to the folder `root` when it is in it."""
    return path.relative_to(root) if path.is_relative_to(root) else path


def local_sha256(path: Path, cache: Path) -> str:
    """Return the hex SHA-256 of a file of the host's; it is read again when its size or mtime has changed.

    A wheel of 200 MB takes a second, and every lock needs its hash. Each path has a note of its own below
    `<cache>/wheels/.hashes`, so that two runs at once cannot lose one.
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
    """Return where the user's own settings are: `~/.config/cannery/config.toml`, below XDG_CONFIG_HOME if it is set."""
    home = env.get("XDG_CONFIG_HOME") or (home_of(env) or Path("/")) / ".config"
    return Path(home) / "cannery/config.toml"


def is_of_files(error: OSError) -> bool:
    """Whether `error` is one that `unwritable` has words for; those of connections have other numbers or none."""
    return error.errno in _NEXT or error.errno == errno.EROFS


def unwritable(error: OSError, path: Path | str, elsewhere: str = _ELSEWHERE) -> UnableError:
    """Return the error to raise when `path` cannot be written; `elsewhere` is the hint how to name another place."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    hint = _NEXT.get(error.errno or 0, "run the same command again when that is mended")
    if error.errno == errno.EROFS:
        hint = f"its file system is mounted read-only: {elsewhere}"
    elif hint == _RIGHT:
        hint = f"{hint}, or {elsewhere}"
    return UnableError(f"cannot be written: {reason[:1].lower()}{reason[1:]}", where=str(path), hint=hint)


class Blocks(io.RawIOBase):
    """Blocks as a file without a buffer."""

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
    """Return blocks as a file."""
    return io.BufferedReader(Blocks(blocks), 1 << 20)


def remove_path(path: Path) -> None:
    """Remove a folder or file, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def disk_use(place: Path) -> dict[str, int]:
    """Return the bytes on disk of a file, or of each file below a folder, by device and inode.

    A file with several links has one inode, so it is counted once when the results of several places are joined.
    """
    found: dict[str, int] = {}
    walked = os.walk(place) if place.is_dir() and not place.is_symlink() else [(str(place.parent), [], [place.name])]
    for folder, _, names in walked:
        for name in names:
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - many files
            found[f"{status.st_dev}:{status.st_ino}"] = status.st_blocks * 512
    return found
