"""SHA-256 of files on the host's disk, remembered: a wheel of 200 MB takes a second, and every lock needs its hash."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cannery.util.io.files import sha256_bytes, sha256_file, write_atomic

if TYPE_CHECKING:
    from pathlib import Path


def local_sha256(path: Path, cache: Path) -> str:
    """Return the hex SHA-256 of the file at `path`; read anew when its size or mtime is another than last time.

    Each path has a note of its own below `<cache>/wheels/.hashes`, so that runs beside each other cannot lose one.
    """
    note = cache / "wheels" / ".hashes" / f"{sha256_bytes(str(path).encode())[:32]}.json"
    status = path.stat()
    key = [str(path), status.st_size, status.st_mtime_ns]
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
        if known["key"] == key:
            return str(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no note, or not one of ours: it is written again
    found = sha256_file(path)
    write_atomic(note, json.dumps({"key": key, "sha256": found}))
    return found
