"""images/hashes.yaml, and the locks that take a hash from there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from checkouts import FROZEN
from pydantic import ValidationError

from cannery.catalog.addresses import Published
from cannery.catalog.errors import CatalogError
from cannery.catalog.io.read import load_catalog
from cannery.lock.lock import Lock, LockedPackage, format_lock, parse_lock, with_published
from cannery.vocab import Arch

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = "1" * 64, "2" * 64
AMD64 = "torch-2.8.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
ARM64 = "torch-2.8.0+cpu-cp311-cp311-manylinux_2_28_aarch64.whl"
OLD_PYTHON = "torch-2.8.0+cpu-cp310-cp310-manylinux_2_28_x86_64.whl"


def published(*files: dict[str, object]) -> dict[str, Published]:
    value = {"source": "lists of others", "date": "2026-11-28", "files": files}
    return {"pytorch-cpu": Published.model_validate(value)}


def lock(package: LockedPackage, arch: Arch = Arch.AMD64) -> Lock:
    return Lock("stack", "3.11", arch, "0" * 64, "2026-06-01", "uv 0", (package,))


def torch(version: str = "2.8.0+cpu", index: str = "pytorch-cpu") -> LockedPackage:
    return LockedPackage("torch", version, "", "", 0, index, ("<profile>",))


def found(lock: Lock, *files: dict[str, object]) -> tuple[str, str, int]:
    (package,) = with_published(lock, published(*files)).packages
    return package.file, package.sha256, package.size


def test_a_lock_takes_the_published_file_that_fits_its_target() -> None:
    files = [
        {"file": OLD_PYTHON, "sha256": "3" * 64},
        {"file": AMD64, "sha256": ONE},
        {"file": ARM64, "sha256": TWO, "size": 77},
    ]
    assert found(lock(torch()), *files) == (AMD64, ONE, 0)
    assert found(lock(torch(), Arch.ARM64), *files) == (ARM64, TWO, 77)


@pytest.mark.parametrize(
    ("package", "file"),
    [(torch("2.8.1+cpu"), AMD64), (torch("2.8.0"), AMD64), (torch(index="other"), AMD64), (torch(), OLD_PYTHON)],
    ids=["version", "build", "index", "python"],
)
def test_no_other_file_is_taken(package: LockedPackage, file: str) -> None:
    assert found(lock(package), {"file": file, "sha256": ONE}) == ("", "", 0)


def test_what_the_index_gave_stays() -> None:
    given = LockedPackage("torch", "2.8.0+cpu", AMD64, TWO, 5, "pytorch-cpu", ("<profile>",))
    assert found(lock(given), {"file": AMD64, "sha256": ONE}) == (AMD64, TWO, 5)


def test_an_unknown_size_survives_the_text_of_a_lock() -> None:
    made = with_published(lock(torch()), published({"file": AMD64, "sha256": ONE}))
    assert parse_lock(format_lock(made), "lock") == made
    assert made.complete


@pytest.mark.parametrize(
    "one",
    [
        {"file": "torch.tar.gz", "sha256": ONE},
        {"file": AMD64, "sha256": "1" * 63},
        {"file": AMD64, "sha256": ONE, "size": -1},
        {"file": AMD64, "sha256": ONE, "url": "https://example.org/x.whl"},
    ],
    ids=["name", "hash", "size", "key"],
)
def test_a_wrong_entry_is_refused(one: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        published(one)


def test_a_file_is_listed_once() -> None:
    with pytest.raises(ValidationError, match="twice"):
        published({"file": AMD64, "sha256": ONE}, {"file": AMD64, "sha256": TWO})


def test_the_file_names_indexes_of_the_catalog(tmp_path: Path) -> None:
    images = tmp_path / "images"
    shutil.copytree(FROZEN, images)
    text = '%s: {source: lists of others, date: "2026-11-28", files: [{file: %s, sha256: %s}]}\n'
    (images / "hashes.yaml").write_text(text % ("pytorch-cpu", AMD64, ONE[:-1] + "f"))
    assert [one.file for one in load_catalog(images).hashes["pytorch-cpu"].files] == [AMD64]
    (images / "hashes.yaml").write_text(text % ("pytorch-cpuu", AMD64, ONE[:-1] + "f"))
    with pytest.raises(CatalogError) as error:
        load_catalog(images)
    assert "images/hashes.yaml:1" in str(error.value)
    assert "pytorch-cpuu" in str(error.value)
