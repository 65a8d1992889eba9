"""What a tree's files ask for, held against the component's words."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from cannery.catalog.component import Revision
from cannery.errors import UnableError
from cannery.sources.io.planned_sources import requirement_doubts

if TYPE_CHECKING:
    from pathlib import Path


def tree(folder: Path, **files: str) -> Path:
    path = folder / "name.tar"
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_txt", ".txt"))
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def known(*requires: str, places: tuple[str, ...] = ("requirements.txt",)) -> Revision:
    return Revision(version="1", requires=requires, requires_from=places, source="read")


def test_a_tree_that_asks_for_what_is_known_raises_no_doubt(tmp_path: Path) -> None:
    tar = tree(tmp_path, requirements_txt="torch == 2.8.0\nNumPy<2\n", README="numpy>=9")
    assert [*requirement_doubts(tar, known("numpy<2", "torch==2.8.0"))] == []


def test_differences_are_named_and_counted(tmp_path: Path) -> None:
    tar = tree(tmp_path, requirements_txt="numpy>=2\n" + "".join(f"x{i}\n" for i in range(5)))
    (text,) = requirement_doubts(tar, known("numpy<2"))
    assert text.startswith(
        "asks for other packages than the lock was made from: numpy: known has numpy<2, the tree has "
    )
    assert text.endswith("; and 2 more")


def test_a_missing_place_is_reported(tmp_path: Path) -> None:
    assert [*requirement_doubts(tree(tmp_path), known(places=("sub/setup.py",)))] == ["sub/setup.py is not in the tree"]


def test_a_revision_without_places_is_not_looked_at(tmp_path: Path) -> None:
    assert [*requirement_doubts(tmp_path / "absent.tar", known("numpy", places=()))] == []


def test_a_damaged_tar_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.tar").write_bytes(b"x" * 2000)
    with pytest.raises(UnableError, match=r"bad.tar cannot be read"):
        list(requirement_doubts(tmp_path / "bad.tar", known("numpy")))
