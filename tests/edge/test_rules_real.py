"""The rules over the real table: every row as a set of its own, and each of its cells moved by one release.

The catalog here is the real table over made-up components and bases, so that rows of CANN lines without an image in
images/bases are judged too. The cases of the field run on the real catalog.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from factories import base_line, catalog, profile, subject
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cannery.catalog.compatibility import CANN, DRIVER, PYTHON
from cannery.catalog.component import parse_component
from cannery.catalog.io.read import load_catalog
from cannery.catalog.target import canonical, order
from cannery.commands.check import NOTES_SHOWN, listed
from cannery.compat.rules import check_recipe
from cannery.compat.rules.fit import fits
from cannery.compat.subject import Finding, errors
from cannery.errors import UsageError
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.compatibility import Row

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHONS = [f"3.{minor}" for minor in range(8, 15)]
# What is beside a row that says nothing of it: any target will do.
ANY_CANN, ANY_PYTHON = "8.5.0", "3.11"
HOST = {CANN, PYTHON, DRIVER}


@cache
def real() -> Catalog:
    """The catalog of images/, read when first asked for: a broken one fails tests, and not their collection."""
    return load_catalog(ROOT / "images")


def all_rows() -> tuple[Row, ...]:
    return real().compatibility.rows


def all_canns() -> list[str]:
    return sorted({row.fits[CANN] for row in all_rows() if CANN in row.fits}, key=order)


def all_cells() -> list[tuple[Row, str]]:
    """Every cell that holds a version of a distribution, as its row and key."""
    cells = [(row, key, wanted) for row in all_rows() for key, wanted in row.fits.items()]
    return [(row, key) for row, key, wanted in cells if key not in HOST and wanted[0].isdigit()]


def row_id(row: Row) -> str:
    return f"{row.of}-{row.source}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each row (`row`), or of each cell with a version (`cell`).

    Of a catalog that cannot be read there is one, which `readable` fails.
    """
    try:
        values = {"row": list(all_rows()), "cell": all_cells()}
        names = {"row": [row_id(row) for row in all_rows()], "cell": [f"{row_id(r)}-{key}" for r, key in all_cells()]}
    except UsageError:
        values = {"row": [None], "cell": [None]}
        names = {name: ["unreadable"] for name in values}
    for name in values.keys() & {*metafunc.fixturenames}:
        metafunc.parametrize(name, values[name], ids=names[name])


@pytest.fixture(autouse=True)
def readable() -> None:
    """Read the catalog, so that each test says what is wrong with one that cannot be read."""
    real()


@cache
def known_versions() -> Mapping[str, list[str]]:
    """Distribution → the versions that the table names, as a release or beside one, oldest first."""
    found: dict[str, set[str]] = {}
    for row in all_rows():
        found.setdefault(row.name, set()).add(row.version)
        for key, wanted in row.fits.items():
            if key not in HOST and wanted[0].isdigit():
                found.setdefault(key, set()).add(wanted)
    return {name: sorted(versions, key=Version) for name, versions in found.items()}


def within(wanted: str, versions: list[str]) -> str:
    """The oldest of `versions` that a cell, a version or a range, holds for; else the lower end of the range."""
    fitting = [version for version in versions if is_in(wanted, version)]
    return fitting[0] if fitting else wanted.removeprefix(">=").partition(",")[0]


def is_in(wanted: str, version: str) -> bool:
    return version == wanted or (not wanted[0].isdigit() and SpecifierSet(wanted).contains(version))


def python_for(pins: Mapping[str, str]) -> str:
    """A Python that every row of these releases holds for, as far as they say."""
    ranges = [r.fits[PYTHON] for r in all_rows() if PYTHON in r.fits and pins.get(r.name) == r.version]
    return next(python for python in (ANY_PYTHON, *PYTHONS) if all(is_in(wanted, python) for wanted in ranges))


@cache
def line(cann: str) -> object:
    """A made-up CANN line with an image of every Python."""
    made = base_line(cann)
    tags = {f"{cann}-910b-ubuntu22.04-py{python}": {"python": f"{python}.9", "atb_abi": 1} for python in PYTHONS}
    return type(made).model_validate({**made.model_dump(), "tags": tags})


@cache
def data(names: frozenset[str], cann: str) -> Catalog:
    """The real table over a wheel component for each name and one CANN line."""
    wheel = parse_component({"kind": "wheels", "summary": "made up"})
    return catalog(compatibility=real().compatibility, components=dict.fromkeys(names, wheel), bases={cann: line(cann)})


def cells(row: Row) -> dict[str, str]:
    """The set of exactly that row: distribution → version."""
    beside = {k: within(v, known_versions().get(k, [v])) for k, v in row.fits.items() if k not in HOST}
    return {row.name: row.version, **beside}


def judge(row: Row, pins: Mapping[str, str], cann: str | None = None) -> tuple[Finding, ...]:
    """Every finding about these pins on the row's Python and CANN, or on another CANN."""
    wanted = cann or row.fits.get(CANN, ANY_CANN)
    python = python_for(cells(row))
    found = data(frozenset(pins), wanted)
    components = [{"name": name, "version": version} for name, version in pins.items()]
    bound = replace(found, profiles={"set": profile(components=components, env={})})
    return check_recipe(select(bound, "set", Options(cann=wanted, python=python), Arch.AMD64), bound)


def next_release(name: str, version: str) -> str:
    """The next one that the table names; after the last, the next in number."""
    later = [other for other in known_versions()[name] if Version(other) > Version(version)]
    major, minor, micro = (*Version(version).release, 0, 0)[:3]
    return later[0] if later else f"{major}.{minor}.{micro + 1}"


rows = st.deferred(lambda: st.sampled_from(all_rows()))
canns = st.deferred(lambda: st.sampled_from(all_canns()))


def test_the_set_of_exactly_a_row_has_no_error(row: Row) -> None:
    # A row that names no torch is a set in which nothing holds it. vllm's own wheel is for CUDA, whatever fits it.
    found = [f for f in errors(judge(row, cells(row))) if f.code != "torch-free" or "torch" in row.fits]
    assert [f for f in found if f.code != "denied"] == []


def test_a_cell_moved_by_one_release_is_found_and_both_are_named(cell: tuple[Row, str]) -> None:
    row, key = cell
    moved = next_release(key, row.fits[key])
    others = [r for r in all_rows() if r.name == row.name and r.version == row.version and r.fits.get(key) == moved]
    found = judge(row, {**cells(row), key: moved})
    naming = [f for f in found if f"{row.name} {row.version}" in f.what and f"{key} {moved}" in f.what + f.why]
    assert any(f.severity is not Severity.NOTE for f in naming) or others, f"{key} {moved} passes beside {row.of}"


@settings(max_examples=100)
@given(rows, canns)
def test_a_cann_that_no_row_of_a_release_has_is_a_warning_that_names_it(row: Row, cann: str) -> None:
    same = [r for r in all_rows() if (r.name, r.version) == (row.name, row.version) and CANN in r.fits]
    if not same or cann in {r.fits[CANN] for r in same}:
        return
    found = judge(row, cells(row), cann)
    if any(real().compatibility.compatible_with(row.name, r.fits[CANN], cann) for r in same):
        assert [f for f in found if f.code == "fit-compatible" and cann in f.what]  # its makers state it: a note
        return
    warnings = [f for f in found if f.severity is not Severity.NOTE]
    assert any(f"{row.name} {row.version}" in f.what and cann in f.what + f.why for f in warnings)
    assert not [f for f in warnings if f.severity is Severity.ERROR and f.code == "fit"]


@settings(max_examples=100)
@given(rows, st.data())
def test_a_python_outside_every_range_of_a_release_is_refused_with_the_range(row: Row, choice: st.DataObject) -> None:
    same = [r for r in all_rows() if (r.name, r.version) == (row.name, row.version) and PYTHON in r.fits]
    wrong = [python for python in PYTHONS if not any(is_in(r.fits[PYTHON], python) for r in same)]
    if not same or not wrong:
        return
    python = choice.draw(st.sampled_from(wrong))
    pins = {row.name: row.version}
    found = data(frozenset(pins), ANY_CANN)
    stack = profile(components=[{"name": row.name, "version": row.version}], env={})
    bound = replace(found, profiles={"set": stack})
    findings = check_recipe(select(bound, "set", Options(python=python, cann=ANY_CANN), Arch.AMD64), bound)
    (error,) = [f for f in findings if f.code == "python-range"]
    assert error.severity is Severity.ERROR
    assert any(error.what.endswith(f"it is for Python {r.fits[PYTHON]}") for r in same)
    assert error.fix.startswith("bases that fit: ")


def test_every_cann_and_driver_of_the_table_is_understood() -> None:
    for row in all_rows():
        for key in {CANN, DRIVER} & row.fits.keys():
            assert canonical(row.fits[key])
    assert order("8.3.rc1") < order("8.5.0") < order("9.0.0")


# Cases of the field, on the real catalog


def checked(profile_name: str, *pins: str, **options: str) -> tuple[Finding, ...]:
    recipe = select(real(), profile_name, Options(pins=pins, **options), Arch.AMD64)
    return check_recipe(recipe, real())


def test_torch_2_8_0_under_torch_npu_2_7_1_offers_both_pairs_of_the_targets_cann() -> None:
    """V04 (vllm-project/vllm-ascend issue 4081)."""
    (error,) = errors(checked("quickstart", "torch==2.8.0", "torch-npu==2.7.1"))
    assert error.what == ("torch 2.8.0 and torch-npu 2.7.1 do not fit: torch-npu 2.7.1 is made for torch 2.7.1")
    assert error.fix == (
        "use torch 2.8.0 with torch-npu 2.8.0.post2, or torch 2.7.1 with torch-npu 2.7.1.post2"
        "; for the first: `--pin torch==2.8.0 --pin torch-npu==2.8.0.post2`"
    )


def exactly(
    cann: str = ANY_CANN, python: str = ANY_PYTHON, images_of: tuple[str, ...] = (), **pins: str
) -> tuple[Finding, ...]:
    """Findings about a set of wheels of exactly these pins; other CANNs than the set's that have images too."""
    named = {name.replace("_", "-"): version for name, version in pins.items()}
    found = data(frozenset(named), cann)
    stack = profile(components=[{"name": n, "version": v} for n, v in named.items()], env={})
    bases = {name: line(name) for name in (cann, *images_of)}
    bound = replace(found, profiles={"set": stack}, bases=bases)
    return check_recipe(select(bound, "set", Options(cann=cann, python=python), Arch.AMD64), bound)


def test_a_plugin_release_under_another_pair_has_both_ways_out() -> None:
    """V03 (vllm-project/vllm-ascend issue 7587)."""
    pins = {"torch": "2.8.0", "torch_npu": "2.8.0", "vllm_ascend": "0.11.0rc1"}
    (error,) = errors(exactly("8.3.rc1", **pins))
    assert error.fix == "use torch 2.7.1 and torch-npu 2.7.1 with vllm-ascend 0.11.0rc1"  # the others are for 8.3.rc2
    (error,) = errors(exactly("8.3.rc1", images_of=("8.3.rc2",), **pins))
    assert "torch 2.8.0, torch-npu 2.8.0 and vllm-ascend 0.11.0rc1 do not fit" in error.what
    assert "torch 2.7.1 and torch-npu 2.7.1 with vllm-ascend 0.11.0rc1" in error.fix
    assert "torch 2.8.0 and torch-npu 2.8.0 with vllm-ascend 0.12.0rc1" in error.fix
    assert "torch 2.8.0 and torch-npu 2.8.0 with vllm-ascend 0.13.0rc1" in error.fix


def test_torchvision_of_another_torch_says_which_one() -> None:
    """V04."""
    (error,) = errors(exactly("8.3.rc1", torch="2.7.1", torch_npu="2.7.1", torchvision="0.23.0"))
    assert error.what == "torch 2.7.1 and torchvision 0.23.0 do not fit: torchvision 0.23.0 is made for torch 2.8.0"
    assert "torch 2.7.1 with torchvision 0.22.1" in error.fix


def test_a_torch_npu_that_does_not_exist_names_the_nearest() -> None:
    """V08 (Ascend/pytorch issue 105)."""
    (finding,) = [f for f in exactly(torch="2.9.1", torch_npu="2.9.1") if f.code == "fit-unknown"]
    assert finding.severity is Severity.WARNING
    assert "2.9.0 (CANN 8.5.0)" in finding.fix
    assert "2.9.0.post2 (CANN 9.0.0)" in finding.fix


def test_a_plugin_for_a_later_patch_of_vllm_says_which() -> None:
    """V08."""
    (error,) = [f for f in errors(exactly(vllm="0.14.0", vllm_ascend="0.14.0rc1")) if f.code == "fit"]
    assert "vllm-ascend 0.14.0rc1 is made for vllm 0.14.1" in error.what


@pytest.mark.parametrize("python", ["3.9", "3.12"])
def test_a_python_that_the_plugin_does_not_take_names_the_range(python: str) -> None:
    """V14 (vllm-project/vllm-ascend issue 3657)."""
    found = errors(exactly(python=python, torch="2.8.0", torch_npu="2.8.0.post2", vllm_ascend="0.13.0"))
    expected = f"vllm-ascend 0.13.0 does not fit Python {python}: it is for Python >=3.10,<3.12"
    assert expected in {finding.what for finding in found}


def test_verls_image_on_another_cann_is_a_warning_with_both_sources() -> None:
    (finding,) = exactly("8.3.rc1", torch="2.7.1", torch_npu="2.7.1.post2")
    assert (finding.severity, finding.code) == (Severity.WARNING, "fit-disagree")
    assert "CANN 8.5.0 (Ascend/pytorch COMPATIBILITY" in finding.what
    assert "CANN 8.3.rc1 (verl's Dockerfiles" in finding.what


def test_mindspeed_rl_on_a_cann_and_python_without_an_image_lists_those_that_exist() -> None:
    """V14: MindSpeed-RL 2.2.0 wants Python 3.10 on CANN 8.3."""
    found = checked("mindspeed-rl", cann="8.3.RC1", python="3.10")
    (error,) = [f for f in found if f.code == "base-tag"]
    assert error.what == "no CANN image 8.3.rc1-910b-ubuntu22.04-py3.10 exists"
    assert "8.3.rc1-910b-ubuntu22.04-py3.11" in error.fix
    assert "8.5.0-910b-ubuntu22.04-py3.10" in error.fix


def test_every_profile_is_told_in_few_lines_and_without_error() -> None:
    for name, stack in real().profiles.items():
        for arch in stack.target.arch:
            recipe = select(real(), name, Options(arch=str(arch)), Arch.AMD64)
            found = check_recipe(recipe, real(), build_arch=Arch.AMD64)
            assert errors(found) == (), f"{name} {arch}"
            lines = sum(text.count("\n") + 1 for text in listed(found, NOTES_SHOWN))
            assert lines <= 20, f"{name} {arch}: {lines} lines"


def test_the_plugin_of_v01_passes_with_the_override_as_a_note() -> None:
    """V01 (vllm-project/vllm-ascend issue 4917), with vllm's requirement of torch by its row."""
    pins = {"torch": "2.7.1", "torch-npu": "2.7.1.post1", "vllm": "0.11.0", "vllm-ascend": "0.11.0rc3"}
    found = data(frozenset(pins), "8.3.rc2")
    reason = "vllm's build for no device runs on the torch that torch_npu has"
    stack = profile(
        components=[{"name": n, "version": v} for n, v in pins.items()],
        overrides=[{"requirement": "torch==2.7.1", "reason": reason}],
        env={},
    )
    bound = replace(found, profiles={"set": stack})
    findings = check_recipe(select(bound, "set", Options(cann="8.3.rc2"), Arch.AMD64), bound)
    assert [f.code for f in errors(findings)] == ["denied"]  # vllm's own wheel is for CUDA; a profile builds its source
    (note,) = [f for f in findings if f.code == "override"]
    assert note == Finding(Severity.NOTE, "override", "torch==2.7.1 overrides: vllm is made for torch 2.8.0", reason)
    assert list(fits(subject(select(bound, "set", Options(cann="8.3.rc2"), Arch.AMD64), bound))) == [
        f for f in findings if f.code.startswith("fit")
    ]
