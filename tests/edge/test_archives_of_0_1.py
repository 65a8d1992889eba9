"""Archives, bundles and side files that Cannery 0.1.0 wrote: they are still read and loaded."""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cannery.ship.io.archive import check_file, held_in, read_side_of, side_path
from cannery.ship.standalone import load as load_bundle

FOLDER = Path(__file__).parent / "data/archives"
OLD, NEW = "old.tar", "new-since-old.tar"
# A docker command: its images are in one JSON file, {name or id: (layers, archive)}.
DOCKER = """
import gzip, hashlib, io, json, sys, tarfile
from pathlib import Path

store = Path(__file__).with_name("images.json")
images = json.loads(store.read_text()) if store.exists() else {}
words = sys.argv[1:]
if words[0] == "info":
    print(json.dumps({"Driver": "overlay2", "Architecture": "x86_64", "DriverStatus": STATUS}))
elif words[:2] == ["image", "inspect"]:
    if not set(words[3:]) <= set(images):
        sys.exit("No such image")
    found = [images[one] for one in words[3:]]
    print(json.dumps([{"Id": one["id"], "RootFS": {"Layers": one["layers"]}} for one in found]))
elif words[:2] == ["image", "ls"]:
    print(*{one["id"] for one in images.values()}, sep=chr(10))
elif words[0] == "save":
    sys.stdout.buffer.write(Path(images[words[2]]["archive"]).read_bytes())
elif words[0] == "load":
    with tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read())) as tar:
        given = {one.name: tar.extractfile(one).read() for one in tar.getmembers()}
    (contents,) = json.loads(given["manifest.json"])
    digest = "sha256:" + hashlib.sha256(given[contents["Config"]]).hexdigest()
    layers = json.loads(given[contents["Config"]])["rootfs"]["diff_ids"]
    archive = Path(__file__).with_name(digest[7:19])
    with tarfile.open(archive, "w") as tar:
        for name, layer in zip(contents["Layers"], layers):
            if name in given or not READY:
                data = gzip.decompress(given[name]) if given[name][:1] == bytes([0x1F]) else given[name]
                assert "sha256:" + hashlib.sha256(data).hexdigest() == layer, name
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    entry = {"id": digest, "layers": layers, "archive": str(archive), "given": sorted(given)}
    for name in (digest, *contents["RepoTags"]):
        images[name] = entry
    store.write_text(json.dumps(images))
"""


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """A folder with the three archives, unpacked, and their side files."""
    for file in FOLDER.iterdir():
        data = file.read_bytes()
        is_packed = file.suffix == ".xz"
        (tmp_path / (file.stem if is_packed else file.name)).write_bytes(lzma.decompress(data) if is_packed else data)
    return tmp_path


def docker(folder: Path, *, is_classic: bool) -> Path:
    program = folder / "docker"
    status = [] if is_classic else [["driver-type", "io.containerd.snapshotter.v1"]]
    program.write_text(f"#!{sys.executable}\nSTATUS, READY = {status!r}, {is_classic}\n{DOCKER}")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("name", ["old.tar.gz", OLD, NEW])
def test_side_files_are_read_and_fit_their_archives(archives: Path, name: str) -> None:
    side = read_side_of(archives / name)
    assert side is not None
    check_file(archives / name, side, SimpleNamespace(moved=lambda _: None))  # type: ignore[arg-type]
    assert (side.file, side.kind) == (name, "image" if name.endswith(".gz") else "bundle")
    assert (side.image.references, bool(side.base)) == (("stack:2",) if name == NEW else ("stack:1",), name == NEW)
    assert held_in(archives / name) == held_in(side_path(archives / name)) == side.image


@pytest.mark.parametrize("name", [OLD, NEW])
def test_a_bundle_says_the_same_as_its_side_file(archives: Path, name: str) -> None:
    side = held_in(archives / name)
    side_path(archives / name).unlink()
    assert held_in(archives / name) == side


@pytest.mark.parametrize(("is_classic", "older_loader"), [(True, False), (False, True), (False, False)])
def test_bundles_are_loaded(
    archives: Path, capsys: pytest.CaptureFixture[str], *, is_classic: bool, older_loader: bool
) -> None:
    """By the loader of today and by the one in the bundle, into both of Docker's image stores."""
    program = docker(archives, is_classic=is_classic)
    main = load_bundle.main
    if older_loader:
        with load_bundle.Bundle(str(archives / OLD)) as bundle:
            source = bundle.open("load.py").read().decode()
        space: dict[str, object] = {"__name__": "older"}
        exec(compile(source, "load.py", "exec"), space)
        main = space["main"]  # type: ignore[assignment] # it has the same signature
    assert main([str(archives / NEW), "--docker", str(program)]) == 3  # its base is not there
    assert "stack:1" in capsys.readouterr().err
    for name in (OLD, NEW):
        assert main([str(archives / name), "--docker", str(program)]) == 0
        side = read_side_of(archives / name)
        assert side is not None
        assert capsys.readouterr().out == f"{side.image.references[0]} ({side.image.id})\n"
    images = json.loads((archives / "images.json").read_text())
    side = read_side_of(archives / NEW)
    assert side is not None
    assert images["stack:2"]["layers"] == list(side.image.layers)
    # The classic store has the lowest layer already; the third comes out of the base.
    assert len([one for one in images["stack:2"]["given"] if one.startswith("blobs/")]) == (3 if is_classic else 4)
