"""What verify would find in wheels that are on this host, as findings before a build."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest
from factories import package, recipe, source_recipe, subject

from cannery.compat.io.at_hand import Wheel, wheel_findings, wheels_at_hand
from cannery.compat.rules.packages import stale_patterns
from cannery.lock.io.wheels import store_path
from cannery.vocab import Severity

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.compat.subject import Finding

CONTENT = (package("numba", "0.61.0"), package("numpy", "2.3.0"), package("ray", "2.50"))
REASON = "triton-ascend pins 1.26.4, and verl wants 2"


def found(requires: str, reason: str = REASON, **changes: object) -> list[tuple[Severity, str]]:
    bent = [{"requirement": "numpy==2.3.0", "reason": reason}] if reason else []
    one = subject(source_recipe(overrides=bent, **changes), amd64=CONTENT)
    return [(f.severity, f.code) for f in wheel_findings(one, [Wheel("numba", "0.61.0", (requires,), ())])]


BOUND, LINE = [(Severity.WARNING, "override-bound")], [(Severity.ERROR, "pip-check")]


@pytest.mark.parametrize(
    ("requires", "reason", "expected"),
    [
        ("numpy<2.3,>=1.24", REASON, BOUND),
        ("numpy==1.26.4", "others pin it, among them numb and umba", BOUND),
        ("numpy<2.3", "triton-ascend pins 1.26.4; numba 0.61 works with 2.3", []),
        ("numpy<2.3", "NUMBA says <2.3 and means nothing by it", []),
        ("numpy>=2", REASON, []),
        ("numpy<2.3; extra == 'all'", REASON, []),
        ("numpy<2.3; python_version < '3.9'", REASON, []),
        ("no requirement at all!", REASON, []),
        ("numpy<2.3", "", LINE),
        ("absent-package", "", LINE),
        ("ray<2.40", REASON, LINE),
    ],
)
def test_what_a_wheel_asks_for_is_held_against_the_set(
    requires: str, reason: str, expected: list[tuple[Severity, str]]
) -> None:
    assert found(requires, reason) == expected


@pytest.mark.parametrize("pattern", [r"^numba 0\.61\.0 has requirement numpy", "(?i)but you have numpy"])
def test_a_line_that_the_profile_allows_is_none(pattern: str) -> None:
    assert found("numpy<2.3", "", pip_check_allow=[pattern]) == []
    assert found("ray<2.40", "", pip_check_allow=[pattern]) == LINE


def test_what_is_excluded_or_a_source_may_be_asked_for() -> None:
    assert found("engine", "") == []
    excludes = [{"requirement": "absent-package", "reason": "CUDA alone uses it"}]
    assert found("absent_package>=1", "", excludes=excludes) == []


def stale(*patterns: str) -> list[Finding]:
    return list(stale_patterns(subject(source_recipe(pip_check_allow=list(patterns)), amd64=CONTENT)))


def test_a_pattern_of_another_release_is_stale() -> None:
    (one,) = stale(r"^numba 0\.60\.0 (requires|has requirement) ", r"^numba 0\.61\.0 requires x", "but you have numpy")
    assert (one.severity, one.code) == (Severity.WARNING, "pip-check-allow")
    assert "numba 0.60.0" in one.what
    assert "numba 0.61.0" in one.what
    (gone,) = stale(r"^sglang-x 0\.5\.10 requires ")
    assert "sglang-x is not in the set" in gone.what
    (dotted,) = stale(r"^ray 2\.5 has ")
    assert "the set has ray 2.50" in dotted.what
    assert not list(stale_patterns(subject(source_recipe(pip_check_allow=[r"^gone 1 requires "])))), "no lock, no word"


def write_wheel(folder: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(folder / "demo-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("demo-1.0.dist-info/METADATA", "Name: demo\nVersion: 1.0\nRequires-Dist: numpy<2\n\nText\n")
        for name, data in members.items():
            archive.writestr(name, data)


PYC = {"3.10": b"\x6f\x0d\r\n", "3.11": b"\xa7\x0d\r\n", "3.12": b"\xcb\x0d\r\n"}


@pytest.mark.parametrize(
    ("members", "unusable"),
    [
        ({"demo/a.pyc": PYC["3.12"]}, ("demo/a.pyc is byte code of Python 3.12 without its source",)),
        ({"demo/a.pyc": PYC["3.10"], "demo/b.pyc": PYC["3.11"]}, ("demo/a.pyc is byte code of Python 3.10 without",)),
        ({"demo/a.pyc": b""}, ("demo/a.pyc is byte code of Python ? without",)),
        ({"demo/a.pyc": PYC["3.11"]}, ()),
        ({"demo/a.pyc": PYC["3.12"], "demo/a.py": b""}, ()),
        ({"demo/__pycache__/a.cpython-312.pyc": PYC["3.12"]}, ()),
    ],
)
def test_byte_code_of_another_python_is_reported_where_it_has_no_source(
    tmp_path: Path, members: dict[str, bytes], unusable: tuple[str, ...]
) -> None:
    write_wheel(tmp_path, members)
    one = package("demo", "1.0", file="demo-1.0-py3-none-any.whl")
    (wheel,) = wheels_at_hand([one], tmp_path / "cache", tmp_path, "3.11")
    assert wheel.requires == ("numpy<2",)
    assert len(wheel.unusable) == len(unusable)
    assert all(text.startswith(start) for text, start in zip(wheel.unusable, unusable, strict=True))
    codes = [f.code for f in wheel_findings(subject(recipe(), amd64=(one,)), [wheel._replace(requires=())])]
    assert codes == (["wheel-module"] if unusable else [])


def test_what_is_no_wheel_is_left_to_the_build(tmp_path: Path) -> None:
    one = package("demo", "1.0", file="demo-1.0-py3-none-any.whl")
    assert not list(wheels_at_hand([one], tmp_path, None, "3.11"))
    (tmp_path / one.file).write_bytes(b"no zip")
    assert not list(wheels_at_hand([one], tmp_path, tmp_path, "3.11"))


def test_a_wheel_of_the_store_is_read_once(tmp_path: Path) -> None:
    name = "demo-1.0-py3-none-any.whl"
    write_wheel(tmp_path, {})
    one = package("demo", "1.0", file=name, sha256="a" * 64, size=(tmp_path / name).stat().st_size)
    path = store_path(one, tmp_path)
    path.parent.mkdir(parents=True)
    (tmp_path / name).rename(path)
    (first,) = wheels_at_hand([one], tmp_path, None, "3.11")
    path.write_bytes(b"x" * one.size)
    assert list(wheels_at_hand([one], tmp_path, None, "3.11")) == [first]
    assert not list(wheels_at_hand([one], tmp_path, None, "3.12"))
    (note,) = (tmp_path / "wheels/facts").iterdir()
    note.write_text("half of i")
    assert not list(wheels_at_hand([one], tmp_path, None, "3.11"))


def test_a_wheel_of_the_users_folder_is_read_each_time(tmp_path: Path) -> None:
    one = package("demo", "1.0", file="demo-1.0-py3-none-any.whl")
    for members, count in (({"demo/a.pyc": PYC["3.12"]}, 1), ({}, 0)):
        write_wheel(tmp_path, members)
        (wheel,) = wheels_at_hand([one], tmp_path / "cache", tmp_path, "3.11")
        assert len(wheel.unusable) == count
