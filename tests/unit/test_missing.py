"""Why a release cannot be had, and what comes near it."""

from __future__ import annotations

from dataclasses import dataclass

import factories
import pytest

from cannery.catalog.versions import distance
from cannery.explain.missing import lag, near, usable, why_not
from cannery.vocab import Arch

BOUND = "2026-06-01"
NO_FILE = (
    "no file for x86_64-manylinux_2_28 and Python 3.11; it has manylinux_2_28_aarch64 (cp311), "
    "manylinux_2_28_x86_64 (cp312)"
)


@dataclass(frozen=True)
class File:
    version: str
    file: str
    uploaded: str = "2026-01-02"
    yanked: str | None = None
    requires_python: str = ""


def wheel(tag: str = "py3-none-any", version: str = "1.0", **more: str) -> File:
    return File(version, f"a-{version}-{tag}.whl", **more)


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
        ([wheel("cp311-cp311-manylinux_2_28_aarch64"), File("1.0", "a-1.0.tar.gz")], ""),
        ([wheel(requires_python=">=3.12")], "asks for Python >=3.12, the target has 3.11"),
        ([wheel(requires_python=">=3.9,<3.11")], ""),  # uv takes the lower end only
        ([wheel(requires_python="nonsense")], ""),
    ],
)
def test_why_a_release_does_not_count(files: list[File], reason: str) -> None:
    assert why_not(files, "3.11", Arch.AMD64, BOUND) == reason


def test_many_platforms_are_not_all_named() -> None:
    files = [wheel(f"cp39-cp39-macosx_1{n}_0_arm64") for n in range(6)]
    assert why_not(files, "3.11", Arch.AMD64, BOUND).endswith("macosx_13_0_arm64 (cp39) and 2 more")


def test_usable_versions() -> None:
    files = [
        wheel(),
        wheel(version="2.0", uploaded="2026-08-01"),
        wheel(version="1.5", yanked="x"),
        wheel(version="1.2"),
    ]
    assert usable(files, "3.11", Arch.AMD64, BOUND) == ("1.0", "1.2")


@pytest.mark.parametrize(
    ("name", "pin", "versions", "words"),
    [
        ("torch-npu", "2.9.1", ["2.7.1.post2", "2.9.0", "2.9.0.post2"], "2.9.0 (CANN 8.5.0), 2.9.0.post2"),
        ("torch-npu", "2.7.2", ["2.7.1", "2.8.0"], "2.7.1 (CANN 8.3.rc1), 2.8.0 (CANN 8.3.rc1)"),
        ("numpy", "1.99", ["1.26.0", "1.26.4", "2.0.0", "1.25.1"], "1.26.0, 1.26.4"),
        ("numpy", "3.1", ["1.0", "2.4.1", "2.5.0"], "2.4.1, 2.5.0"),
        ("numpy", "1.0", ["2.0"], "2.0"),
        ("numpy", "1.0", [], ""),
    ],
)
def test_nearest_versions(name: str, pin: str, versions: list[str], words: str) -> None:
    assert near(name, pin, versions, factories.compatibility()) == words


def test_of_many_builds_those_that_the_table_knows_are_named() -> None:
    versions = [f"2.8.0.post{n}.dev1" for n in range(1, 9)] + ["2.8.0.post2", "2.8.0"]
    words = near("torch-npu", "2.8.1", versions, factories.compatibility())
    assert words.startswith("2.8.0 (CANN 8.3.rc1), 2.8.0.post2 (CANN 8.5.0), ")
    assert words.count(",") == 2


def test_distance() -> None:
    ordered = sorted(["2.9.0", "2.9.0.post2", "2.9.2", "2.10.0", "1.9.1", "2.8.9"], key=lambda v: distance("2.9.1", v))
    assert ordered == ["2.9.0.post2", "2.9.0", "2.9.2", "2.8.9", "2.10.0", "1.9.1"]
    assert distance("2.9.1", "2.9.1") == (0, 0, 0, 0)


def test_a_mirror_that_may_lag() -> None:
    files = [wheel(version="1.0", uploaded="2025-01-01"), wheel(version="0.9", uploaded="2025-02-01")]
    assert lag("1.1", files, BOUND) == "this mirror's newest is 1.0 of 2025-02-01: it may lag"
    assert lag("0.8", files, BOUND) == ""  # it has newer ones: the release is missing for another reason
    assert lag("1.1", [*files, wheel(version="0.5", uploaded="2026-05-01")], BOUND) == ""
    assert lag("1.1", [wheel(uploaded="")], BOUND) == ""
    assert lag("1.1", [], BOUND) == ""
