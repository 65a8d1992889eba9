"""Parts of `save`, `load` and `bundle` that need no engine."""

from __future__ import annotations

import argparse
import gzip
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
from test_store import LOWER, UPPER, config_of, put, sha, special, tar_of

from cannery.build.io import disk
from cannery.commands import archive as load
from cannery.commands import archive as save
from cannery.commands.archive import bundle
from cannery.context import Context
from cannery.engine.oci import EngineImage
from cannery.errors import ExitCode, FindingsError, UnableError, UsageError
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.ship.bundle import Held, SideFile
from cannery.ship.io.archive import saved_config, saved_layers, whole_file, write_bundle
from cannery.ship.standalone.load import Bundle
from cannery.store.io.archive import load_archive
from cannery.store.io.store import Store
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def digest(digit: str) -> str:
    return f"sha256:{digit * 64}"


HELD = Held(digest("1"), "linux/amd64", ("stack:1",), (digest("2"),))
OTHER = EngineImage(digest("8"), "amd64", 7, (digest("9"),), {}, ())


def place(find: Callable[[str], EngineImage | None] = lambda _: None) -> EnginePlace:
    """An engine that is only asked for images."""

    class Place(EnginePlace):
        def find(self, name: str) -> EngineImage | None:
            return find(name)

    engine: Any = SimpleNamespace(command=lambda: ("/nowhere/docker",), arch="amd64")
    client: Any = SimpleNamespace()
    return Place(engine, client, {})


def context(folder: Path) -> Context:
    return Context(folder, folder / "cache", {}, Arch.AMD64, is_terminal=False)


def test_a_place_that_takes_no_file_is_reported_before_the_engine_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        ("pipe.tar", "it is not a regular file"),
        ("file/x.tar", "no such folder"),
        ("file/new/x.tar", "no such folder"),
        ("new/folder/x.tar", "no such folder"),
        ("x.tar.gz", "the name of the file has to end with .tar"),
        ("x", "the name of the file has to end with .tar"),
    ):
        path = tmp_path / name
        with pytest.raises(UsageError, match=words) as caught:
            bundle(argparse.Namespace(output=str(path), since=None, profile="p"), context(tmp_path))
        assert caught.value.where == str(path.parent if words == "no such folder" else path)
    (tmp_path / "old.tar").touch()
    with pytest.raises(AssertionError, match="asked"):
        bundle(argparse.Namespace(output=str(tmp_path / "old.tar"), since=None), context(tmp_path))
    assert not (tmp_path / "new").exists()


def test_a_disk_that_is_too_small_is_reported_before_a_byte_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AskedError(Exception):
        pass

    def asked(*_args: object) -> None:
        raise AskedError

    large = replace(OTHER, size=20 * 10**9)
    monkeypatch.setattr(save, "_held", lambda *_: (place(), large, HELD))
    monkeypatch.setattr(save, "save", asked)
    monkeypatch.setattr(disk, "_free", lambda _: 4_999_000_000)
    path = tmp_path / "q.tar"
    with pytest.raises(UnableError, match=r"disk for q.tar: 5,000 MB needed, 4,999 MB free"):
        bundle(argparse.Namespace(output=str(path), since=None), context(tmp_path))
    assert list(tmp_path.iterdir()) == []
    # Of a few layers nothing is known before they are there.
    monkeypatch.setattr(save, "_base", lambda *_: HELD)
    monkeypatch.setattr(disk, "_free", lambda _: 0)
    with pytest.raises(AskedError):
        bundle(argparse.Namespace(output=str(path), since="x"), context(tmp_path))


def test_another_image_than_in_the_side_file_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(FindingsError, match="its image is not the one in its side file") as caught:
        load._loaded(context(tmp_path), place(lambda _: OTHER), HELD, ("stack:1",), "x.tar")
    assert (caught.value.where, "copy both again" in caught.value.hint) == ("x.tar", True)
    with pytest.raises(UnableError, match="no longer here"):
        load._loaded(context(tmp_path), place(), HELD, ("stack:1",), "x.tar")


@pytest.mark.parametrize("force", [False, True])
def test_a_text_is_no_archive(tmp_path: Path, force: bool) -> None:
    path = tmp_path / "README.md"
    path.write_text("# Cannery\n")
    with pytest.raises(UsageError, match="this is not an archive") as caught:
        load.load_file(argparse.Namespace(file=str(path), force=force), context(tmp_path))
    assert (caught.value.where, "build.py bundle" in caught.value.hint) == (str(path), True)


def test_a_bundle_of_another_image_than_its_side_file_describes_is_not_loaded(tmp_path: Path) -> None:
    path, made = write(tmp_path)
    side = SideFile("bundle", path.name, path.stat().st_size, "0" * 64, HELD)
    with Bundle(str(path)) as opened:
        assert opened.layers == list(made.layers)
        with pytest.raises(FindingsError, match="its image is not the one in its side file"):
            load._load_bundle(context(tmp_path), place(), opened, side)


@pytest.mark.parametrize("text", ["Bad Ref!!", "a b", "../x.tar", f"a/{'b' * 300}", "a@sha256:0"])
def test_since_what_is_no_reference_is_not_asked_for(text: str) -> None:
    def asked(_name: str) -> None:
        raise AssertionError("the engine is asked")

    with pytest.raises(UsageError, match="is not a file or an image on this host"):
        save._local_image(place(asked), text)
    for good in ("stack:1", digest("1"), "0123456789ab"):
        with pytest.raises(AssertionError, match="asked"):
            save._local_image(place(asked), good)


def test_since_an_image_of_another_platform_asks_for_one_of_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save, "_local_image", lambda _place, _since: replace(HELD, platform="linux/riscv64"))
    with pytest.raises(UsageError, match=f"old:1 is for linux/riscv64, and the image for {HELD.platform}") as caught:
        save._base("old:1", place(), HELD, context(tmp_path))
    assert "for the same platform" in caught.value.hint


def write(folder: Path, cut: int | None = None) -> tuple[Path, Held]:
    """A complete bundle of an image with one layer, out of what an engine saves, or out of its first bytes."""
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

    small: dict[str, bytes] = {}
    layers = saved_layers(iter([saved.getvalue()[:cut]]), image.layers, small, folder)
    with whole_file(path) as part:
        part.image = made = write_bundle(part, image, None, layers, lambda: saved_config(small))
    return path, made


@pytest.mark.parametrize("cut", [0, 700, 2000, 12_000])
def test_an_engine_that_breaks_off_leaves_no_file(tmp_path: Path, cut: int) -> None:
    with pytest.raises(UnableError, match=r"the engine (stopped sending|did not send)"):
        write(tmp_path, cut)
    assert list(tmp_path.iterdir()) == []


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


def stored(folder: Path, *tars: bytes) -> tuple[StorePlace, EngineImage, Held]:
    """A store with an image of those layers, the image, and what is held of it."""
    store = Store(folder / "images")
    put(store, *tars, name="stack:1")
    found = store.find("stack:1")
    assert found is not None
    return StorePlace(store, {}, "arm64", folder), found, Held(found.id, found.platform, found.tags, found.layers)


def load_into(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch, arch: str = "arm64") -> Store:
    place = StorePlace(Store(folder / "other"), {}, arch, folder)
    monkeypatch.setattr(load, "kept_place", lambda _context: place)
    load.load_file(argparse.Namespace(file=str(path), force=False), context(folder))
    return place.store


def test_an_archive_without_an_image_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("manifest.json")
        member.size = 2
        tar.addfile(member, io.BytesIO(b"[]"))
    monkeypatch.setattr(load, "kept_place", lambda _: StorePlace(Store(tmp_path / "images"), {}, "arm64", tmp_path))
    with pytest.raises(FindingsError) as caught:
        load.load_file(argparse.Namespace(file=str(path), force=True), context(tmp_path))
    assert caught.value.where == str(path)


@pytest.mark.parametrize("command", ["save", "bundle"])
def test_what_a_store_writes_another_one_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    here = stored(tmp_path, LOWER, UPPER)
    monkeypatch.setattr(save, "_held", lambda *_: here)
    path = tmp_path / "b.tar"
    save.COMMANDS[command](argparse.Namespace(output=str(path), since=None), context(tmp_path))
    other = load_into(tmp_path, path, monkeypatch)
    assert other.find("stack:1") == here[1]
    with pytest.raises(FindingsError, match="this host runs linux/amd64"):
        load_into(tmp_path, path, monkeypatch, "amd64")
    with tarfile.open(path) as tar:  # as `docker load` reads it: the layers as the store has them
        names = tar.getnames()
        (contents,) = json.loads(tar.extractfile("manifest.json").read())
    blobs = [here[0].store.needed_layer(one).digest.partition(":")[2] for one in here[1].layers]
    assert contents["Layers"] == [f"blobs/sha256/{one}" for one in blobs]
    assert {"load.py", contents["Config"], *contents["Layers"]} <= set(names)
    path.write_bytes(path.read_bytes()[:-700])
    with pytest.raises(FindingsError, match="cut off"):
        load_into(tmp_path, path, monkeypatch)


def test_a_bundle_with_since_needs_its_base_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = stored(tmp_path, LOWER, UPPER)
    put(here[0].store, LOWER, name="old:1")
    monkeypatch.setattr(save, "_held", lambda *_: here)
    path = tmp_path / "b.tar"
    shared = here[0].store.layer(sha(LOWER))
    assert shared is not None
    blob = here[0].store.blob_path(shared.digest)
    size = blob.stat().st_size
    blob.write_bytes(b"x" * size)  # what the other side has is not read
    bundle(argparse.Namespace(output=str(path), since="old:1"), context(tmp_path))
    with pytest.raises(FindingsError, match="the base of this bundle is missing") as caught:
        load_into(tmp_path, path, monkeypatch)
    assert "old:1" in caught.value.hint
    Store(tmp_path / "other").add(io.BytesIO(LOWER))
    assert load_into(tmp_path, path, monkeypatch).find("stack:1") == here[1]


@pytest.mark.parametrize("broken", ["no manifest", "other layers", "no tar", "half", "odd tag", "half a layer"])
def test_an_archive_that_is_broken_names_no_image(tmp_path: Path, broken: str) -> None:
    config = config_of(sha(LOWER))
    name = "Stack:1@x" if broken == "odd tag" else "stack:1"
    contents = [{"Config": "c.json", "RepoTags": [name], "Layers": ["a/layer.tar"]}]
    layer = {"other layers": UPPER, "half a layer": gzip.compress(LOWER)[:-9]}.get(broken, LOWER)
    members = [("a/VERSION", b"1.0"), ("a/layer.tar", layer), ("c.json", config)]
    members += [] if broken == "no manifest" else [("manifest.json", json.dumps(contents).encode())]
    data = b"no tar at all" * 99 if broken == "no tar" else tar_of(*members)
    data = data[:3000] if broken == "half" else data
    store = Store(tmp_path)
    with pytest.raises(FindingsError) as caught:
        load_archive(store, iter([data]), "x.tar")
    assert (caught.value.code, caught.value.where, store.names()) == (ExitCode.FINDINGS, "x.tar", {})


def test_the_layout_of_older_engines_is_read(tmp_path: Path) -> None:
    """Layers below old ids, of which one is a link to another."""
    link = special("b/layer.tar", tarfile.SYMTYPE, "../a/layer.tar")
    contents = [{"Config": "c.json", "RepoTags": None, "Layers": ["a/layer.tar", "b/layer.tar"]}]
    members = [("a/VERSION", b"1.0"), ("a/layer.tar", LOWER), link, ("c.json", config_of(sha(LOWER), sha(LOWER)))]
    data = tar_of(*members, ("manifest.json", json.dumps(contents).encode()))
    store = Store(tmp_path)
    (image,) = load_archive(store, iter([gzip.compress(data)]), "x.tar")
    found = store.find(image)
    assert found is not None
    assert found.layers == (sha(LOWER), sha(LOWER))
