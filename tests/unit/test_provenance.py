"""How an image was made: everything that it is made of, and nothing of this host."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from factories import ENGINE, catalog, inputs, plan, source_recipe

from cannery.plan.make import make_plan, on_base
from cannery.plan.sources import LocalTree
from cannery.recipe.recipe import Options
from cannery.report.bill import make_bill
from cannery.report.provenance import provenance_text

if TYPE_CHECKING:
    from cannery.plan import Plan

DIGEST = "sha256:" + "d" * 64


def statement(made: Plan) -> dict[str, Any]:
    text = provenance_text(
        made, make_bill(made, {}, catalog().hosts), "r.example:5000/team/stack:1-unverified", DIGEST, "0.2.0"
    )
    return dict(json.loads(text))


def used(made: Plan) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in statement(made)["predicate"]["buildDefinition"]["resolvedDependencies"]}


def test_the_fields_that_in_toto_and_slsa_ask_for() -> None:
    made = plan()
    value = statement(made)
    assert value["_type"] == "https://in-toto.io/Statement/v1"
    assert value["subject"] == [{"name": "r.example:5000/team/stack", "digest": {"sha256": "d" * 64}}]
    assert value["predicateType"] == "https://slsa.dev/provenance/v1"
    definition = value["predicate"]["buildDefinition"]
    assert definition["internalParameters"]["plan"] == made.digest
    assert definition["internalParameters"]["tag"] == "1-unverified"
    assert definition["externalParameters"]["target"]["cann"] == "8.5.0"
    assert value["predicate"]["runDetails"]["builder"]["id"].startswith("urn:")
    for one in definition["resolvedDependencies"]:
        assert one["uri"]


@pytest.mark.parametrize("options", [None, Options(base="standin")])
def test_every_wheel_with_its_hash_and_the_build_tools(options: Options | None) -> None:
    made = plan(options)
    found = used(made)
    for package in (*made.lock.packages, *made.tools.packages):
        assert found[package.file]["digest"] == {"sha256": package.sha256}
        assert found[package.file]["annotations"]["index"] == package.index


def test_the_base_has_the_digest_and_no_mirror() -> None:
    base = "sha256:" + "b" * 64
    made = on_base(plan(), "quay.io/ascend/cann:8.5.0", base, "mirror.example/ascend/cann:8.5.0")
    found = next(one for one in used(made).values() if one["annotations"]["origin"] == "base")
    assert found["digest"] == {"sha256": "b" * 64}
    assert found["uri"].startswith("pkg:docker/ascend/cann@sha256")
    assert "mirror.example" not in json.dumps(statement(made))


def test_sources_by_commit_and_a_tree_of_the_users_by_its_content() -> None:
    recipe = source_recipe()
    made = make_plan(recipe, inputs(recipe, socs=("ascend910b1",)))
    assert used(made)["engine"]["digest"] == {"gitCommit": ENGINE}
    tree = LocalTree("tree-1", ENGINE, dirty=True)
    mine = make_plan(recipe, replace(inputs(recipe, socs=("ascend910b1",)), local={"engine": tree}))
    found = used(mine)["engine"]
    assert found["digest"] == {"cannery-tree": "tree-1"}
    assert found["annotations"]["changed"] == "yes"


def test_what_was_asked_for_beside_the_profile() -> None:
    made = plan(Options(pins=("ray==2.47.1",), force=True))
    asked = statement(replace(made, forced=("pin",)))["predicate"]["buildDefinition"]["externalParameters"]
    assert (asked["other"], asked["forced"]) == ("ray==2.47.1", ["pin"])
