"""What a stand-in image does without: no step, no package, named in the manifest, allowed to be missing."""

from __future__ import annotations

import re

import pytest
from factories import catalog, compatibility, components, inputs, source_components, source_recipe

from cannery.catalog.component import Component, parse_component
from cannery.plan.make import make_plan
from cannery.plan.manifest import manifest
from cannery.recipe.recipe import LeftOut, Options, Recipe, left_out, unlinked

REASON = "there is no CANN to compile against"
LACKING = LeftOut("kernels", REASON, ("kernels", "kernels.ops"))


def data(**standin: object) -> Component:
    value = source_components()["kernels"].model_dump(mode="json", exclude_defaults=True)
    value["standin"] = {"leave_out": True, "reason": REASON, **standin}
    value["imports"] = [{"module": "kernels"}, {"module": "kernels.ops", "attribute": "add"}, {"module": "kernels.ops"}]
    return parse_component(value)


@pytest.fixture
def standin() -> Recipe:
    return bound(Options(base="standin"))


def bound(options: Options, **changes: object) -> Recipe:
    found = catalog(components={**components(), **source_components(), "kernels": data()})
    return source_recipe(options, found, **changes)


def test_only_a_stand_in_does_without(standin: Recipe) -> None:
    assert left_out(standin) == (LACKING,)
    assert left_out(bound(Options())) == ()


def test_it_has_no_step_and_the_others_stay(standin: Recipe) -> None:
    made = make_plan(standin, inputs(standin, socs=("ascend910b1",)))
    assert [step.name for step in made.sources] == ["engine", "plugin"]
    assert made.left_out == (LACKING,)
    real = bound(Options())
    assert [s.name for s in make_plan(real, inputs(real, socs=("ascend910b1",))).sources] == [
        "engine",
        "kernels",
        "plugin",
    ]


def test_the_manifest_names_it_and_its_checks_may_be_skipped(standin: Recipe) -> None:
    made = manifest(make_plan(standin, inputs(standin, socs=("ascend910b1",))), compatibility())
    assert made["left_out"] == [{"name": "kernels", "reason": REASON, "modules": ("kernels", "kernels.ops")}]
    assert {"import.kernels", "import.kernels.ops"} <= {*made["may_skip"]}
    lines = [
        "plugin 1.0 requires kernels, which is not installed.",
        "plugin 1.0 requires engine, which is not installed.",
    ]
    patterns = made["checks"]["pip_check_allow"]
    assert [any(re.search(pattern, line) for pattern in patterns) for line in lines] == [True, False]


def test_an_import_that_no_stand_in_can_make_may_be_skipped_there() -> None:
    value = source_components()["engine"].model_dump(mode="json", exclude_defaults=True)
    value["imports"] = [{"module": "engine"}, {"module": "engine.npu", "standin": "it imports acl"}]
    found = catalog(components={**components(), **source_components(), "engine": parse_component(value)})
    for base, wanted in (("standin", True), (None, False)):
        bound_here = source_recipe(Options(base=base), found)
        made = manifest(make_plan(bound_here, inputs(bound_here, socs=("ascend910b1",))), compatibility())
        assert ("import.engine.npu" in made["may_skip"]) is wanted
        assert "import.engine" not in made["may_skip"]
        assert {"module": "engine.npu", "component": "engine", "standin": "it imports acl"} in made["checks"]["imports"]


def test_a_ready_made_wheel_of_a_release_comes_in() -> None:
    parts = [{"name": "torch", "version": "2.9.0"}, {"name": "torch-npu", "version": "2.9.0"}]
    found = bound(Options(base="standin"), components=[*parts, {"name": "kernels", "release": "1.2.0"}])
    assert left_out(found) == ()


@pytest.mark.parametrize("more", [{"install": "editable"}, {"build_env": {"KERNELS": "0"}}])
def test_what_is_left_out_is_not_built_in_another_way(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="leave_out"):
        data(**more)


def test_ready_made_kernels_may_lack_the_cann_that_they_link() -> None:
    parts = [{"name": "torch", "version": "2.9.0"}, {"name": "torch-npu", "version": "2.9.0"}]
    found = bound(Options(base="standin"), components=[*parts, {"name": "kernels", "release": "1.2.0"}])
    assert [chosen.name for chosen in unlinked(found)] == ["kernels"]
    (pattern,) = manifest(make_plan(found, inputs(found)), compatibility())["checks"]["library_allow"]
    site = "/opt/venv/lib/python3.11/site-packages"
    for line, is_allowed in (
        (f"{site}/kernels/lib/libops.so needs libgraph_base.so, which is not found", True),
        (f"{site}/kernels2/libops.so needs libgraph_base.so, which is not found", False),
        (f"{site}/torch/lib/libtorch.so needs libgomp.so.1, which is not found", False),
    ):
        assert bool(re.search(pattern, line)) is is_allowed, line
    real = bound(Options(), components=[*parts, {"name": "kernels", "release": "1.2.0"}])
    assert unlinked(real) == ()
    assert "library_allow" not in manifest(make_plan(real, inputs(real)), compatibility())["checks"]
