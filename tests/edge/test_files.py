"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cannery.errors import UnableError
from cannery.util.io.files import BY_OUTPUT, unwritable, write_atomic, writing


def test_what_is_in_a_file_is_on_the_disk_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder/file"
    done: list[tuple[str, bool]] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (fsync(fd), done.append((os.pread(fd, 9, 0).decode(), path.exists()))))
    assert write_atomic(path, "first")
    assert write_atomic(path, "second")
    assert not write_atomic(path, "second")
    assert done == [("first", False), ("second", True)]
    assert path.read_text() == "second"


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, "new")
    assert [(found.name, found.read_text()) for found in Path(tmp_path).iterdir()] == [("file", "old")]


def test_where_no_file_can_be_made_its_folder_is_named() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_atomic(Path("/proc/self/file"), "text")
    assert caught.value.filename == "/proc/self"


def test_what_cannot_be_written_has_another_place() -> None:
    """A home folder that is not there, or is another user's, is no reason to change it."""
    denied = OSError(13, "Permission denied")
    cache = "make it writable for you, or work on another checkout, or set CANNERY_CACHE to another folder"
    assert unwritable(denied, "/nonexistent").hint == cache
    assert unwritable(denied, "/srv/page", BY_OUTPUT).hint == f"make it writable for you, or {BY_OUTPUT}"


def test_an_error_of_the_file_system_is_reported_and_one_of_a_connection_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match="cannot be written: file name too long") as failed, writing("the page"):
        (tmp_path / ("x" * 300)).write_text("")
    assert (failed.value.where, failed.value.hint) == ("the page", "use a folder with a shorter name")
    with pytest.raises(UnableError) as failed, writing("the page", BY_OUTPUT):
        raise OSError(errno.EROFS, "Read-only file system")
    assert failed.value.hint == f"its file system is mounted read-only: {BY_OUTPUT}"
    for error in (ConnectionResetError(errno.ECONNRESET, "reset"), OSError("closed")):
        with pytest.raises(type(error)) as raised, writing("the page"):
            raise error
        assert raised.value is error
