"""A layer as gzip of many members: the same tar as without, whatever a wheel's files are packed by."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies

from cannery.assemble.content import Content, Made, Place, Wheel
from cannery.assemble.io import sink as sink_module
from cannery.assemble.io.layer import write_layer
from cannery.assemble.io.sink import SMALL, GzipSink, TarSink
from cannery.assemble.io.wheel_files import WheelError
from cannery.ship.standalone.load import layers_of
from cannery.store.describe import Blob
from cannery.store.io import packed
from cannery.store.io.packed import inflated
from cannery.store.io.pieces import Pieces, PiecesPart
from cannery.util.addresses import digest_of
from tests.edge.test_store import tar_of
from tests.unit.test_wheel_files import make

if TYPE_CHECKING:
    from collections.abc import Mapping

PLACE = Place("3.11", 1_700_000_000)
# Text that packs to more than `SMALL` bytes.
LARGE = "".join(random.Random(1).choices("abcdefgh", k=4 * SMALL))


@pytest.fixture(params=["zlib", "isal.isal_zlib"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What packs: isal, and zlib where there is none."""
    module = pytest.importorskip(request.param)
    for user in (sink_module, packed):
        monkeypatch.setattr(user, "deflate", module)


def packed_wheel(folder: Path, files: Mapping[str, str], kind: int = zipfile.ZIP_DEFLATED, name: str = "demo") -> Path:
    """A wheel whose members are packed by `kind`; `make` stores them."""
    path = make(folder, files, name)
    with zipfile.ZipFile(path) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for info, data in members:
            archive.writestr(info.filename, data, kind)
    return path


def written(wheel: Path, sink: type[TarSink]) -> tuple[Made, bytes]:
    content = Content((Wheel(wheel, "x"),), texts={"/a": "b"})
    if sink is TarSink:
        stream = io.BytesIO()
        return write_layer(content, PLACE, [], stream), stream.getvalue()
    with tempfile.TemporaryDirectory() as folder, PiecesPart(Path(folder, "part")) as part:
        made, path = write_layer(content, PLACE, [], part, sink), part.end()
        data = Pieces(path, part.blob.size).readall() if path.is_dir() else path.read_bytes()
    assert part.blob == Blob(digest_of(data), len(data))
    return made, data


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_the_layer_is_the_same_as_gzip(tmp_path: Path, kind: int) -> None:
    files = {"demo/a.py": LARGE, "demo/b.py": "b = 1\n", "demo/c.bin": LARGE, "demo/d.py": "", "demo/e.bin": LARGE}
    wheel = packed_wheel(tmp_path, files, kind)
    (made, tar), (also, data) = written(wheel, TarSink), written(wheel, GzipSink)
    assert (made, len(tar)) == (also, made.size)
    assert gzip.decompress(data) == b"".join(inflated([data])) == tar
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo("demo/a.py")
        start = info.header_offset + 30 + len(info.filename)
        stream = wheel.read_bytes()[start : start + info.compress_size]
    assert data.count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + stream) == (
        3 if kind == zipfile.ZIP_DEFLATED else 0
    )


def test_a_bundles_loader_reads_such_a_layer(tmp_path: Path) -> None:
    made, data = written(packed_wheel(tmp_path, {"demo/a.bin": LARGE, "demo/b.bin": LARGE}), GzipSink)
    saved = io.BytesIO(tar_of(("blobs/sha256/x", data)))
    found = [(digest, stream.read()) for digest, stream, _ in layers_of(saved, [made.diff_id], {})]
    assert found == [(made.diff_id, gzip.decompress(data))]


@settings(max_examples=30, deadline=None)
@given(strategies.lists(strategies.integers(0, 3), max_size=8), strategies.integers(0, 2**31))
def test_any_row_of_files_is_the_same(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seed: int) -> None:
    letters = random.Random(seed)
    texts = ["".join(letters.choices("abcd", k=letters.randrange(1 + (size * SMALL)))) for size in sizes]
    files = {f"demo/{number}.txt": text for number, text in enumerate(texts)}
    wheel = packed_wheel(tmp_path_factory.mktemp("wheel"), files)
    (made, tar), (also, data) = written(wheel, TarSink), written(wheel, GzipSink)
    assert made == also
    assert b"".join(inflated([data])) == tar


def changed(wheel: Path, what: str) -> None:
    """Damage the packed bytes of demo/a.bin, or what the archive's directory says of them."""
    data = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo("demo/a.bin")
        entry = data.index(b"PK\x01\x02", archive.start_dir)
        while data[entry + 46 : entry + 56] != b"demo/a.bin":
            entry = data.index(b"PK\x01\x02", entry + 4)
    body = info.header_offset + 30 + len(info.filename)
    if what == "bytes":
        data[body + 3000] ^= 0xFF
    elif what == "end":
        data[body + info.compress_size - 4 : body + info.compress_size] = b"\xff" * 4
    elif what == "sum":
        data[entry + 16] ^= 1
    elif what == "size":
        data[entry + 24 : entry + 28] = struct.pack("<I", info.file_size - 5)
    else:
        data[entry + 20 : entry + 24] = struct.pack("<I", info.compress_size - 5)
    wheel.write_bytes(data)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("what", ["bytes", "end", "sum", "size", "packed size"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, what: str) -> None:
    wheel = packed_wheel(tmp_path, {"demo/a.bin": LARGE})
    changed(wheel, what)
    with pytest.raises(WheelError, match=r"demo-1\.0-py3-none-any\.whl: demo/a\.bin is damaged"):
        written(wheel, GzipSink)
