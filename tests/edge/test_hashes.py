"""SHA-256 of local files, remembered between runs."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from cannery.util.io.hashes import local_sha256

if TYPE_CHECKING:
    from pathlib import Path

FILE, DATA, OTHER = "a-1.0-py3-none-any.whl", b"one build", b"another build"


def test_hashes_of_local_files_are_remembered_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(DATA)
    cache = tmp_path / "cache"
    assert local_sha256(path, cache) == sha256(DATA).hexdigest()
    (note,) = (cache / "wheels/.hashes").iterdir()
    note.write_text(note.read_text().replace(sha256(DATA).hexdigest(), "remembered"))
    assert local_sha256(path, cache) == "remembered"
    path.write_bytes(OTHER)
    assert local_sha256(path, cache) == sha256(OTHER).hexdigest()
    note.write_text("[broken")
    assert local_sha256(path, cache) == sha256(OTHER).hexdigest()
