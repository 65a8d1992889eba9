"""Sets near one that does not work: which are tried, in which order, and which answers are offers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import factories
import pytest

from cannery.catalog.catalog import Profile
from cannery.catalog.component import parse_component
from cannery.catalog.io.read import load_catalog
from cannery.explain.conflict import Conflict, profile_items
from cannery.explain.io import explain as nearest
from cannery.explain.io.explain import Candidate, is_offered, offer
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options, Recipe
from cannery.recipe.select import select
from cannery.vocab import Arch

COMMITS = {version: digit * 40 for version, digit in (("0.11.0", "a"), ("0.12.0", "b"), ("0.9.0", "c"), ("0.8.0", "d"))}
if TYPE_CHECKING:
    from cannery.catalog.catalog import Catalog

CATALOG = factories.catalog()


def candidates(recipe: Recipe, catalog: Catalog, found: Conflict, *lacking: str) -> tuple[Candidate, ...]:
    """The sets to try; the index has all releases but those in `lacking`."""
    return nearest.candidates(recipe, catalog, found, lambda name, version: f"{name}=={version}" not in lacking)


def conflict(recipe: Recipe, name: str, *movers: str) -> Conflict:
    items = profile_items(lock_request(recipe), recipe)
    mine = [item for item in items if item.name in (movers or (name,)) and item.wanted]
    return Conflict(name, (), tuple(mine))


def tried(recipe: Recipe, found: Conflict) -> list[object]:
    """What each candidate changes, briefly."""
    return [
        {name: new for name, _old, new in one.moved} if one.moved else " and ".join(str(item) for item in one.dropped)
        for one in candidates(recipe, CATALOG, found)
    ]


def test_rows_of_this_cann_first_then_one_pin_less() -> None:
    recipe = factories.recipe()
    assert tried(recipe, conflict(recipe, "torch", "torch", "torch-npu")) == [
        {"torch": "2.8.0", "torch-npu": "2.8.0.post2"},
        {"torch": "2.7.1", "torch-npu": "2.7.1.post2"},
        "pin torch-npu 2.9.0",
        "pin torch 2.9.0",
    ]


@pytest.mark.parametrize(
    ("cann", "torch", "npu", "builds"),
    [
        ("8.5.0", "2.8.0", "2.10.0", {"2.8.0.post2"}),
        ("9.0.0", "2.8.0", "2.10.0", {"2.8.0.post5"}),
        ("8.5.0", "2.7.1", "2.10.0", {"2.7.1.post2"}),
    ],
)
def test_of_builds_of_one_release_the_one_for_this_cann_is_tried(
    cann: str, torch: str, npu: str, builds: set[str]
) -> None:
    """Case 10: `lock` offers what `check` offers, by the real table."""
    real = load_catalog(Path(__file__).parents[2] / "images")
    pins = [{"name": "torch", "version": torch}, {"name": "torch-npu", "version": npu}]
    target = {"cann": cann, "chip": "910b", "os": "ubuntu22.04", "python": "3.11", "arch": ["arm64"]}
    value = {"summary": "left beside", "exclude_newer": "2026-06-18", "target": target, "components": pins}
    catalog = replace(real, profiles={"left": Profile.model_validate(value)})
    recipe = select(catalog, "left", Options(), Arch.ARM64)
    # No index has post3, which the table has too.
    found = nearest.candidates(
        recipe, catalog, conflict(recipe, "torch", "torch", "torch-npu"), lambda _, version: "post3" not in version
    )
    moved = [{name: new for name, _, new in one.moved} for one in found if one.moved]
    assert {one["torch-npu"] for one in moved if one.keys() == {"torch-npu"}} == builds


def test_a_release_that_no_index_has_is_not_tried() -> None:
    recipe = factories.recipe()
    found = candidates(recipe, CATALOG, conflict(recipe, "torch"), "torch-npu==2.8.0.post2")
    assert found[0].moved == (("torch", "2.9.0", "2.7.1"), ("torch-npu", "2.9.0", "2.7.1.post2"))


def test_what_moves_together_is_asked_together() -> None:
    recipe = factories.recipe()
    first = candidates(recipe, CATALOG, conflict(recipe, "torch"))[0]
    assert {"torch==2.8.0+cpu", "torch-npu==2.8.0.post2"} <= {*first.request.requirements}
    assert first.moved == (("torch", "2.9.0", "2.8.0"), ("torch-npu", "2.9.0", "2.8.0.post2"))
    assert first.request.bindings == lock_request(recipe).bindings


def test_without_a_pin_of_the_command_line_the_profile_s_own_counts() -> None:
    recipe = factories.recipe(Options(pins=("torch-npu==2.8.0.post2", "numpy==1.0")))
    both = conflict(recipe, "torch-npu", "torch-npu", "numpy")
    found = [c for c in candidates(recipe, CATALOG, both) if c.dropped]
    assert [[str(item) for item in one.dropped] for one in found] == [
        ["--pin numpy==1.0"],
        ["--pin torch-npu==2.8.0.post2"],
    ]
    assert "numpy==1.0" not in found[0].request.requirements
    assert "torch-npu==2.8.0.post2" in found[0].request.requirements
    assert "torch-npu==2.9.0" in found[1].request.requirements


def test_without_a_constraint_or_an_override() -> None:
    catalog = factories.catalog(
        profiles={
            "stack": factories.profile(
                constraints=[{"requirement": "sympy<1.14", "reason": "as it was tried"}],
                overrides=[{"requirement": "sympy==1.13", "reason": "as it was tried"}],
            )
        }
    )
    recipe = factories.recipe(found=catalog)
    bound, forced = (one.request for one in candidates(recipe, catalog, conflict(recipe, "sympy")))
    assert (bound.constraints, bound.overrides) == ((), ("sympy==1.13",))
    assert (forced.constraints, forced.overrides) == (("sympy<1.14",), ())


def test_without_a_pin_its_override_goes_too() -> None:
    profile = factories.profile(overrides=[{"requirement": "torch-npu==2.9.0", "reason": "as it was tried"}])
    catalog = factories.catalog(profiles={"stack": profile})
    recipe = factories.recipe(found=catalog)
    found = [c for c in candidates(recipe, catalog, conflict(recipe, "torch-npu")) if c.dropped]
    assert [str(item) for item in found[0].dropped] == ["pin torch-npu 2.9.0"]
    assert found[0].request.overrides == ()
    assert "torch-npu" in found[0].request.requirements


def source_catalog() -> object:
    revisions = {
        commit: {"version": version, "requires": [f"sympy=={version}"], "source": "made up"}
        for version, commit in COMMITS.items()
    }
    value = {"kind": "source", "summary": "a plugin", "hosts": {"github": "o/plug"}, "install": "wheel"}
    plugin = parse_component({**value, "revisions": revisions})
    pins = [{"name": "torch", "version": "2.9.0"}, {"name": "plug", "commit": COMMITS["0.11.0"]}]
    return factories.catalog(
        components={**factories.components(), "plug": plugin}, profiles={"stack": factories.profile(components=pins)}
    )


def test_a_source_moves_to_the_versions_that_are_known_the_nearest_first() -> None:
    catalog = source_catalog()
    recipe = factories.recipe(found=catalog)
    found = candidates(recipe, catalog, conflict(recipe, "sympy", "plug"))
    assert [one.moved for one in found] == [(("plug", "0.11.0", "0.12.0"),), (("plug", "0.11.0", "0.9.0"),)]
    assert found[0].request.sources[0].requires == ("sympy==0.12.0",)


def test_an_answer_that_the_table_speaks_against_is_no_offer() -> None:
    recipe = factories.recipe()
    (item,) = conflict(recipe, "torch-npu").movers
    free = Candidate(recipe, dropped=(item,))
    good = {"torch": "2.9.0+cpu", "torch-npu": "2.9.0"}
    assert is_offered(free, CATALOG, good)
    assert not is_offered(free, CATALOG, {**good, "torch-npu": "2.8.0.post2"}), "made for another torch"
    assert not is_offered(free, CATALOG, {"torch": "2.8.0", "torch-npu": "2.8.0"}), "made for another CANN"
    assert not is_offered(free, CATALOG, {**good, "nvidia-nccl": "2"}), "denied"


def test_what_stands_as_before_is_not_judged_anew() -> None:
    recipe = factories.recipe()
    other = Candidate(recipe, moved=(("ray", "1", "2"),))
    assert is_offered(other, CATALOG, {"ray": "2", "torch": "2.9.0", "torch-npu": "2.8.0"})
    moved = Candidate(recipe, moved=(("torch", "2.9.0", "2.7.1"),))
    assert not is_offered(moved, CATALOG, {"torch": "2.7.1", "torch-npu": "2.8.0"})


@pytest.mark.parametrize(
    ("pins", "name", "answer", "words"),
    [
        (("numpy==1.0",), "numpy", {"numpy": "2.3.0"}, "numpy 2.3.0 instead of 1.0"),
        (("numpy==1.0",), "numpy", {"numpy": "1.0"}, ""),
        (("numpy==1.0",), "numpy", {}, ""),
        ((), "torch", {"torch": "2.8.0+cpu"}, "torch 2.8.0 instead of 2.9.0"),
        (
            (),
            "torch-npu",
            {"torch-npu": "2.9.0.post9"},
            "torch-npu 2.9.0.post9 instead of 2.9.0, which no row of the table has",
        ),
    ],
)
def test_offers_in_words(pins: tuple[str, ...], name: str, answer: dict[str, str], words: str) -> None:
    recipe = factories.recipe(Options(pins=pins))
    item = conflict(recipe, name).movers[0]
    assert offer(Candidate(recipe, dropped=(item,)), CATALOG, answer) == words


def test_offers_of_moved_pins_and_of_bounds_in_words() -> None:
    recipe = factories.recipe()
    moved = Candidate(recipe, (("torch", "2.9.0", "2.8.0"), ("torch-npu", "2.9.0", "2.8.0")))
    assert offer(moved, CATALOG, {}) == "torch 2.8.0 instead of 2.9.0 and torch-npu 2.8.0 instead of 2.9.0"
    profile = factories.profile(constraints=[{"requirement": "sympy<1.14", "reason": "as it was tried"}])
    bound = factories.recipe(found=factories.catalog(profiles={"stack": profile}))
    (item,) = conflict(bound, "sympy").movers
    assert offer(Candidate(bound, dropped=(item,)), CATALOG, {"sympy": "1.15"}) == (
        "sympy 1.15 without the constraint sympy<1.14"
    )
