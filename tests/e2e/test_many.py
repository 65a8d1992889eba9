"""Ten images in one command, without an engine: what they share is made once, one may fail, and skopeo reads them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cannery.context import read_context
from cannery.errors import ExitCode
from cannery.standin.io.apt import fetch_debs, host_release, unpack
from cannery.store.io.archive import write_oci
from cannery.store.io.store import Store
from cannery.util.io.files import disk_use, sha256_file
from tests.e2e.engine_fixtures import ELSEWHERE, ROOT, Cannery, bare_cache, small_checkout
from tests.images.test_lines import profile_text

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

NAMES = ("one", "two", "three", "four", "five")
CHIPS = ("910b", "a3")
SKOPEO = ("skopeo", "libgpgme11", "libassuan0", "libdevmapper1.02.1")


@pytest.fixture(scope="session")
def early() -> None:
    """These tests need no other image: none is begun beside them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout of five small profiles, and a cache that has the base's packages and the wheels alone."""
    context = read_context(ROOT)
    found = Path(tmp_path_factory.mktemp("many"))
    bare_cache(context.cache, found / "cache")
    start: Any = None  # no engine is asked
    text = profile_text(str(context.arch), ("pip", "numpy"))

    def more(images: Path) -> None:
        for name in NAMES[1:]:
            (images / f"profiles/{name}.yaml").write_text(text)

    checkout = small_checkout(Cannery(start, {}), found / "checkout", NAMES[0], text, more)
    for name in NAMES[1:]:
        checkout.build_py("lock", name)
    yield found
    shutil.rmtree(found, ignore_errors=True)


def image(folder: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    command = (
        sys.executable,
        "-c",
        ELSEWHERE,
        str(folder / "checkout"),
        "image",
        *words,
        "--output",
        "store",
        "--json",
    )
    env = {**os.environ, "CANNERY_CACHE": str(folder / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def blobs(folder: Path) -> dict[str, int]:
    """The files of the store's blobs with their sizes, but for links to wheels and byte code."""
    files = {path: path.stat() for path in (folder / "cache/images/blobs").rglob("*") if path.is_file()}
    return {str(path): found.st_size for path, found in files.items() if found.st_nlink == 1}


def test_nine_of_ten_are_made_and_what_they_share_is_written_once(folder: Path) -> None:
    code, rows, words = image(folder, NAMES[0], "--chip", ",".join(CHIPS), "--no-verify", "--keep-going")
    assert code == 0, words
    assert [row["code"] for row in rows] == [0, 0]
    before = blobs(folder)
    out = folder / "checkout/out"
    (made,) = (path for path in out.iterdir() if path.name.startswith("one-8.5.0-a3-"))
    # A file is where the folder of the tenth image has to be.
    (out / made.name.replace("one-", "five-")).write_text("")
    code, rows, words = image(folder, *NAMES, "--chip", ",".join(CHIPS), "--no-verify", "--keep-going")
    assert code == ExitCode.USAGE, words
    assert [row["code"] for row in rows] == [0] * 9 + [ExitCode.USAGE]
    assert [row["image"] for row in rows] == [f"{name} {chip}" for name in NAMES for chip in CHIPS]
    assert rows[-1]["error"]
    store = Store(folder / "cache/images")
    found = [store.find(row["references"][0]) for row in rows[:-1]]
    assert all(found)
    assert len({one.id for one in found if one}) == 9
    # A configuration and a layer of small files each; no wheel, and no base, is written again.
    new = {name: size for name, size in blobs(folder).items() if name not in before}
    assert sum(new.values()) < 10_000_000
    assert max(new.values()) < 1_000_000
    # Beside the base and the foundation, the images wrote at most 1.1 times what their wheels have.
    below = {layer for name in store.names() if name.startswith("cannery-") for layer in store.needed(name).layers}
    files, wheels = disk_use(folder / "cache/layers"), disk_use(folder / "cache/wheels")
    for layer in {layer for one in found if one for layer in one.layers} - below:
        files |= disk_use(store.blob_path(store.needed_layer(layer).digest))
    linked = sum(use.bytes for file, use in files.items() if file in wheels)
    assert 0 < sum(use.bytes for use in files.values()) - linked < 1.1 * linked


def test_skopeo_reads_a_layout_as_it_is_meant(folder: Path) -> None:
    """Debian's, unpacked: it inflates layers of many gzip members to the tars that the image's configuration names."""
    release, tools = host_release(), folder / "skopeo"
    arch = subprocess.run(("dpkg", "--print-architecture"), check=True, capture_output=True, text=True).stdout.strip()
    for deb in fetch_debs(SKOPEO, suite=release.codename, arch=arch, cache=read_context(ROOT).cache):
        unpack(deb, tools)
    store = Store(folder / "cache/images")
    name = next(name for name in store.names() if name.startswith("one:8.5.0-910b"))
    write_oci(store, name, folder / "layout", "1")
    command = (tools / "usr/bin/skopeo", "--insecure-policy", "copy", "--dest-decompress")
    libraries = ":".join(str(path) for path in tools.glob("usr/lib/*-linux-gnu"))
    done = subprocess.run(
        (*command, f"oci:{folder / 'layout'}:1", f"dir:{folder / 'read'}"),
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    layers = [one["digest"] for one in json.loads((folder / "read/manifest.json").read_text())["layers"]]
    image = store.find(name)
    assert image is not None
    assert layers == list(image.layers)
    for digest in layers:
        assert sha256_file(folder / "read" / digest[7:]) == digest[7:]
