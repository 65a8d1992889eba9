"""A stand-in may have another version of what cannot be had; the profile's own lock and images never do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from factories import catalog, compatibility, inputs, profile, recipe

from cannery.catalog.documents import extended, parse_yaml
from cannery.catalog.io.read import cross_check
from cannery.compat.rules import check_recipe
from cannery.context import Context
from cannery.lock.io.store import lock_target
from cannery.lock.request import lock_request
from cannery.pipeline import lock_store
from cannery.plan.make import make_plan
from cannery.plan.manifest import labels, manifest, manifest_text
from cannery.recipe.recipe import Options, Recipe
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.catalog.catalog import Catalog

REASON = "2.50.1 is on no index"
STANDIN = Options(base="standin")
COMPONENTS = [
    {"name": "torch", "version": "2.9.0"},
    {"name": "torch-npu", "version": "2.9.0"},
    {"name": "ray", "version": "2.50.1"},
]


def stack(**changes: object) -> Catalog:
    value = {"components": COMPONENTS, "substitutes": [{"name": "ray", "version": "2.50.0", "reason": REASON}]}
    return catalog(profiles={"stack": profile(**{**value, **changes})})


def version(found: Recipe) -> str | None:
    return next(c.version for c in found.chosen if c.name == "ray")


def test_only_a_stand_in_takes_it() -> None:
    assert version(recipe(STANDIN, stack())) == "2.50.0"
    assert version(recipe(Options(), stack())) == "2.50.1"
    assert version(recipe(Options(base="registry.example/own:1"), stack())) == "2.50.1"
    assert recipe(Options(), stack()).substitutes == ()


def test_a_pin_by_hand_takes_its_place() -> None:
    found = recipe(Options(base="standin", pins=("ray==2.51.0",)), stack())
    assert version(found) == "2.51.0"
    assert found.substitutes == ()


def test_its_lock_is_a_file_of_its_own(tmp_path: Path) -> None:
    store = lock_store(Context(tmp_path, tmp_path / "cache", {}, Arch.AMD64, is_terminal=False))
    own, on_standin = (lock_request(recipe(o, stack())) for o in (Options(), STANDIN))
    assert lock_target(store, own).name == "py3.11-amd64.txt"
    assert lock_target(store, on_standin).name == "py3.11-amd64-standin.txt"
    assert "ray==2.50.0" in on_standin.overrides
    assert not any("2.50.0" in text for text in (*own.requirements, *own.overrides))
    # Without substitutes the stand-in has the profile's own lock.
    plain = stack(substitutes=[])
    assert lock_request(recipe(STANDIN, plain)) == lock_request(recipe(Options(), plain))


def test_it_is_reported_and_recorded() -> None:
    found = recipe(STANDIN, stack())
    notes = [f for f in check_recipe(found, stack()) if f.code == "substitute"]
    assert [(f.severity, f.why) for f in notes] == [(Severity.NOTE, REASON)]
    made = make_plan(found, inputs(found))
    assert manifest(made, compatibility())["substitutes"] == [{"name": "ray", "version": "2.50.0", "reason": REASON}]
    assert labels(made)["org.cannery.substitutes"] == "ray==2.50.0"
    allowed = manifest(made, compatibility())["checks"]["pip_check_allow"]
    line = "engine 1.0 has requirement ray==2.50.1, but you have ray 2.50.0."
    assert any(re.search(pattern, line) for pattern in allowed)


def test_another_image_has_no_word_of_it() -> None:
    found = recipe(Options(), stack())
    made = make_plan(found, inputs(found))
    assert "substitutes" not in manifest(made, compatibility())
    assert "org.cannery.substitutes" not in labels(made)
    assert not [f for f in check_recipe(found, stack()) if f.code == "substitute"]


def test_a_substitute_that_only_a_stand_in_has_renames_no_other_image() -> None:
    digests = []
    for given in (stack(), stack(substitutes=[])):
        found = recipe(Options(), given)
        digests.append(make_plan(found, inputs(found)).digest)
    assert digests[0] == digests[1]


def test_another_reason_is_another_stand_in_image() -> None:
    """Its manifest has the reason, so the layer with the manifest has another digest."""
    other = stack(substitutes=[{"name": "ray", "version": "2.50.0", "reason": "other words"}])
    plans = [make_plan(found, inputs(found)) for found in (recipe(STANDIN, stack()), recipe(STANDIN, other))]
    texts = [manifest_text(plan, compatibility()) for plan in plans]
    assert texts[0] != texts[1]
    assert plans[0].digest != plans[1].digest
    assert plans[0].layers[-1].digest != plans[1].layers[-1].digest


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"substitutes": [{"name": "rye", "version": "1.0", "reason": REASON}]}, ("substitutes", 0, "name")),
        ({"substitutes": [{"name": "ray", "version": "1.0", "reason": REASON}]}, ("substitutes", 0, "name")),
        ({"replaced": {"date": "2025-06-18", "by": "stick"}}, ("replaced", "by")),
    ],
)
def test_a_name_that_means_nothing(changes: dict[str, object], path: tuple[object, ...]) -> None:
    unpinned = [*COMPONENTS[:2], {"name": "ray"}]
    faults = list(cross_check(stack(components=unpinned, **changes), ()))
    assert ("profiles/stack.yaml", path) in [(file, fault.path) for file, fault in faults]


def test_neither_its_place_nor_what_replaced_it_is_inherited() -> None:
    old = 'place: 1\nreplaced: {date: "2025-06-18", by: new}\nsummary: the old one\n'
    documents = {
        "old": parse_yaml(old, "profiles/old.yaml"),
        "mine": parse_yaml("extends: old\nbase: standin\n", "profiles/mine.yaml"),
    }
    assert extended("mine", documents).value == {"extends": "old", "summary": "the old one", "base": "standin"}
