"""The image store: what is put is found, what is half-written is not, and what is hostile is refused by name."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cannery.errors import ExitCode, FindingsError, UnableError, UsageError
from cannery.ship.io.archive import stored_layers
from cannery.store.io import store as store_module
from cannery.store.io.archive import load_archive, write_oci
from cannery.store.io.packed import inflated, pack
from cannery.store.io.store import Store
from cannery.store.io.unpack import unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners and whiteouts need root")


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def tar_of(*members: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member[0])
            data = b"" if isinstance(member, tarfile.TarInfo) else member[1]
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def config_of(*diff_ids: str, labels: Mapping[str, str] | None = None) -> bytes:
    value = {
        "architecture": "arm64",
        "os": "linux",
        "config": {"Env": ["A=1"], "Labels": labels or {}},
        "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
    }
    return json.dumps(value).encode()


def put(store: Store, *tars: bytes, name: str = "demo:1") -> str:
    diff_ids = [store.add(io.BytesIO(tar)).diff_id for tar in tars]
    return store.put(config_of(*diff_ids), name)


LOWER, UPPER = tar_of(("etc/a", b"1" * 5000)), tar_of(("etc/b", b"2"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "images")


def test_what_is_put_is_found_by_each_of_its_names(store: Store) -> None:
    image = put(store, LOWER, UPPER)
    store.tag(image, "registry.example/team/demo")
    store.tag(image, f"registry.example/team/demo@sha256:{'a' * 64}")
    for name in ("demo:1", "docker.io/library/demo:1", "registry.example/team/demo:latest", image):
        found = store.find(name)
        assert found is not None
        assert (found.id, found.arch, found.layers) == (image, "arm64", (sha(LOWER), sha(UPPER)))
        assert found.size == len(LOWER) + len(UPPER)
        assert found.tags == ("demo:1", "registry.example/team/demo:latest")
        assert found.digests == (f"registry.example/team/demo@sha256:{'a' * 64}",)
    assert store.find("demo:2") is None
    assert store.find(f"sha256:{'0' * 64}") is None
    assert store.chains() == [[sha(LOWER), sha(UPPER)]]
    shown: Any = store.attributes("demo:1")
    assert (shown["Id"], shown["Architecture"], shown["Config"]["Env"]) == (image, "arm64", ["A=1"])
    assert shown["RootFS"]["Layers"] == [sha(LOWER), sha(UPPER)]


def test_a_name_moves_and_goes(store: Store) -> None:
    first, second = put(store, LOWER), put(store, LOWER, UPPER)
    found = store.find("demo:1")
    assert found is not None
    assert (found.id, first != second) == (second, True)
    assert store.remove("demo:1")
    assert not store.remove("demo:1")
    assert store.find("demo:1") is None
    with pytest.raises(UsageError):
        store.tag(f"sha256:{'3' * 64}", "demo:2")


def test_an_image_gets_another_name_by_one_that_it_has(store: Store) -> None:
    """The moving tag is set by the full one."""
    image = put(store, LOWER)
    store.tag("demo:1", "demo:moving")
    found = store.find("demo:moving")
    assert found is not None
    assert found.id == image
    assert store.names()["demo:moving"] == image
    assert store.prune(0) == []


def test_a_layer_is_packed_once_and_gzip_stays_as_it_is(store: Store) -> None:
    packed = gzip.compress(LOWER[:700], mtime=0) + gzip.compress(LOWER[700:], mtime=0)
    layer = store.add(io.BytesIO(packed), sha(LOWER))
    assert (layer.digest, layer.size, layer.raw) == (sha(packed), len(packed), len(LOWER))
    with store.blob_path(layer.digest).open("rb") as stream:
        assert b"".join(inflated([stream.read()])) == LOWER
    assert store.layer(sha(LOWER)) == layer
    other = store.add(io.BytesIO(UPPER))
    assert other.diff_id == sha(UPPER)
    assert gzip.decompress(store.blob_path(other.digest).read_bytes()) == UPPER


def test_a_layer_that_is_there_stays_as_it_is(store: Store) -> None:
    first = store.add(io.BytesIO(gzip.compress(LOWER, 9, mtime=0)))
    os.utime(store.blob_path(first.digest), (0, 0))
    assert store.add(io.BytesIO(LOWER)) == first
    assert store.blob_path(first.digest).stat().st_mtime > time.time() - 60
    assert len(list(store.folder.glob("blobs/sha256/*"))) == 1
    assert list(store.folder.glob("writing/*")) == []


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_members_are_read_wherever_a_block_ends(cut: int) -> None:
    data = gzip.compress(b"one" * 100) + gzip.compress(b"") + gzip.compress(b"two" * 100)
    blocks = [data[start : start + cut] for start in range(0, len(data), cut)]
    assert b"".join(inflated(blocks)) == b"one" * 100 + b"two" * 100
    with pytest.raises(FindingsError, match="cut off"):
        list(inflated([data[:-4]]))
    with pytest.raises(FindingsError, match="damaged"):
        list(inflated([data, b"more than the head of a member"]))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x28\xb5\x2f\xfd zstd", "zstd"),
        (gzip.compress(LOWER)[:-6], "cut off"),
        (gzip.compress(LOWER)[:-6] + b"123456", "damaged"),
        (UPPER, "not the layer"),
    ],
    ids=["zstd", "cut", "sum", "other"],
)
def test_another_or_a_broken_layer_is_refused_and_leaves_nothing(store: Store, data: bytes, words: str) -> None:
    with pytest.raises(FindingsError, match=words):
        store.add(io.BytesIO(data), sha(LOWER))
    assert not store.knows(sha(LOWER))
    assert [path.name for path in store.folder.rglob("*") if path.is_file()] == ["writing.lock"]


def test_an_image_without_all_of_its_layers_is_none(store: Store) -> None:
    with pytest.raises(UnableError, match="does not have this layer") as caught:
        store.put(config_of(sha(LOWER)), "demo:1")
    assert (caught.value.code, store.find("demo:1")) == (ExitCode.UNABLE, None)
    put(store, LOWER)
    layer = store.layer(sha(LOWER))
    assert layer is not None
    with store.blob_path(layer.digest).open("ab") as blob:
        blob.truncate(10)
    assert not store.knows(sha(LOWER))
    assert store.find("demo:1") is None
    assert store.chains() == []


def test_broken_notes_are_as_if_they_were_not_there(store: Store) -> None:
    image = put(store, LOWER)
    for path in [*store.folder.glob("layers/*"), *store.folder.glob("names/*"), store.blob_path(image)]:
        kept = path.read_bytes()
        for broken in (b"", b"{", b"[]", b"{}", kept[:-3], b'{"name": "demo:1", "id": "demo:2"}'):
            path.write_bytes(broken)
            assert store.find("demo:1") is None
            assert store.chains() == []
            assert store.prune() == []
        path.write_bytes(kept)
    assert store.find("demo:1") is not None


KILLED = """
import io, os, signal, sys
from pathlib import Path
from cannery.store.io import store as module
from cannery.store.io.store import Store
from tests.edge.test_store import LOWER, UPPER, config_of, put, sha
store = Store(Path(sys.argv[1]))
kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "blob":
    def half(part):
        part.write(b"half")
        part.flush()
        kill()
    store.write(half)
elif sys.argv[2] == "note":
    Store.note = kill
elif sys.argv[2] == "name":
    Store._name = kill
put(store, LOWER, UPPER)
"""


@pytest.mark.parametrize("where", ["blob", "note", "name"])
def test_a_killed_run_leaves_no_image_and_the_next_one_goes_on(store: Store, where: str) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, store.folder, where], check=False)
    assert killed.returncode == -9
    assert store.find("demo:1") is None
    assert store.names() == {}
    image = put(store, LOWER, UPPER)
    assert getattr(store.find("demo:1"), "id", "") == image
    assert list(store.folder.glob("writing/*")) == []


def _put_many(folder: Path) -> None:
    store = Store(folder)
    for number in range(20):
        put(store, LOWER, tar_of((f"f{number}", b"x" * 100_000)), name=f"demo:{number}")
        store.prune()
        if os.geteuid() == 0:
            assert (store.lowers(f"demo:{number}")[1] / f"f{number}").stat().st_size == 100_000


def test_two_runs_at_once(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    runs = [context.Process(target=_put_many, args=(store.folder,)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0, 0]
    assert len(store.chains()) == len(store.names()) == 20
    assert list(store.folder.glob("unpacked/*.part")) == []


def test_prune_removes_what_no_name_has(store: Store) -> None:
    put(store, LOWER, UPPER)
    put(store, UPPER, name="other:1")
    if os.geteuid() == 0:
        store.lowers("demo:1")
    store.remove("demo:1")
    lower = store.layer(sha(LOWER))
    assert lower is not None
    (store.folder / "new").mkdir()
    (store.folder / "new/x.part").write_bytes(b"x")
    store.prune()
    assert store.knows(sha(LOWER)), "another run may be about to name it"
    time.sleep(0.01)
    assert store.blob_path(lower.digest) in store.prune(0)
    assert (store.knows(sha(LOWER)), store.knows(sha(UPPER))) == (False, True)
    assert not (store.folder / "new/x.part").exists()
    assert [path.name for path in store.folder.glob("unpacked/*") if path.is_dir()] in ([], [sha(UPPER)[7:]])
    assert store.find("other:1") is not None


def test_a_full_disk_is_reported_and_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UnableError, match="no space left on device"):
        store.add(io.BytesIO(LOWER))
    monkeypatch.undo()
    assert not store.knows(sha(LOWER))
    assert list(store.folder.glob("writing/*")) == []


@needs_root
@pytest.mark.parametrize("size", [4_000, 43_000, 50_000, 55_000])
def test_a_full_disk_while_a_layer_is_unpacked(tmp_path: Path, size: int) -> None:
    """Of larger files tar reports first how much it wrote, unless what was free is a whole number of its blocks."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", small], check=True)
    try:
        store = Store(small / "images")
        big = store.add(io.BytesIO(tar_of(*[(f"f{number}", b"x" * size) for number in range(800_000 // size)]))).diff_id
        with pytest.raises(UnableError, match="No space left"):
            store.unpacked(big)
        assert [path.suffix for path in store.folder.glob("unpacked/*")] == [".lock"]
        with pytest.raises(UnableError, match="no space left"):
            store.add(io.BytesIO(tar_of(("r", os.urandom(400_000)))))
    finally:
        subprocess.run(["umount", small], check=True)


@needs_root
def test_layers_become_folders_lowest_first(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store_module, "TAKES_LONG", 1000)
    whiteouts = tar_of(
        ("etc/.wh.a", b""), ("opt/.wh..wh..opq", b""), ("opt/new", b"n"), ("opt/.wh.new", b""), ("srv/in/x", b""),
        ("srv/.wh.in", b""), (".wh..wh.plnk", b""), special("dev/null", tarfile.CHRTYPE),
    )  # fmt: skip
    owned = tarfile.TarInfo("home/me")
    owned.uid, owned.gid, owned.mode, owned.mtime = 1234, 99, 0o4755, 1_700_000_000
    links = [special("sh", tarfile.SYMTYPE, "/bin/bash"), special("home/it", tarfile.LNKTYPE, "home/me")]
    put(store, tar_of(owned, *links), whiteouts)
    lower, upper = store.lowers("demo:1")
    status = (lower / "home/me").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), status.st_mtime) == (1234, 99, 0o4755, 1.7e9)
    assert (status.st_nlink, str((lower / "sh").readlink())) == (2, "/bin/bash")
    gone = (upper / "etc/a").lstat()
    assert (stat.S_ISCHR(gone.st_mode), gone.st_rdev) == (True, 0)
    for folder in ("opt", "srv/in"):
        assert os.getxattr(upper / folder, "trusted.overlay.opaque") == b"y"
    assert (upper / "opt/new").read_bytes() == b"n"
    names = {str(path.relative_to(upper)) for path in upper.rglob("*")}
    assert names == {"etc", "etc/a", "opt", "opt/new", "srv", "srv/in", "srv/in/x", "dev"}
    assert store.lowers("demo:1") == (lower, upper)  # made once
    assert capsys.readouterr().err == "unpacking 2 layers: 0.0 GB\n"


@needs_root
def test_a_disk_without_such_attributes_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: object) -> None:
        raise OSError(95, os.strerror(95))

    diff_id = store.add(io.BytesIO(tar_of(("opt/.wh..wh..opq", b"")))).diff_id
    monkeypatch.setattr("os.setxattr", refused)
    with pytest.raises(UnableError, match="does not keep what a layer removes"):
        store.unpacked(diff_id)
    assert not any(path.is_dir() for path in store.folder.glob("unpacked/*"))


@needs_root
@pytest.mark.parametrize(
    "members",
    [
        [("../evil", b"x")],
        [("a/../../evil", b"x")],
        [special("out", tarfile.SYMTYPE, ".."), ("out/evil", b"x")],
        [special("d", tarfile.SYMTYPE, "/tmp"), special("d/e", tarfile.DIRTYPE), ("d/e/evil", b"x")],
        [special("evil", tarfile.LNKTYPE, "../../etc/passwd")],
        [special("evil", tarfile.LNKTYPE, "/etc/passwd")],
        [special("s", tarfile.SYMTYPE, ".."), special("h", tarfile.LNKTYPE, "s"), ("h/evil", b"x")],
    ],
    ids=["above", "above-in", "link", "link-in-link", "hard", "hard-absolute", "hard-to-link"],
)
def test_a_hostile_layer_is_refused_by_name(store: Store, tmp_path: Path, members: Sequence[Any]) -> None:
    diff_id = store.add(io.BytesIO(tar_of(("fine", b"x"), *members))).diff_id
    with pytest.raises(FindingsError, match=r"evil|d/e") as caught:
        store.unpacked(diff_id)
    assert caught.value.code == ExitCode.FINDINGS
    assert list(tmp_path.rglob("evil")) == []
    assert not any(path.is_dir() for path in store.folder.glob("unpacked/*"))


@needs_root
def test_an_absolute_path_is_one_of_the_image(store: Store, tmp_path: Path) -> None:
    folder = store.unpacked(store.add(io.BytesIO(tar_of((f"{tmp_path}/evil", b"x")))).diff_id)
    assert not (tmp_path / "evil").exists()
    assert (folder / str(tmp_path)[1:] / "evil").read_bytes() == b"x"


@needs_root
def test_a_layer_that_the_disk_has_damaged_is_found_when_it_is_unpacked(store: Store) -> None:
    put(store, LOWER)
    layer = store.layer(sha(LOWER))
    assert layer is not None
    other = tar_of(("etc/a", b"2" * 5000))
    packed = io.BytesIO()
    pack(io.BytesIO(other), packed)
    data = packed.getvalue()
    store.note(type(layer)(layer.digest, len(data), layer.diff_id, layer.raw))
    store.blob_path(layer.digest).write_bytes(data)
    with pytest.raises(UnableError, match="damaged a part of this image"):
        store.unpacked(sha(LOWER))
    assert store.find("demo:1") is None
    folder = store.folder / "x"
    folder.mkdir()
    with pytest.raises(FindingsError, match="does not look like a tar"):
        unpack([b"no tar at all" * 100], folder)


@pytest.mark.timeout(30)
def test_a_file_of_absurd_size_is_refused_and_not_read_to_its_end(store: Store, tmp_path: Path) -> None:
    huge = tarfile.TarInfo("manifest.json")
    huge.pax_headers = {"size": str(10**21)}
    data = tar_of(huge)
    with pytest.raises(FindingsError, match=r"the archive is broken: 'manifest.json' claims to have 1e\+21 bytes"):
        load_archive(store, iter([data]), "x.tar")
    if os.geteuid() == 0:
        with pytest.raises(FindingsError, match=r"manifest|header|EOF"):
            unpack([data], tmp_path)


def flipped(store: Store, image: str) -> Path:
    """Change some bytes of an image's upper layer, and keep its size; return the blob."""
    found = store.find(image)
    assert found is not None
    layer = store.layer(found.layers[-1])
    assert layer is not None
    path = store.blob_path(layer.digest)
    data = bytearray(path.read_bytes())
    data[-10:-4] = bytes(byte ^ 0xFF for byte in data[-10:-4])
    path.write_bytes(data)
    return path


def test_a_damaged_layer_is_removed_so_that_it_is_made_again(store: Store, tmp_path: Path) -> None:
    for use in (
        lambda image: [stream.read() for _, stream in stored_layers(store, store.needed(image).layers, Moved())],
        lambda image: write_oci(store, image, tmp_path / "layout", "1"),
        store.lowers,
    ):
        image = put(store, LOWER, UPPER)
        blob = flipped(store, image)
        with pytest.raises(UnableError, match="damaged a part of this image") as caught:
            use(image)
        assert caught.value.hint
        assert not blob.exists()
        assert store.find(image) is None  # `image` makes what is missing
    assert store.find(put(store, LOWER, UPPER)) is not None


def test_a_disk_without_room_for_the_folders_is_reported_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, LOWER, UPPER)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(LOWER) + len(UPPER) - 1))
    with pytest.raises(UnableError, match=r"are to be unpacked, and .* are free") as caught:
        store.lowers("demo:1")
    assert (caught.value.where, (store.folder / "unpacked").exists()) == (str(store.folder), False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(LOWER) + len(UPPER)))
    monkeypatch.setattr(store, "unpacked", lambda diff_id: diff_id)
    assert len(store.lowers("demo:1")) == 2


def test_folders_have_the_time_of_the_tar_and_none_of_today(store: Store) -> None:
    def folder(name: str, time: int) -> tarfile.TarInfo:
        found = tarfile.TarInfo(name)
        found.type, found.mode, found.mtime = tarfile.DIRTYPE, 0o755, time
        return found

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for member in (folder("./listed", 7), folder("./emptied", 8)):
            tar.addfile(member)
        for name in ("listed/a", "unlisted/deep/b", "emptied/.wh.c"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    stream.seek(0)
    at = store.unpacked(store.add(stream).diff_id)
    times = {name: int((at / name).stat().st_mtime) for name in ("listed", "emptied", "unlisted", "unlisted/deep")}
    assert times == {"listed": 7, "emptied": 8, "unlisted": 0, "unlisted/deep": 0}


def test_the_umask_is_no_part_of_a_layer(store: Store) -> None:
    image = put(store, tar_of(("deep/er/file", b"1")))
    before = os.umask(0o077)
    try:
        (folder,) = store.lowers(image)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((folder / name).stat().st_mode) for name in (".", "deep", "deep/er")] == [0o755] * 3


class Moved:
    """Keeps what has moved."""

    def __init__(self) -> None:
        self.bytes = 0

    def moved(self, count: int) -> None:
        self.bytes = count

    def state(self, _state: object) -> None:
        raise AssertionError


def test_layers_for_a_bundle_are_the_stores_own_gzip(store: Store) -> None:
    put(store, LOWER, UPPER)
    view = Moved()
    found = [(layer, stream.read()) for layer, stream in stored_layers(store, [sha(UPPER), sha(LOWER)], view)]
    assert [gzip.decompress(data) for _, data in found] == [UPPER, LOWER]
    assert [f"sha256:{layer.sha256}" for layer, _ in found] == [sha(data) for _, data in found]
    assert [layer.diff_id for layer, _ in found] == [sha(UPPER), sha(LOWER)]
    assert view.bytes == sum(layer.bytes for layer, _ in found)


def assert_layout(folder: Path, tag: str, diff_ids: Sequence[str]) -> None:
    """Every digest and size of a layout is computed again."""

    def blob(descriptor: Mapping[str, Any]) -> bytes:
        data = (folder / "blobs/sha256" / descriptor["digest"].partition(":")[2]).read_bytes()
        assert (sha(data), len(data)) == (descriptor["digest"], descriptor["size"])
        assert ".oci." in descriptor["mediaType"]
        return data

    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((folder / "index.json").read_text())
    (entry,) = [one for one in index["manifests"] if one["annotations"]["org.opencontainers.image.ref.name"] == tag]
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    assert entry["platform"] == {"architecture": config["architecture"], "os": "linux"}
    assert config["rootfs"]["diff_ids"] == list(diff_ids)
    assert [sha(gzip.decompress(blob(layer))) for layer in manifest["layers"]] == list(diff_ids)


def test_a_layout_is_whole_and_keeps_its_other_tags(store: Store, tmp_path: Path) -> None:
    put(store, LOWER)
    put(store, LOWER, UPPER, name="other:2")
    folder = tmp_path / "out/layout"
    digest = write_oci(store, "demo:1", folder)
    assert_layout(folder, "1", [sha(LOWER)])
    assert write_oci(store, "demo:1", folder) == digest
    write_oci(store, "other:2", folder)
    assert_layout(folder, "1", [sha(LOWER)])
    assert_layout(folder, "2", [sha(LOWER), sha(UPPER)])
    write_oci(store, "other:2", folder, "1")
    assert_layout(folder, "1", [sha(LOWER), sha(UPPER)])


def test_a_layout_is_not_written_over_something_else(store: Store, tmp_path: Path) -> None:
    put(store, LOWER)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    for place in (tmp_path / "mine", tmp_path / "mine/file"):
        with pytest.raises(UsageError, match="no image layout"):
            write_oci(store, "demo:1", place)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]
    with pytest.raises(UnableError):
        write_oci(store, "demo:1", tmp_path / "mine/file/below")


def test_a_layout_without_room_is_none(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, LOWER)

    def full(*_args: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(UnableError, match="no space left") as caught:
        write_oci(store, "demo:1", tmp_path / "layout")
    assert str(tmp_path / "layout") in str(caught.value)
    assert [path for path in (tmp_path / "layout").rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    write_oci(store, "demo:1", tmp_path / "layout")
    assert_layout(tmp_path / "layout", "1", [sha(LOWER)])
