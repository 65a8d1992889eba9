"""The loader that goes along in a bundle: what it reads of engines of every age, and what it refuses."""

from __future__ import annotations

import ast
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cannery.errors import FindingsError
from cannery.ship.io.archive import held_in
from cannery.ship.standalone import load as load_bundle
from cannery.ship.standalone.load import Bundle, LoadError, _ready, check_platform, find_base, layers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCE = Path(load_bundle.__file__).read_text(encoding="utf-8")


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def tar_of(members: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return io.BytesIO(out.getvalue())


A, B, C = (text * 2000 for text in (b"layer a", b"layer b", b"layer c"))


def read(stream: io.BytesIO, wanted: Sequence[bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    small: dict[str, bytes] = {}
    found: dict[str, bytes] = {}
    for digest, content, size in layers_of(stream, [sha(one) for one in wanted], small):
        found[digest] = content.read()
        assert len(found[digest]) == size
    return found, small


def test_it_is_python_3_7_and_needs_nothing_else() -> None:
    tree = ast.parse(SOURCE, feature_version=(3, 7))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name.name for node in imported if isinstance(node, ast.Import) for name in node.names}
    names |= {str(node.module) for node in imported if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    later = {"removeprefix", "removesuffix", "file_digest", "strict", "is_relative_to", "cache"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {str(node.arg) for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    assert not used & later


def test_layers_by_their_diff_ids_and_the_documents_beside_them() -> None:
    members = {f"blobs/sha256/{sha(one)[7:]}": one for one in (A, B, C)}
    found, small = read(tar_of({**members, "manifest.json": b"[]", "blobs/sha256/1": b"{}"}), [A, C])
    assert found == {sha(A): A, sha(C): C}
    assert small == {"manifest.json": b"[]", "blobs/sha256/1": b"{}"}


def test_layers_below_old_ids_each_once() -> None:
    """Docker before 25."""
    members = {"1/VERSION": b"1.0", "1/json": b"{}", "1/layer.tar": A, "2/layer.tar": B}
    found, _ = read(tar_of(members, {"3/layer.tar": "../1/layer.tar"}), [A])
    assert found == {sha(A): A}


def test_layers_as_gzip() -> None:
    """An engine that keeps images in containerd's store."""
    members = {f"blobs/sha256/{sha(gzip.compress(one))[7:]}": gzip.compress(one) for one in (A, B)}
    found, _ = read(tar_of(members), [B])
    assert found == {sha(B): B}


def test_a_gzip_layer_of_several_members_is_read_whole() -> None:
    """As pigz and parallel packers write it."""
    packed = gzip.compress(A[:5000]) + gzip.compress(A[5000:9000]) + gzip.compress(A[9000:])
    found, _ = read(tar_of({"blobs/sha256/1": packed, "2/layer.tar": B}), [A, B])
    assert found == {sha(A): A, sha(B): B}


def test_a_gzip_layer_that_is_cut_is_an_error_of_the_archive() -> None:
    for packed in (gzip.compress(A)[:-9], gzip.compress(A)[:30], gzip.compress(A) + b"\x1f\x8b\x00"):
        with pytest.raises(tarfile.ReadError):
            read(tar_of({"blobs/sha256/1": packed}), [A])


def test_layers_as_zstd_are_not_given() -> None:
    found, _ = read(tar_of({"blobs/sha256/1": b"\x28\xb5\x2f\xfd" + A}), [A])
    assert found == {}


def bundle_file(folder: Path, about: Mapping[str, Any]) -> Path:
    path = folder / "x.tar"
    layers = {layer["member"]: b"" for layer in about["layers"]}
    path.write_bytes(tar_of({"load.py": b"", **layers, "cannery.json": json.dumps(about).encode()}).getvalue())
    return path


def about(layers: str, held: str, base: str = "") -> dict[str, Any]:
    return {
        "schema": 1,
        "image": {"id": "new", "layers": list(layers), "references": ["stack:2"], "platform": "linux/amd64"},
        "layers": [{"diff_id": one, "member": f"blobs/{one}", "bytes": 0, "sha256": "0"} for one in held],
        "config": {"member": "load.py", "bytes": 0, "sha256": "0"},
        "base": {"id": "old", "references": ["stack:1"], "layers": list(base)} if base else None,
    }


class Docker:
    """An engine with these images, by name or id: their layers."""

    def __init__(self, images: Mapping[str, str]) -> None:
        self.named = images

    def image(self, reference: str) -> dict[str, Any] | None:
        layers = self.named.get(reference)
        return None if layers is None else {"Id": f"id of {reference}", "RootFS": {"Layers": list(layers)}}

    def images(self) -> list[dict[str, Any]]:
        return [found for name in self.named if (found := self.image(name))]


def based(folder: Path, images: Mapping[str, str], **parts: str) -> dict[str, Any] | None:
    with Bundle(str(bundle_file(folder, about(**{"layers": "abcd", "held": "c", "base": "abxd", **parts})))) as bundle:
        return find_base(bundle, Docker(images))  # type: ignore[arg-type] # what it asks


def test_a_base_is_known_by_its_layers(tmp_path: Path) -> None:
    for images in ({"old": "abxd"}, {"stack:1": "abxd"}, {"old": "xx", "stack:1": "dbaz"}):
        found = based(tmp_path, images)
        assert found is not None
        assert set("abd") <= set(found["RootFS"]["Layers"])
    assert based(tmp_path, {}, held="abcd") is None
    assert based(tmp_path, {}, held="abcd", base="") is None
    elsewhere = based(tmp_path, {"scratch": "", "stack:1": "a", "renamed": "dba"})
    assert elsewhere is not None
    assert elsewhere["Id"] == "id of renamed"


@pytest.mark.parametrize("images", [{}, {"stack:1": "ab"}])
def test_a_base_that_is_missing_or_another_is_refused(tmp_path: Path, images: dict[str, str]) -> None:
    with pytest.raises(LoadError) as caught:
        based(tmp_path, images)
    assert (caught.value.code, "stack:1 (old)" in caught.value.hint) == (3, True)


@pytest.mark.parametrize(
    ("layers", "held", "base", "ready"),
    [
        ("abcd", "c", "abxd", 2),
        ("abcd", "d", "abc", 3),
        ("abcd", "a", "bcd", 0),
        ("abab", "", "ab", 2),
        ("ab", "ab", "", 0),
    ],
)
def test_only_the_lowest_layers_lie_ready(tmp_path: Path, layers: str, held: str, base: str, ready: int) -> None:
    with Bundle(str(bundle_file(tmp_path, about(layers, held, base)))) as bundle:
        assert _ready(bundle, {"RootFS": {"Layers": list(base)}}) == ready


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with pytest.raises(LoadError) as caught:
        Bundle(str(path))
    assert caught.value.code == 2
    os.mkfifo(path)
    assert load_bundle.main([str(path)]) == 2
    path.unlink()
    whole = bundle_file(tmp_path, about("ab", "ab")).read_bytes()
    for content in (
        b"",
        b"x" * 2000,
        tar_of({"x": b""}).getvalue(),
        tar_of({"cannery.json": b"{"}).getvalue(),
        whole[:900],
    ):
        path.write_bytes(content)
        with pytest.raises(LoadError) as caught:
            Bundle(str(path))
        assert (caught.value.code, "cut off, or no bundle" in caught.value.what) == (3, True)
    path.write_bytes(tar_of({"cannery.json": b'{"schema": 2}'}).getvalue())
    with pytest.raises(LoadError, match="schema 2 is not known") as caught:
        Bundle(str(path))
    assert "the load.py that is in it" in caught.value.hint


def header(size: bytes, kind: bytes) -> bytes:
    """A tar header whose size is as written, with a good sum."""
    found = bytearray(tarfile.TarInfo("cannery.json").tobuf(tarfile.GNU_FORMAT))
    found[124:136], found[156:157], found[148:156] = size, kind, b" " * 8
    found[148:156] = b"%06o\0 " % sum(found)
    return bytes(found)


@pytest.mark.parametrize("kind", [b"0", b"L", b"x", b"S", b"6"])
@pytest.mark.parametrize(
    "size", [b"\x80\x7f" + b"\xff" * 10, b"\x80\0\0\0\x7f" + b"\xff" * 7, b"77777777777\0", b"\xff" * 11 + b"\0"]
)
@pytest.mark.timeout(20)
def test_a_header_may_demand_any_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: bytes, kind: bytes
) -> None:
    path = tmp_path / "x.tar"
    for first in (b"", tarfile.TarInfo("load.py").tobuf()):
        path.write_bytes(first + header(size, kind) + bytes(2048))
        assert load_bundle.main([str(path), "--docker", "/nowhere/docker"]) == 3
        with pytest.raises(FindingsError):
            held_in(path)
    assert "Traceback" not in capsys.readouterr().err


def test_control_characters_of_a_bundle_are_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b]0;owned\x07\u202ex\r"
    path = bundle_file(
        tmp_path, {**about("abcd", "c", "abxd"), "base": {"id": hostile, "references": [], "layers": []}}
    )
    monkeypatch.setattr(load_bundle.Docker, "info", lambda _: {"Driver": "overlay2", "Architecture": "x86_64"})
    monkeypatch.setattr(load_bundle.Docker, "ask", lambda *_: None)
    assert load_bundle.main([str(path)]) == 3
    said = capsys.readouterr()
    assert "(?]0;owned??x?) first" in said.err
    image = {**about("ab", "ab")["image"], "references": [hostile]}
    path = bundle_file(tmp_path, {**about("ab", "ab"), "image": image})
    monkeypatch.setattr(load_bundle, "load", lambda *_: hostile)
    assert load_bundle.main([str(path)]) == 0
    said = capsys.readouterr()
    assert not [sign for sign in said.out + said.err if not sign.isprintable() and sign != "\n"]


def changed(**parts: object) -> str:
    return json.dumps({**about("abcd", "c", "abxd"), **parts})


LAYER = {"diff_id": "c", "member": "blobs/c", "bytes": 0, "sha256": "0"}
IMAGE = {"id": "new", "layers": ["a"], "references": ["stack:2"], "platform": "linux/amd64"}
GARBAGE = [
    *("[]", "null", "5", '"x"', '{"schema": 1}', "{}", "[" * 200_000, '{"schema": 1, "image": ' + "[" * 200_000),
    *(changed(image="x"), changed(image=[]), changed(base="x"), changed(base={"id": "old"}), changed(config=None)),
    *(changed(layers={}), changed(layers=["c"]), changed(config=5), changed(image={**IMAGE, "references": []})),
    *(changed(image={**IMAGE, "layers": "abcd"}), changed(image={**IMAGE, "references": [5]})),
    *(changed(image={**IMAGE, "platform": 5}), changed(image={**IMAGE, "id": ["new"]})),
    *(changed(layers=[{**LAYER, "bytes": -5}]), changed(layers=[{**LAYER, "bytes": "0"}])),
    *(changed(layers=[{**LAYER, "member": "absent"}]), changed(layers=[{**LAYER, "member": "folder"}])),
    *(changed(layers=[{**LAYER, "member": ["x"]}]), changed(layers=[{**LAYER, "sha256": None}])),
    '{"schema": Infinity, "image": ' + "[" * 100,
]


@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
def test_words_of_itself_that_are_garbage_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name, data in {"load.py": b"", "blobs/c": b"", "cannery.json": text.encode()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        entry = tarfile.TarInfo("folder")
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    assert load_bundle.main([str(path), "--docker", "/nowhere/docker"]) == 3
    assert capsys.readouterr().err == f"error: {path}: cut off, or no bundle\n  -> copy it again\n"
    with pytest.raises(FindingsError, match="cut off, or no bundle") as caught:
        held_in(path)
    assert caught.value.where == str(path)


def test_what_this_test_changes_is_a_bundle(tmp_path: Path) -> None:
    path = bundle_file(tmp_path, json.loads(changed(image=IMAGE, layers=[LAYER])))
    with Bundle(str(path)) as bundle:
        assert bundle.layers == ["a"]


def test_a_name_is_no_option_of_docker(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/words\necho "[{{}}]"\n')
    program.chmod(0o755)
    docker = load_bundle.Docker([str(program)])
    docker.image("--help")
    with load_bundle._saved(docker, "--version") as stream:
        stream.read()
    assert (tmp_path / "words").read_text() == "image inspect -- --help\nsave -- --version\n"


def test_a_full_temporary_folder_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bundle_file(tmp_path, about("ab", "ab"))

    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(load_bundle.tempfile, "TemporaryFile", full)
    monkeypatch.setattr(load_bundle.Docker, "info", lambda _: {"Driver": "overlay2", "Architecture": "x86_64"})
    assert load_bundle.main([str(path)]) == 4
    assert "No space left" in (said := capsys.readouterr().err)
    assert "TMPDIR" in said


def test_all_images_of_an_engine(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\n[ $2 = ls ] && printf "%s\\n" a b a || echo "[{\\"asked\\": \\"$*\\"}]"\n')
    program.chmod(0o755)
    assert load_bundle.Docker([str(program)]).images() == [{"asked": "image inspect -- a b"}]
    program.write_text("#!/bin/sh\n")
    assert load_bundle.Docker([str(program)]).images() == []


def test_another_architecture_is_refused() -> None:
    check_platform("linux/arm64", {"Architecture": "aarch64"})
    with pytest.raises(LoadError, match="the image is for linux/arm64, and this engine runs linux/amd64"):
        check_platform("linux/arm64", {"Architecture": "x86_64"})


@pytest.mark.parametrize("said", ["podman version 4.3", '{"host": {"arch": "amd64"}, "version": {}}', "[]", '"x"'])
def test_an_engine_that_is_not_dockers_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str) -> None:
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    path = bundle_file(tmp_path, about("ab", "ab"))
    assert load_bundle.main([str(path), "--docker", str(program)]) == 4
    told = capsys.readouterr().err
    assert f"{program} is not Docker's" in told
    assert "podman load -i" in told


def test_no_docker_at_all() -> None:
    with pytest.raises(LoadError, match="cannot start /nowhere/docker") as caught:
        load_bundle.Docker(["/nowhere/docker"]).info()
    assert caught.value.code == 4
    assert load_bundle.main(["/nowhere/x.tar"]) == 2
