"""Why a release cannot be had, and what comes near it."""

from __future__ import annotations

import pytest

from cannery.catalog.versions import distance
from cannery.explain.io.missing import near, usable, why_not
from cannery.lock.io.listing import Listed
from cannery.lock.io.places import Place
from cannery.vocab import Arch

BOUND = "2026-06-01"
NO_FILE = (
    "no file for x86_64-manylinux_2_34 and Python 3.11; it has a-1.0-cp311-cp311-manylinux_2_28_aarch64.whl, "
    "a-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
)


def listed(version: str, name: str, **more: str) -> Listed:
    place = Place("default", "index default", "https://index.example/simple")
    return Listed("a", version, name, "", "", 0, place, **{"uploaded": "2026-01-02", **more})


def wheel(tag: str = "py3-none-any", version: str = "1.0", **more: str) -> Listed:
    return listed(version, f"a-{version}-{tag}.whl", **more)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], ""),
        ([wheel()], ""),
        ([wheel(uploaded="")], ""),
        ([wheel(uploaded=BOUND)], ""),
        ([wheel(uploaded="2026-07-01")], "uploaded 2026-07-01, later than the bound 2026-06-01"),
        (
            [wheel(uploaded="2026-07-02"), wheel(uploaded="2026-07-01")],
            "uploaded 2026-07-01, later than the bound 2026-06-01",
        ),
        ([wheel(yanked="broken")], "yanked from its index (broken)"),
        ([wheel(yanked="")], "yanked from its index"),
        (
            [wheel("cp311-cp311-manylinux_2_28_aarch64"), wheel("cp312-cp312-manylinux_2_28_x86_64")],
            NO_FILE,
        ),
        ([wheel("cp311-cp311-manylinux_2_28_aarch64"), listed("1.0", "a-1.0.tar.gz")], ""),
        ([wheel(requires_python=">=3.12")], "asks for Python >=3.12, the target has 3.11"),
        ([wheel(requires_python=">=3.9,<3.11")], ""),  # uv takes the lower end only
        ([wheel(requires_python="nonsense")], ""),
    ],
)
def test_why_a_release_does_not_count(files: list[Listed], reason: str) -> None:
    assert why_not(files, "3.11", Arch.AMD64, BOUND) == reason


def test_many_files_are_not_all_named() -> None:
    files = [wheel(f"cp39-cp39-macosx_1{n}_0_arm64") for n in range(6)]
    assert why_not(files, "3.11", Arch.AMD64, BOUND).endswith("macosx_12_0_arm64.whl and 3 more")


def test_usable_versions() -> None:
    files = [
        wheel(),
        wheel(version="2.0", uploaded="2026-08-01"),
        wheel(version="1.5", yanked="x"),
        wheel(version="1.2"),
    ]
    assert usable(files, "3.11", Arch.AMD64, BOUND) == ("1.0", "1.2")


@pytest.mark.parametrize(
    ("pin", "versions", "words"),
    [
        ("2.9.1", ["2.7.1.post2", "2.9.0", "2.9.0.post2"], "2.9.0, 2.9.0.post2"),
        ("2.7.2", ["2.7.1", "2.8.0"], "2.7.1, 2.8.0"),
        ("1.99", ["1.26.0", "1.26.4", "2.0.0", "1.25.1"], "1.26.0, 1.26.4"),
        ("3.1", ["1.0", "2.4.1", "2.5.0"], "2.4.1, 2.5.0"),
        ("1.0", ["2.0"], "2.0"),
        ("1.0", [], ""),
    ],
)
def test_nearest_versions(pin: str, versions: list[str], words: str) -> None:
    assert near(pin, versions) == words


def test_distance() -> None:
    ordered = sorted(["2.9.0", "2.9.0.post2", "2.9.2", "2.10.0", "1.9.1", "2.8.9"], key=lambda v: distance("2.9.1", v))
    assert ordered == ["2.9.0.post2", "2.9.0", "2.9.2", "2.8.9", "2.10.0", "1.9.1"]
    assert distance("2.9.1", "2.9.1") == (0, 0, 0, 0)
