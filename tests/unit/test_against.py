"""An image against itself and against profiles: what differs, by weight, how far it is, and the report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import factories
import pytest
from factories import package
from seen_images import ENV, HOME, STACK, seen, toolkit

from cannery.against.compare import (
    Comparison,
    Difference,
    Expected,
    Kind,
    compare,
    expected,
    is_equal,
    nearest,
    report_lines,
)
from cannery.catalog.compatibility import Compatibility
from cannery.catalog.component import Import
from cannery.recipe.recipe import Options
from cannery.vocab import Install

if TYPE_CHECKING:
    from cannery.against.compare import Image
    from cannery.recipe.recipe import Recipe

WITHOUT_OTHERS = {"vllm": "0.1", "pip": "25.0"}


def want(options: Options | None = None) -> Expected:
    recipe = factories.recipe(options)
    return expected(recipe, factories.lock(recipe), factories.catalog())


def with_table(table: Compatibility) -> Expected:
    return replace(want(), catalog=factories.catalog(compatibility=table))


def against(one: Image, wanted: Expected | None = None) -> Comparison:
    return compare(wanted or want(), one)


def told(found: Comparison, *, notes: bool = False) -> list[tuple[Kind, str, str, str]]:
    """(kind, subject, wanted, found) of the differences; of those that matter alone unless `notes`."""
    return [(d.kind, d.subject, d.wanted, d.found) for d in found.differences if notes or d.kind is not Kind.NOTE]


def changed(**versions: str) -> dict[str, str]:
    return {**STACK, **versions}


def test_an_equal_image() -> None:
    found = against(seen())
    assert (found.differences, found.extras, found.distance, found.is_equal) == ((), (), (0, 0.0), True)
    assert len(found.equal) == 6


def test_what_breaks_first_comes_first() -> None:
    packages = changed(torch="2.8.0", numpy="1.26.4", ray="2.49.0")
    del packages["sympy"]
    found = against(seen(packages, env={**ENV, "RAY_OPTIONS": ""}))
    assert told(found) == [
        (Kind.UNFIT, "torch-npu 2.9.0", "torch 2.9.0", "torch 2.8.0"),
        (Kind.BREAKS, "torch", "2.9.0+cpu", "2.8.0"),
        (Kind.MISSING, "sympy", "1.14.0", ""),
        (Kind.VERSION, "ray", "2.50.0", "2.49.0"),
        (Kind.VERSION, "numpy", "2.3.0", "1.26.4"),
        (Kind.ENVIRONMENT, "RAY_OPTIONS", '--say "it\'s $here"', ""),
    ]
    assert found.equal == {"antlr4", "torch-npu"}
    assert not found.is_equal


@pytest.mark.parametrize(
    ("wanted", "found", "equal"),
    [
        ("2.9.0+cpu", "2.9.0", True),
        ("2.9.0", "2.9.0+cpu", True),
        ("0.10.1", "0.10.1+empty", True),
        ("2.9.0+cpu", "2.9.0+cu128", False),
        ("2.9.0", "2.9.0+cu128", False),
        ("2.9.0", "2.9", True),
        ("2.9.0", "2.9.0.post1", False),
        ("2.9.0", "", False),
        ("2.9.0", "no version", False),
    ],
)
def test_which_versions_are_one_package(wanted: str, found: str, *, equal: bool) -> None:
    assert is_equal(wanted, found) is equal


def test_both_tritons_and_cuda_break() -> None:
    found = against(
        seen(changed(triton="3.2.0", triton_ascend="3.2.0", nvidia_cublas_cu12="12.4", nvidia_nccl_cu12="2"))
    )
    assert told(found) == [
        (Kind.BREAKS, "one folder for two", "one of them", "triton 3.2.0 and triton-ascend 3.2.0"),
        (Kind.BREAKS, "nvidia-*", "none", "nvidia-cublas-cu12, nvidia-nccl-cu12"),
    ]
    assert found.extras == ("nvidia-cublas-cu12 12.4", "nvidia-nccl-cu12 2", "triton 3.2.0", "triton-ascend 3.2.0")


def test_packages_beside_the_profile_are_no_difference() -> None:
    found = against(seen(changed(**WITHOUT_OTHERS)))
    assert (found.extras, found.differences) == (("vllm 0.1",), ())


def test_another_cann_and_python() -> None:
    home = "/usr/local/Ascend/cann-8.3.rc1"
    env = {**ENV, "ASCEND_TOOLKIT_HOME": home, "PATH": "/opt/v/bin"}
    found = against(seen(env=env, python="3.10", versions=toolkit("8.3.rc1")))
    assert told(found) == [
        (Kind.BREAKS, "CANN", "8.5.0", "8.3.rc1"),
        (Kind.BREAKS, "Python", "3.11", "3.10"),
    ]


def test_nothing_there_at_all() -> None:
    found = against(seen({}, env={}, python="", versions={}))
    assert found.distance == (0, 1.0)
    kinds = {kind for kind, *_ in told(found)}
    assert kinds == {Kind.BREAKS, Kind.MISSING, Kind.ENVIRONMENT}
    assert (Kind.BREAKS, "Python", "3.11", "none that has packages") in told(found)


def test_an_os_alone_is_a_note_and_on_a_stand_in_nothing() -> None:
    debian = {"/usr/lib/os-release": "ID=debian\nVERSION_ID=12\n"}
    assert told(against(seen(texts=debian)), notes=True) == [(Kind.NOTE, "OS", "ubuntu22.04", "debian12")]
    assert against(seen(texts=debian), want(Options(base="standin"))).differences == ()


def test_a_toolkit_home_by_another_name_is_the_same() -> None:
    assert against(seen(env={**ENV, "ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/latest"})).differences == ()


# The image against itself.


def unfit(found: Comparison) -> list[tuple[str, str, str]]:
    return [(d.subject, d.wanted, d.found) for d in found.differences if d.kind is Kind.UNFIT]


def rows(*found: dict[str, object]) -> Compatibility:
    source = {"what": "a table", "rank": "table", "date": "2026-11-01"}
    return Compatibility.model_validate({"sources": {"t": source}, "rows": [{**row, "source": "t"} for row in found]})


def test_what_the_table_rules_out_comes_first() -> None:
    table = rows(
        {"of": "torch-npu==2.8.0.post2", "fits": {"torch": "2.8.0", "cann": "8.5.0"}},
        {"of": "torchvision==0.23.0", "fits": {"torch": "2.8.0"}},
    )
    packages = {"torch": "2.7.1", "torchvision": "0.23.0", "torch_npu": "2.8.0.post2"}
    found = against(seen(packages), with_table(table))
    assert [one.kind for one in found.differences[:2]] == [Kind.UNFIT, Kind.UNFIT]
    assert unfit(found) == [
        ("torch-npu 2.8.0.post2", "torch 2.8.0", "torch 2.7.1"),
        ("torchvision 0.23.0", "torch 2.8.0", "torch 2.7.1"),
    ]


def test_a_torch_npu_of_another_number_than_torch_without_any_row() -> None:
    found = against(seen(changed(torch="2.8.0", torch_npu="2.9.0.post9")), with_table(rows(
        {"of": "ray==1", "fits": {"python": "3.11"}})))  # fmt: skip
    assert unfit(found) == [("torch-npu 2.9.0.post9", "torch 2.9.0", "torch 2.8.0")]


def test_one_row_that_holds_is_enough_and_a_cann_is_a_note() -> None:
    table = rows(
        {"of": "torch-npu==2.9.0", "fits": {"torch": "2.9.0", "cann": "8.3.rc1"}},
        {"of": "numpy==2.2.0", "fits": {"ray": "2.49.0", "cann": "8.3.rc1"}},
        {"of": "numpy==2.2.0", "fits": {"ray": "2.50.0", "cann": "8.5.0"}},
    )
    found = against(seen(changed(torch_npu="2.9.0+x", numpy="2.2.0")), with_table(table))
    assert unfit(found) == []
    found = against(seen(changed(torch_npu="2.9.0.post1")), with_table(rows(
        {"of": "torch-npu==2.9.0.post1", "fits": {"cann": "8.3.rc1"}})))  # fmt: skip
    assert [(d.kind, d.found) for d in found.differences if d.wanted == "CANN 8.3.rc1"] == [(Kind.NOTE, "CANN 8.5.0")]


def test_what_the_metadata_of_packages_rules_out() -> None:
    requires = {
        "mine": ("torch==2.8.0", "ray>=2", "absent>=1", "numpy<1; python_version<'3'", "no name"),
        "torch": ("sympy>99",),  # a pair that is the profile's own
    }
    found = against(seen(changed(mine="1.0"), requires=requires))
    assert unfit(found) == [("mine 1.0", "torch ==2.8.0", "torch 2.9.0+cpu")]


# Sources.

SOURCES = {"torch": "2.9.0", "torch_npu": "2.9.0", "engine": "0.11.0", "kernels": "1.2.0", "plugin": "1.0"}


def of_sources(recipe: Recipe | None = None) -> Expected:
    found = recipe or factories.source_recipe()
    lock = replace(factories.lock(found), packages=(package("torch", "2.9.0"), package("torch-npu", "2.9.0")))
    return expected(found, lock, factories.catalog())


def test_sources_count_by_their_version() -> None:
    found = against(seen(SOURCES), of_sources())
    assert (found.differences, len(found.equal), found.distance) == ((), 5, (0, 0.0))
    other = against(seen({**SOURCES, "plugin": "2.0", "kernels": "1.2.0+g0123456"}), of_sources())
    assert told(other) == [(Kind.VERSION, "plugin", "1.0", "2.0")]
    assert 0 < other.distance[1] < 0.5
    gone = {name: version for name, version in SOURCES.items() if name != "engine"}
    assert told(against(seen(gone), of_sources())) == [(Kind.MISSING, "engine", "0.11.0", "")]


def test_a_source_of_the_profile_fits_the_rest_of_the_profile() -> None:
    """Overrides decide what is beside a source, whatever its metadata asks for."""
    requires = {"engine": ("torch==1.0",)}
    assert against(seen(SOURCES, requires=requires), of_sources()).differences == ()
    other = against(seen({**SOURCES, "engine": "0.12.0"}, requires=requires), of_sources())
    assert unfit(other) == [("engine 0.12.0", "torch ==1.0", "torch 2.9.0")]


def test_a_tree_on_pythonpath_cannot_be_seen() -> None:
    components = factories.source_components()
    whole = components["engine"].model_copy(
        update={"install": Install.TREE, "imports": (Import(module="engine.core"),)}
    )
    data = factories.catalog(components={**factories.components(), **components, "engine": whole})
    gone = {name: version for name, version in SOURCES.items() if name != "engine"}
    found = against(seen(gone), of_sources(factories.source_recipe(found=data)))
    assert (len(found.equal), found.differences) == (4, ())


# The nearest, and what is said.


def test_the_nearest_profile() -> None:
    found = nearest([against(seen(), want()), against(seen(), of_sources())])
    assert [one.expected.name for one in found] == ["stack", "sources"]
    found = nearest([against(seen(SOURCES), want()), against(seen(SOURCES), of_sources())])
    assert [one.expected.name for one in found] == ["sources", "stack"]


def test_an_engine_that_a_profile_lacks_makes_it_less_near() -> None:
    """Few packages are the engine's, but they are what the image is for."""
    image = seen({**STACK, "engine": "0.10.0", "torch": "2.8.0", "torch_npu": "2.8.0"})
    components = {**factories.components(), **factories.source_components()}
    catalog = factories.catalog(components=components)
    recipe = factories.recipe()
    without = expected(recipe, factories.lock(recipe), catalog)
    recipe = factories.source_recipe(found=catalog)
    lock = replace(factories.lock(recipe), packages=(package("torch", "2.9.0"), package("torch-npu", "2.9.0")))
    found = nearest([against(image, without), against(image, expected(recipe, lock, catalog))])
    assert [one.expected.name for one in found] == ["sources", "stack"]
    assert against(seen(), without).distance == (0, 0.0)


def test_the_report_as_lines() -> None:
    inventory = seen(changed(torch="2.8.0", left="1"))
    found = nearest([compare(want(), inventory), compare(of_sources(), inventory)])
    assert list(report_lines("mine:1", found, {"third": "no lock"})) == [
        f"mine:1: amd64, ubuntu22.04, Python 3.11 at {HOME}, CANN 8.5.0, 7 packages",
        "does not fit together:",
        "  torch-npu 2.9.0: torch 2.8.0, wanted: torch 2.9.0 (a table, 2026-01-01)",
        "profile  packages  CANN          Python",
        "stack    5 of 6    8.5.0, equal  3.11, equal",
        "sources  1 of 5    8.5.0, equal  3.11, equal",
        "third: not compared: no lock",
        "breaks first:",
        "  torch: 2.8.0, wanted: 2.9.0+cpu (named by the profile)",
        "not in the profile: 1 packages: left 1",
        "the nearest profile is stack: differences that matter: 2",
    ]


def test_long_lists_are_folded() -> None:
    recipe = factories.recipe()
    many = tuple(package(f"p{number:02}") for number in range(40))
    wanted = expected(recipe, replace(factories.lock(recipe), packages=many), factories.catalog())
    inventory = seen({f"x{number:02}": "1" for number in range(20)})
    lines = list(report_lines("mine:1", [compare(wanted, inventory)], {}))
    assert "  … and 25 more (--all)" in lines
    assert lines[-2].endswith("x11 1, … and 8 more (--all)")
    assert lines[-1] == "profile stack: differences that matter: 40"
    whole = list(report_lines("mine:1", [compare(wanted, inventory)], {}, every=True))
    assert len(whole) == len(lines) + 24
    assert whole[-2].endswith("x19 1")


def test_the_report_of_an_image_with_nothing_in_it() -> None:
    empty = seen({}, texts={"/usr/lib/os-release": ""}, python="", versions={})
    first, *_ = report_lines("m", [compare(want(), empty)], {})
    assert first == f"m: amd64, no known OS, Python none at {HOME}, CANN none, 0 packages"


def test_a_difference_as_a_line() -> None:
    assert str(Difference(Kind.MISSING, "ray", "2.50.0", "")) == "ray: not there, wanted: 2.50.0"
    assert str(Difference(Kind.BREAKS, "two", "", "/x")) == "two: /x"
