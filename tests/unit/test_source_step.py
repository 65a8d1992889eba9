from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from factories import ENGINE_OLD, catalog, inputs, lock, package, source_components, source_profile, source_recipe

from cannery.plan import LayerKind, Plan
from cannery.plan.make import make_plan
from cannery.plan.manifest import manifest
from cannery.plan.sources import LocalTree, SourceStep, source_steps
from cannery.recipe.recipe import Options, Recipe
from cannery.vocab import Arch, Install

if TYPE_CHECKING:
    from cannery.catalog.catalog import Catalog

SOCS = ("ascend910b1", "ascend910b2")


def steps(found: Recipe, **local: LocalTree) -> dict[str, SourceStep]:
    return {step.name: step for step in source_steps(found, lock(found), SOCS, local)}


def planned(found: Recipe, **changes: object) -> Plan:
    return make_plan(found, inputs(found, socs=SOCS, **changes))


def test_a_commit_is_a_tar_and_its_content_is_the_commit() -> None:
    found = steps(source_recipe())
    assert [*found] == ["engine", "kernels", "plugin"]
    engine = found["engine"]
    assert (engine.file, engine.content, engine.install, engine.version) == (
        "engine.tar",
        engine.commit,
        Install.WHEEL,
        "0.11.0",
    )
    assert not engine.native


def test_a_native_step_is_told_the_chip_and_compiled_on_the_targets_platform() -> None:
    kernels = steps(source_recipe())["kernels"]
    assert kernels.native
    assert dict(kernels.env) == {"SOC_VERSION": "ascend910b1"}


def test_commands_ahead_of_a_native_build_name_the_chip_and_this_canns_home() -> None:
    kernels = steps(source_recipe())["kernels"]
    configure = "cmake -B build -DSOC_VERSION=ascend910b1 -DCANN=/usr/local/Ascend/cann-8.5.0 -DPYTHON={python}"
    build = "cmake --build build --parallel {jobs}"
    assert kernels.before == (tuple(configure.split()), tuple(build.split()))
    assert json.loads(kernels.text())["before"] == [configure.split(), build.split()]
    older = steps(source_recipe(Options(cann="8.3.rc1")))["kernels"]
    assert older.before[0][4] == "-DCANN=/usr/local/Ascend/cann-8.3.rc1"


def test_where_nothing_is_compiled_no_command_is_run_either() -> None:
    components = source_components()
    native = components["kernels"].model_dump() | {"standin": {"install": "editable", "reason": "no CANN"}}
    data = catalog(components={**catalog().components, "kernels": type(components["kernels"]).model_validate(native)})
    assert steps(source_recipe(Options(base="standin"), data))["kernels"].before == ()


def test_of_a_native_component_that_stays_a_tree_nothing_is_compiled() -> None:
    tree = source_components()["kernels"].model_copy(update={"install": Install.TREE})
    data = catalog(components={**catalog().components, "kernels": tree})
    kernels = steps(source_recipe(Options(), data))["kernels"]
    assert (kernels.native, kernels.install, kernels.without) == (False, Install.TREE, "")


def test_where_there_is_no_cann_the_components_own_way_counts_and_its_reason_is_kept() -> None:
    components = source_components()
    way = {"build_env": {"KERNELS": "0"}, "install": "editable", "reason": "no CANN to compile against"}
    native = components["kernels"].model_dump() | {"standin": way, "build_env": {"KERNELS": "1"}}
    data = catalog(components={**catalog().components, "kernels": type(components["kernels"]).model_validate(native)})
    here = steps(source_recipe(Options(base="standin"), data))["kernels"]
    real = steps(source_recipe(Options(), data))["kernels"]
    assert (here.native, here.install, here.without) == (False, Install.EDITABLE, "no CANN to compile against")
    assert dict(here.env)["KERNELS"] == "0"
    assert (real.native, real.install, real.without) == (True, Install.WHEEL, "")
    assert dict(real.env)["KERNELS"] == "1"


def test_a_users_own_tree_takes_the_place_of_the_commit() -> None:
    mine = LocalTree("d" * 64, "e" * 40, dirty=True)
    plugin = steps(source_recipe(), plugin=mine)["plugin"]
    assert (plugin.content, plugin.commit, plugin.dirty, plugin.release) == ("d" * 64, "e" * 40, True, None)


def test_a_release_that_is_a_source_distribution_is_a_step_and_a_wheel_is_none() -> None:
    pins = [p.model_dump(exclude_unset=True) for p in source_profile().components]
    pins[2] = {"name": "engine", "release": "0.11.0"}
    found = source_recipe(components=pins)
    sdist = package("engine", "0.11.0", file="engine-0.11.0.tar.gz", size=1)
    with_sdist = replace(lock(found), packages=(sdist, *lock(found).packages))
    (engine, *_rest) = source_steps(found, with_sdist, SOCS, {})
    assert (engine.file, engine.content, engine.release) == ("engine-0.11.0.tar.gz", sdist.sha256, "0.11.0")
    assert "engine" not in {step.name for step in source_steps(found, lock(found), SOCS, {})}


def test_the_step_file_is_what_the_stage_reads() -> None:
    assert json.loads(steps(source_recipe())["plugin"].text()) == {
        "name": "plugin",
        "package": "plugin",
        "version": "1.0",
        "install": "editable",
        "stubs": [],
        "native": False,
        "subdirectory": "",
        "env": {},
    }


def older(data: Catalog) -> Recipe:
    pins = [p.model_dump(exclude_unset=True) for p in source_profile().components]
    return source_recipe(
        None, data, components=[{**p, "commit": ENGINE_OLD} if p["name"] == "engine" else p for p in pins]
    )


def test_another_commit_changes_its_own_layer_and_the_manifests() -> None:
    data = catalog()
    before, after = planned(source_recipe(None, data)), planned(older(data))
    digests = {layer.name: layer.digest for layer in before.layers}
    changed = [layer.name for layer in after.layers if digests[layer.name] != layer.digest]
    assert changed == ["engine", "files"]
    assert before.digest != after.digest


def test_what_a_native_layer_is_compiled_against_changes_it_and_no_other_source() -> None:
    found = source_recipe()
    mine = inputs(found, socs=SOCS)
    newer = {
        arch: replace(
            one, packages=tuple(replace(p, sha256="0" * 64) if p.name == "torch" else p for p in one.packages)
        )
        for arch, one in mine.locks.items()
    }
    before, after = make_plan(found, mine), make_plan(found, replace(mine, locks=newer))
    digests = {layer.name: layer.digest for layer in before.layers}
    assert {layer.name for layer in after.layers if digests[layer.name] != layer.digest} == {
        "torch",
        "kernels",
        "files",
    }


def test_a_changed_tool_changes_the_sources_that_it_makes() -> None:
    one, other = (planned(source_recipe(), templates={"tools/source.py": text}) for text in "12")
    digests = {layer.name: layer.digest for layer in one.layers}
    changed = {layer.name for layer in other.layers if digests[layer.name] != layer.digest}
    assert changed == {"engine", "kernels", "plugin", "files"}


def test_what_is_known_of_other_commits_changes_nothing() -> None:
    components = source_components()
    less = components["engine"].model_copy(update={"revisions": {}, "releases": {}})
    known = components["engine"].revisions
    pinned = next(iter(known))
    less = less.model_copy(update={"revisions": {pinned: known[pinned]}})
    one = planned(source_recipe(None, catalog(components={**catalog().components, "engine": less})))
    assert one.digest == planned(source_recipe()).digest


@pytest.mark.parametrize("arch", [*Arch])
def test_sources_are_layers_behind_the_wheels_in_the_profiles_order(arch: Arch) -> None:
    made = planned(source_recipe(Options(arch=str(arch))))
    kinds = [layer.kind for layer in made.layers]
    assert [layer.name for layer in made.layers if layer.kind is LayerKind.SOURCE] == ["engine", "kernels", "plugin"]
    last_group = max(number for number, kind in enumerate(kinds) if kind in {LayerKind.GROUP, LayerKind.BUILT})
    assert last_group < kinds.index(LayerKind.SOURCE)


def test_the_manifest_names_each_source() -> None:
    made = planned(source_recipe())
    found = {item["name"]: item for item in manifest(made, catalog().compatibility)["sources"]}
    assert found["engine"]["path"] is None
    assert found["plugin"]["path"] == "/opt/src/plugin"
    assert found["plugin"]["install"] == "editable"
    assert found["engine"]["commit"] == made.sources[0].commit
