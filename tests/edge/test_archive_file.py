"""Archives and their side files: written whole or not at all, and looked at before they are taken."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from cannery.errors import ExitCode, FindingsError, UnableError, UsageError
from cannery.ship.bundle import Held
from cannery.ship.io import archive as archive_file
from cannery.ship.io.archive import check_file, check_members, read_side_of, side_path, whole_file

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGE = Held(f"sha256:{'1' * 64}", "linux/amd64", ("stack:1",), (f"sha256:{'2' * 64}",))


@dataclass
class View:
    """Keeps what it is to show."""

    seen: list[int]

    def moved(self, count: int) -> None:
        self.seen.append(count)

    def state(self, _state: object) -> None:
        raise AssertionError


def write(path: Path, data: bytes = b"content") -> None:
    with whole_file(path) as part:
        part.image = IMAGE
        part.write(data[:3])
        part.write(data[3:])


def test_a_file_and_its_side_file(tmp_path: Path) -> None:
    path = tmp_path / "new/x.tar"
    write(path)
    found = read_side_of(path)
    assert found is not None
    assert (found.bytes, found.sha256) == (7, hashlib.sha256(b"content").hexdigest())
    view = View([])
    check_file(path, found, view)
    assert view.seen == [7]
    assert sorted(one.name for one in path.parent.iterdir()) == ["x.tar", "x.tar.json"]


@pytest.mark.parametrize(
    ("content", "words"), [(b"conten", "cut off"), (b"contents", "another file"), (b"Content", "sha256")]
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.tar"
    write(path)
    path.write_bytes(content)
    found = read_side_of(path)
    assert found is not None
    with pytest.raises(FindingsError, match=words) as caught:
        check_file(path, found, View([]))
    assert caught.value.where == str(path)


def test_a_failure_leaves_the_pair_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    write(path)
    before = (path.read_bytes(), side_path(path).read_bytes())
    with pytest.raises(KeyError), whole_file(path) as part:
        raise KeyError(part.write(b"half"))
    assert (path.read_bytes(), side_path(path).read_bytes()) == before
    assert not (tmp_path / "x.tar.part").exists()


def test_an_end_between_the_two_files_leaves_one_without_a_side_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tar"
    write(path, b"the old one")

    def killed(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(archive_file, "write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            write(path, b"the new one")
    assert path.read_bytes() == b"the new one"
    assert read_side_of(path) is None
    write(path, b"the new one")
    assert read_side_of(path) is not None


def test_what_a_killed_run_left_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    (tmp_path / "x.tar.part").write_bytes(b"x" * 100)
    write(path)
    assert path.read_bytes() == b"content"


def test_one_run_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with whole_file(path) as part:
        part.image = IMAGE
        part.write(b"first")
        with pytest.raises(UsageError, match="another run writes this file"):
            write(path)
        part.write(b" run")
    assert path.read_bytes() == b"first run"


def test_a_file_that_another_run_just_renamed_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.tar"
    hold = archive_file._hold

    def late(stream: IO[bytes], part: Path) -> None:
        part.replace(path)
        hold(stream, part)

    monkeypatch.setattr(archive_file, "_hold", late)
    with pytest.raises(UsageError, match="another run writes this file"):
        write(path, b"another")
    assert path.read_bytes() == b""


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnableError) as caught:
        write(tmp_path / "file/x.tar")
    assert caught.value.code == ExitCode.UNABLE
    assert "a file is where a folder is wanted" in caught.value.hint


def test_a_read_only_file_system_asks_for_another_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_args: object, **_words: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UnableError) as caught:
        write(tmp_path / "far/x.tar")
    assert "--output" in caught.value.hint
    assert "CANNERY_CACHE" not in caught.value.hint


def test_a_broken_side_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    os.mkfifo(side_path(path))
    with pytest.raises(FindingsError, match="not a regular file"):
        read_side_of(path)
    side_path(path).unlink()
    side_path(path).write_bytes(b"\xff\xfe")
    with pytest.raises(FindingsError) as caught:
        read_side_of(path)
    assert caught.value.where == f"{path}.json"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_an_archive_with_a_pipe_or_device_is_refused(
    tmp_path: Path, kind: bytes, pack: Callable[[bytes], bytes]
) -> None:
    """The engine would open it, and wait for ever."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("blobs"))
        pipe = tarfile.TarInfo("manifest.json")
        pipe.type = kind
        tar.addfile(pipe)
    path = tmp_path / "x.tar"
    path.write_bytes(pack(out.getvalue()))
    with pytest.raises(FindingsError, match=r"manifest\.json"):
        check_members(path)


def test_other_broken_archives_are_left_to_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    for content in (b"", b"x" * 3000, b"\x1f\x8b" + b"x" * 3000, gzip.compress(bytes(9000))[:-9]):
        path.write_bytes(content)
        check_members(path)
