"""Files in the wheel store that are not the lock's any more."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from factories import package

from cannery.lock.io.wheels import damaged, is_in_store, store_path, wheel_metadata

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.lock.lock import LockedPackage


def stored(cache: Path, name: str, data: bytes) -> LockedPackage:
    found = package(name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    path = store_path(found, cache)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return found


def test_a_flipped_byte_is_found_and_the_file_removed(tmp_path: Path) -> None:
    good, bad, short = (stored(tmp_path, name, name.encode() * 9) for name in ("good", "bad", "short"))
    store_path(bad, tmp_path).write_bytes(b"b@d" + b"bad" * 8)
    store_path(short, tmp_path).write_bytes(b"short")
    gone = package("gone")
    open_one = replace(package("open"), file="", sha256="", size=0)
    assert is_in_store(bad, tmp_path), "its size is right"
    packages = (good, bad, short, gone, open_one)
    assert damaged(packages, tmp_path) == (bad, short)
    assert not store_path(bad, tmp_path).exists()
    assert is_in_store(good, tmp_path)
    assert damaged(packages, tmp_path) == ()


def test_a_rendered_folders_link_stays(tmp_path: Path) -> None:
    bad = stored(tmp_path, "bad", b"bad")
    store_path(bad, tmp_path).write_bytes(b"b@d")
    link = tmp_path / "linked.whl"
    link.hardlink_to(store_path(bad, tmp_path))
    assert damaged([bad], tmp_path) == (bad,)
    assert link.read_bytes() == b"b@d"


def test_the_metadata_of_a_wheel_is_its_own_and_no_vendored_package_s() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("demo/_vendor/other-2.0.dist-info/METADATA", "Name: other\n")
        with pytest.raises(zipfile.BadZipFile, match="no METADATA"):
            wheel_metadata(archive)
        archive.writestr("demo-1.0.dist-info/METADATA", "Name: demo\n")
        assert wheel_metadata(archive) == "Name: demo\n"
