"""Folders of this host as a layer's tar."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from typing import TYPE_CHECKING

import pytest

from cannery.assemble.io.folder import write_changes, write_folder
from cannery.assemble.io.sink import TarSink
from cannery.errors import UnableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

EPOCH = 1_700_000_000
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners, devices and overlay's marks are root's to make")


def made(folder: Path, *paths: str) -> Path:
    """A folder with files that have their path as text; a folder ends with a slash."""
    for path in paths:
        file = folder / path
        (file if path.endswith("/") else file.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            file.write_text(path, encoding="utf-8")
    return folder


def gone(folder: Path, *paths: str) -> None:
    """Hide paths of lower layers, as the kernel does."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(folder / path, stat.S_IFCHR, 0)


def opaque(folder: Path, path: str) -> None:
    (folder / path).mkdir(parents=True, exist_ok=True)
    os.setxattr(folder / path, "trusted.overlay.opaque", b"y")


def read(write: Callable[[TarSink], object]) -> dict[str, tarfile.TarInfo]:
    stream = io.BytesIO()
    write(TarSink(stream))
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        return {entry.name: entry for entry in archive}


def changes(upper: Path, lowers: Iterable[Path] = (), left_out: tuple[str, ...] = ()) -> dict[str, tarfile.TarInfo]:
    return read(lambda sink: write_changes(upper, tuple(lowers), left_out, sink))


@as_root
def test_owner_mode_time_and_capability_are_those_on_disk(tmp_path: Path) -> None:
    made(tmp_path, "a/b", "link-to/")
    (tmp_path / "a/link").symlink_to("/somewhere/else")
    os.chown(tmp_path / "a/b", 12, 34)
    (tmp_path / "a/b").chmod(0o4750)
    (tmp_path / "a").chmod(0o1777)
    os.chown(tmp_path / "a/link", 5, 6, follow_symlinks=False)
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    os.setxattr(tmp_path / "a/b", "security.capability", capability)
    for path in ("a/b", "a/link", "a"):
        os.utime(tmp_path / path, ns=(0, EPOCH * 10**9 + 999_999_999), follow_symlinks=False)
    found = changes(tmp_path)
    assert list(found) == ["a", "a/b", "a/link", "link-to"]
    for entry in (found["a"], found["a/b"], found["a/link"]):
        assert entry.mtime == EPOCH
    assert (found["a"].mode, found["a/b"].mode) == (0o1777, 0o4750)
    assert (found["a/b"].uid, found["a/b"].gid, found["a/link"].uid, found["a/link"].gid) == (12, 34, 5, 6)
    assert found["a/link"].linkname == "/somewhere/else"
    value = found["a/b"].pax_headers["SCHILY.xattr.security.capability"]
    assert value.encode("utf-8", "surrogateescape") == capability


def test_a_file_with_two_names_is_there_once(tmp_path: Path) -> None:
    made(tmp_path, "b/one")
    os.link(tmp_path / "b/one", tmp_path / "b/two")
    (tmp_path / "a").mkdir()
    os.link(tmp_path / "b/one", tmp_path / "a/three")
    found = changes(tmp_path)
    assert [found["a/three"].isreg(), found["b/one"].islnk(), found["b/two"].islnk()] == [True] * 3
    assert found["b/one"].linkname == found["b/two"].linkname == "a/three"
    assert found["b/two"].size == 0


def test_names_are_in_the_order_of_a_layer_and_any_bytes(tmp_path: Path) -> None:
    made(tmp_path, "a-b/x", "a/x", "a.b", "é", "n" * 120)
    strange = os.fsdecode(b"\xff\xfe")
    (tmp_path / strange).touch()
    assert [name.encode("utf-8", "surrogateescape") for name in changes(tmp_path)] == [
        *(b"a", b"a/x", b"a-b", b"a-b/x", b"a.b", b"n" * 120, "é".encode(), b"\xff\xfe")
    ]


@as_root
def test_what_an_overlay_hides_becomes_whiteouts(tmp_path: Path) -> None:
    lower, upper = made(tmp_path / "lower", "old/x", "a/gone"), made(tmp_path / "upper", "a/kept", "new/x")
    gone(upper, "a/gone", "top")
    opaque(upper, "old")
    opaque(upper, "new")
    found = changes(upper, [lower])
    assert list(found) == [".wh.top", "a", "a/.wh.gone", "a/kept", "new", "new/x", "old", "old/.wh..wh..opq"]
    assert {found[name].size for name in (".wh.top", "old/.wh..wh..opq")} == {0}
    assert {found[name].mtime for name in (".wh.top", "a/.wh.gone")} == {0}


@as_root
def test_paths_that_are_left_out_are_whole_folders(tmp_path: Path) -> None:
    made(tmp_path, "run/x/y", "running", "etc/hosts", "etc/other", "tmp/")
    found = changes(tmp_path, left_out=("/run", "/tmp", "/etc/hosts"))
    assert list(found) == ["etc", "etc/other", "running"]


def test_sockets_are_left_out_and_pipes_are_refused(tmp_path: Path) -> None:
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    assert changes(tmp_path) == {}
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnableError, match="/pipe is a device or a pipe"):
        changes(tmp_path)


def test_a_folder_becomes_the_root_of_a_layer(tmp_path: Path) -> None:
    root = made(tmp_path / "1", "out/b/c", "out/file", "other")
    assert list(read(lambda sink: write_folder(root / "out", sink))) == ["b", "b/c", "file"]
    assert read(lambda sink: write_folder(root / "none", sink)) == {}
