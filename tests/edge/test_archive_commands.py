"""Parts of `save`, `load` and `bundle` that need no engine."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import tarfile
import tempfile
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cannery.build.io import disk
from cannery.commands import archive as load
from cannery.commands import archive as save
from cannery.commands.archive import bundle, save_image
from cannery.context import Context
from cannery.engine.image import EngineImage
from cannery.errors import FindingsError, UnableError, UsageError
from cannery.ship.archive import Held, SideFile
from cannery.ship.io.archive import whole_file
from cannery.ship.io.bundle import write_bundle
from cannery.ship.standalone.load import Bundle
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cannery.errors import ExitCode


def digest(digit: str) -> str:
    return f"sha256:{digit * 64}"


HELD = Held(digest("1"), "linux/amd64", ("stack:1",), (digest("2"),))
OTHER = EngineImage(digest("8"), "amd64", 7, (digest("9"),), {}, ())
CLIENT: Any = SimpleNamespace()


def context(folder: Path) -> Context:
    return Context(folder, folder / "cache", {}, Arch.AMD64, is_terminal=False)


@pytest.mark.parametrize("command", [save_image, bundle])
def test_a_place_that_takes_no_file_is_reported_before_the_engine_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[[argparse.Namespace, Context], ExitCode]
) -> None:
    def asked(*_args: object) -> None:
        raise AssertionError("the engine is asked")

    monkeypatch.setattr(save, "_held", asked)
    (tmp_path / "folder.tar").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link.tar").symlink_to("old.tar")
    os.mkfifo(tmp_path / "pipe.tar")
    for name, words in (
        ("folder.tar", "it is a folder"),
        ("link.tar", "it is a symbolic link"),
        ("pipe.tar", "it is no plain file"),
        ("file/x.tar", "file is no folder"),
        ("file/new/x.tar", "file is no folder"),
    ):
        path = tmp_path / name
        with pytest.raises(UsageError, match=words) as caught:
            command(argparse.Namespace(output=str(path), since=None, profile="p"), context(tmp_path))
        assert caught.value.where == str(path)
    (tmp_path / "old.tar").touch()
    for name in ("old.tar", "new/folder/x.tar"):
        with pytest.raises(AssertionError, match="asked"):
            command(argparse.Namespace(output=str(tmp_path / name), since=None), context(tmp_path))


@pytest.mark.parametrize(
    ("command", "name", "needed"),
    [(save_image, "q.tar", "20,000"), (save_image, "q.tar.gz", "5,000"), (bundle, "q.tar", "5,000")],
)
def test_a_disk_that_is_too_small_is_reported_before_a_byte_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[[argparse.Namespace, Context], ExitCode],
    name: str,
    needed: str,
) -> None:
    class AskedError(Exception):
        pass

    def asked(*_args: object) -> None:
        raise AskedError

    large = replace(OTHER, size=20 * 10**9)
    monkeypatch.setattr(save, "_held", lambda *_: (CLIENT, large, HELD))
    monkeypatch.setattr(save, "platform_parameter", asked)
    monkeypatch.setattr(disk, "_free", lambda _: 4_999_000_000)
    path = tmp_path / "new" / name
    with pytest.raises(UnableError, match=f"disk for {name}: {needed} MB needed, 4,999 MB free"):
        command(argparse.Namespace(output=str(path), since=None), context(tmp_path))
    assert list(tmp_path.iterdir()) == []
    # Of a few layers nothing is known before they are there.
    monkeypatch.setattr(save, "_base", lambda *_: HELD)
    monkeypatch.setattr(disk, "_free", lambda _: 20_000_000_000 if command is save_image else 0)
    with pytest.raises(AskedError):
        command(argparse.Namespace(output=str(path), since="x"), context(tmp_path))


def test_another_image_than_in_the_side_file_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "find_image", lambda _client, _reference: OTHER)
    with pytest.raises(FindingsError, match="another image than its side file describes") as caught:
        load._loaded(context(tmp_path), CLIENT, HELD, ("stack:1",), "x.tar")
    assert (caught.value.where, "copy both again" in caught.value.hint) == ("x.tar", True)
    monkeypatch.setattr(load, "find_image", lambda _client, _reference: None)
    with pytest.raises(UnableError, match="no longer has it"):
        load._loaded(context(tmp_path), CLIENT, HELD, ("stack:1",), "x.tar")


def test_a_bundle_of_another_image_than_its_side_file_describes_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, made = write(tmp_path)
    side = SideFile("bundle", path.name, path.stat().st_size, "0" * 64, HELD)
    engine: Any = SimpleNamespace(command=lambda: ("/nowhere/docker",), client_env=dict)
    with Bundle(str(path)) as opened:
        assert opened.layers == list(made.layers)
        with pytest.raises(FindingsError, match="another image than its side file describes"):
            load._load_bundle(context(tmp_path), engine, opened, side)


@pytest.mark.parametrize("text", ["Bad Ref!!", "a b", "../x.tar", f"a/{'b' * 300}", "a@sha256:0"])
def test_since_what_is_no_reference_is_not_asked_for(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    def asked(*_args: object) -> None:
        raise AssertionError("the engine is asked")

    monkeypatch.setattr(save, "find_image", asked)
    with pytest.raises(UsageError, match="is no file, and no image on this engine"):
        save._on_engine(CLIENT, text)
    for good in ("stack:1", digest("1"), "0123456789ab"):
        with pytest.raises(AssertionError, match="asked"):
            save._on_engine(CLIENT, good)


def test_since_an_image_of_another_platform_asks_for_one_of_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save, "_on_engine", lambda _client, _since: replace(HELD, platform="linux/riscv64"))
    with pytest.raises(UsageError, match=f"old:1 is for linux/riscv64, and the image for {HELD.platform}") as caught:
        save._base("old:1", CLIENT, HELD, context(tmp_path))
    assert "for the same platform" in caught.value.hint


def write(folder: Path) -> tuple[Path, Held]:
    """A complete bundle of an image with one layer, out of what an engine saves."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w"):
        pass
    diff_id = hashlib.sha256(layer.getvalue()).hexdigest()
    saved = io.BytesIO()
    with tarfile.open(fileobj=saved, mode="w") as tar:
        for name, data in {
            f"blobs/sha256/{diff_id}": layer.getvalue(),
            "config": b"{}",
            "manifest.json": json.dumps([{"Config": "config"}]).encode(),
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    image = Held(digest("7"), "linux/amd64", ("stack:1",), (f"sha256:{diff_id}",))
    path = folder / "x.tar"

    with whole_file(path, "bundle") as part:
        part.image = made = write_bundle(part, image, None, iter([saved.getvalue()]))
    return path, made


def test_a_bundle_needs_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is full, or a small one in memory, says nothing of the room where OUTPUT is."""

    def full() -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "gettempdir", full)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", full)
    monkeypatch.setattr(tempfile, "tempdir", None)
    path, made = write(tmp_path)
    with Bundle(str(path)) as opened:
        assert opened.layers == list(made.layers)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.tar", "x.tar.json"]
