"""Files written whole or not at all, and file locks."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


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
