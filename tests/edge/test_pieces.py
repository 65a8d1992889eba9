"""Layers of which the store writes only what is new: the rest is in wheels, to which it has links."""

from __future__ import annotations

import errno
import io
import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cannery.assemble.content import Content, Made, Place, Wheel
from cannery.assemble.io.layer import write_layer
from cannery.assemble.io.sink import GzipSink, TarSink
from cannery.errors import UnableError
from cannery.store.io.archive import write_oci
from cannery.store.io.store import Store
from cannery.util.addresses import digest_of
from tests.edge.test_store import config_of
from tests.unit.test_sink import LARGE, packed_wheel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cannery.store.describe import Layer
    from cannery.store.io.pieces import PiecesPart

PLACE = Place("3.11", 1_700_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "images")


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    """Two wheels with large files and small ones."""
    files = {"a.bin": LARGE, "b.py": "b = 1\n", "c.bin": LARGE[::-1]}
    return [
        packed_wheel(tmp_path, {f"{name}/{path}": text for path, text in files.items()}, name=name)
        for name in ("one", "two")
    ]


def content_of(wheels: Sequence[Path]) -> Content:
    return Content(tuple(Wheel(wheel, "x") for wheel in wheels))


def kept(store: Store, wheels: Sequence[Path]) -> Layer:
    return store.write(lambda part: write_layer(content_of(wheels), PLACE, [], part, GzipSink))


def tar_of_wheels(wheels: Sequence[Path]) -> bytes:
    stream = io.BytesIO()
    write_layer(content_of(wheels), PLACE, [], stream, TarSink)
    return stream.getvalue()


def content(store: Store, layer: Layer) -> bytes:
    return b"".join(store.blocks(layer))


def test_only_what_is_in_no_wheel_is_written(store: Store, wheels: Sequence[Path]) -> None:
    layer = kept(store, wheels)
    assert store.layer(layer.diff_id) == layer
    folder = store.blob_path(layer.digest)
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1", "2", "pieces.json"]
    assert [(folder / str(1 + number)).samefile(wheel) for number, wheel in enumerate(wheels)] == [True, True]
    assert layer.size > 4 * len(LARGE) / 8 * 3, "three bits a letter"
    assert (folder / "0").stat().st_size < layer.size / 10
    data = content(store, layer)
    assert (digest_of(data), len(data)) == (layer.digest, layer.size)
    other = Store(store.folder.with_name("other"))
    assert other.add(io.BytesIO(data), layer.diff_id).raw == len(tar_of_wheels(wheels))


def test_it_is_read_from_any_byte_on(store: Store, wheels: Sequence[Path]) -> None:
    """A push goes on from the byte that the registry has."""
    layer = kept(store, wheels)
    data = content(store, layer)
    chance = random.Random(1)
    for start in (0, 1, len(data) - 1, len(data), *(chance.randrange(len(data)) for _ in range(50))):
        with store.open(layer, start) as stream:
            assert stream.readall() == data[start:]
    with store.open(layer) as raw:
        stream = io.BufferedReader(raw)
        assert stream.seek(-10, os.SEEK_END) == len(data) - 10
        assert stream.read() == data[-10:]


def test_a_wheel_that_goes_from_the_cache_stays_in_the_layer(store: Store, wheels: Sequence[Path]) -> None:
    layer = kept(store, wheels)
    data = content(store, layer)
    for wheel in wheels:
        wheel.unlink()
    assert store.is_on_disk(layer.diff_id)
    assert content(store, layer) == data
    assert (store.unpacked(layer.diff_id) / "opt/venv").is_dir()


def test_a_wheel_that_is_changed_damages_the_layer_which_is_made_again(store: Store, wheels: Sequence[Path]) -> None:
    layer = kept(store, wheels)
    good = wheels[0].read_bytes()
    with wheels[0].open("r+b") as stream:  # the same file, as an editor in place would
        stream.seek(len(good) // 2)
        stream.write(b"damage")
    with pytest.raises(UnableError, match="the disk has damaged a part of this image"):
        content(store, layer)
    assert not store.is_on_disk(layer.diff_id)
    wheels[0].write_bytes(good)
    again = kept(store, wheels)
    assert again == layer
    assert digest_of(content(store, again)) == layer.digest


@pytest.mark.parametrize("name", ["0", "1", "2", "pieces.json"])
@pytest.mark.parametrize("instead", ["", "cut", "folder", "pipe", "link"])
def test_a_layer_without_one_of_its_files_is_none(
    store: Store, wheels: Sequence[Path], name: str, instead: str
) -> None:
    """`prune` may have been killed while it removed the folder."""
    layer = kept(store, wheels)
    image = store.put(config_of(layer.diff_id), "demo:1")
    path = store.blob_path(layer.digest) / name
    assert str(path) in store.files_of(image, ["demo:1"])[1], "a stamp looks at each of them"
    data = path.read_bytes()
    path.unlink()
    if instead == "cut":
        path.write_bytes(data[:-1])
    elif instead == "folder":
        path.mkdir()
    elif instead == "pipe":
        os.mkfifo(path)
    elif instead == "link":
        path.symlink_to("/dev/zero")
    if (name, instead) == ("pieces.json", "cut"):
        with pytest.raises(UnableError, match="the disk has damaged a part of this image"):
            content(store, layer)
    assert store.layer(layer.diff_id) is None
    assert store.find("demo:1") is None
    assert kept(store, wheels) == layer


def test_a_wheel_that_is_replaced_while_it_is_read_is_written(store: Store, wheels: Sequence[Path]) -> None:
    """Two runs compile the same byte code, and the later one replaces the zip file that the other has opened."""

    def write(part: PiecesPart) -> Made:
        with wheels[0].open("rb") as file:
            other = wheels[0].with_name("other")
            other.write_bytes(wheels[1].read_bytes())
            other.replace(wheels[0])
            data = file.read()
            part.copy(file, 0, data)
        return Made(digest_of(data), len(data))

    layer = store.write(write)
    assert layer.files == ()
    assert digest_of(content(store, layer)) == layer.digest
    assert list(store.folder.glob("writing/*")) == []


def test_many_small_pieces_are_read_at_once(store: Store, wheels: Sequence[Path]) -> None:
    layer = kept(store, wheels)
    with store.open(layer) as stream:
        assert stream.read(layer.size) == content(store, layer)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[[0,",
            "\xff",
            "[" * 100_000,
            "5",
            "null",
            "{}",
            '{"a": 1}',
            "[]",
            "[[]]",
            "[0]",
            "[[0,0]]",
            "[[0,0,5,7]]",
        ),
        *("[[7,0,5]]", "[[0,5,5],[1,0,999999999]]", "[[0,0,5]]", "[[-1,0,5]]", "[[0,-5,5]]", "[[0,0,-5]]"),
        *(
            '[["0",0,5]]',
            "[[0.0,0,5]]",
            "[[0,0.5,5]]",
            "[[0,0,NaN]]",
            "[[0,Infinity,5]]",
            "[[0,0,[5]]]",
            "[[0,true,5]]",
        ),
        *(f"[[{10**30},0,5]]", f"[[0,{10**30},5]]", f"[[0,0,{10**30}]]", f"[{','.join(['[1,0,99]'] * 100_000)}]"),
    ],
)
def test_a_damaged_list_of_pieces_is_a_damaged_layer(store: Store, wheels: Sequence[Path], text: str) -> None:
    layer = kept(store, wheels)
    (store.blob_path(layer.digest) / "pieces.json").write_text(text)
    with pytest.raises(UnableError, match="the disk has damaged a part of this image"):
        content(store, layer)
    assert not store.is_on_disk(layer.diff_id)
    assert kept(store, wheels) == layer


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_no_link_can_be_made_all_is_written(
    store: Store, wheels: Sequence[Path], monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    linked = kept(store, wheels)

    def refused(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("os.link", refused)
    other = Store(store.folder.with_name("other"))
    layer = kept(other, wheels)
    assert replace(linked, files=()) == layer
    assert other.blob_path(layer.digest).stat().st_size == layer.size
    assert content(other, layer) == content(store, linked)


def test_a_wheel_that_is_a_link_is_linked_as_its_file(store: Store, wheels: Sequence[Path]) -> None:
    file = wheels[0].rename(wheels[0].with_name("moved"))
    wheels[0].symlink_to(file.name)
    layer = kept(store, wheels)
    assert digest_of(content(store, layer)) == layer.digest
    assert not (store.blob_path(layer.digest) / "1").is_symlink()


def test_it_replaces_what_was_left_under_its_digest(store: Store, wheels: Sequence[Path]) -> None:
    layer = kept(store, wheels)
    for path in store.folder.glob("layers/*"):
        path.unlink()
    assert kept(store, wheels) == layer, "a folder"
    for path in store.folder.glob("layers/*"):
        path.unlink()
    packed = content(store, layer)
    assert store.add(io.BytesIO(packed)) == replace(layer, files=()), "a file instead of it"
    assert content(store, layer) == packed


def test_a_layout_gets_the_layer_as_one_file(store: Store, wheels: Sequence[Path], tmp_path: Path) -> None:
    layer = kept(store, wheels)
    store.put(config_of(layer.diff_id), "demo:1")
    write_oci(store, "demo:1", tmp_path / "layout")
    assert (tmp_path / "layout/blobs/sha256" / layer.digest[7:]).read_bytes() == content(store, layer)


def test_prune_removes_the_folder_and_no_wheel(store: Store, wheels: Sequence[Path]) -> None:
    layer = kept(store, wheels)
    folder = store.blob_path(layer.digest)
    assert store.prune() == [], "another run may be about to name it"
    assert folder.is_dir()
    assert folder in store.prune(0)
    assert not folder.exists()
    assert all(wheel.is_file() for wheel in wheels)
