from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import pytest
from factories import (
    ENGINE,
    KERNELS,
    PLUGIN,
    catalog,
    compatibility,
    components,
    inputs,
    lock,
    package,
    plan,
    profile,
    recipe,
    source_components,
    source_recipe,
)
from hypothesis import given
from hypothesis import strategies as st

from cannery import __version__
from cannery.catalog.component import parse_component
from cannery.plan.make import make_plan
from cannery.plan.manifest import labels, manifest, manifest_text, size_bytes
from cannery.plan.sources import LocalTree, Patch, PatchedTree, RecordedFile
from cannery.recipe.recipe import Options
from cannery.vocab import Arch

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.plan import Plan

STANDIN = Options(base="standin")


def source_plan(options: Options | None = None, **changes: object) -> Plan:
    """A plan of the profile `sources`."""
    found = source_recipe(options)
    return make_plan(found, inputs(found, socs=("ascend910b1",), **changes))


def source(name: str, version: str, install: str, commit: str, **changes: object) -> dict[str, object]:
    """What a manifest says of a source at a commit."""
    return {
        "name": name,
        "component": name,
        "version": version,
        "install": install,
        "path": None if install == "wheel" else f"/opt/src/{name}",
        "repository": None,
        "commit": commit,
        "release": None,
        "dirty": False,
        "without": "",
        "chips": [],
        **changes,
    }


@pytest.mark.parametrize(("text", "size"), [("16g", 16 << 30), ("512M", 512 << 20), ("3k", 3072), ("1024", 1024)])
def test_sizes_as_docker_writes_them(text: str, size: int) -> None:
    assert size_bytes(text) == size


@given(st.integers(0, 10**6))
def test_sizes_are_exact(number: int) -> None:
    assert size_bytes(f"{number}g") == number * 1024**3 == size_bytes(f"{number * 1024}m")


def test_it_names_every_wheel_with_hash_and_group() -> None:
    made = plan()
    rows = {row["name"]: row for row in manifest(made, compatibility())["wheels"]}
    assert list(rows) == [p.name for p in made.lock.packages]
    assert all(row["hash"].startswith("sha256:") for row in rows.values())
    assert [rows[n]["group"] for n in ("antlr4", "sympy", "torch")] == ["built", "torch-deps", "torch"]
    assert [name for name, row in rows.items() if row["built"]] == ["antlr4"]


def test_it_says_on_what_the_image_stands() -> None:
    real, standin = (manifest(plan(options), compatibility()) for options in (None, STANDIN))
    assert (real["base"]["kind"], standin["base"]["kind"]) == ("real", "standin")
    assert real["base"]["reference"] == "registry.example/cann:8.5.0-910b-ubuntu22.04-py3.11"
    assert standin["base"]["reference"].startswith("cannery-standin:")
    assert real["base"]["python_home"] == "/usr/local/python3.11.14"
    assert (real["may_skip"], standin["may_skip"]) == (["npu.nodes"], ["npu.nodes", "npu.tensor"])


def test_it_carries_the_checks_of_the_components() -> None:
    found = manifest(plan(), compatibility())
    assert found["checks"]["imports"] == [
        {"module": "torch", "component": "torch", "attribute": "__version__"},
        {"module": "torch_npu", "component": "torch-npu"},
        {"module": "ray", "component": "ray", "attribute": "__version__", "equals": "2.50.0"},
    ]
    assert found["checks"]["libraries"] == ["/usr/local/lib/libjemalloc.so.2"]
    assert found["shm_min_bytes"] == 2 << 30
    assert found["deny"] == ["nvidia-*"]
    assert found["exclusive"] == [["triton", "triton-ascend"]]
    assert found["tool"] == {"name": "cannery", "version": __version__}


def test_version_files_of_the_target_hold_no_field() -> None:
    for arch, machine in (("amd64", "x86_64"), ("arm64", "aarch64")):
        files = manifest(plan(Options(arch=arch)), compatibility())["base"]["version_files"]
        assert [file["path"] for file in files] == [f"/usr/local/Ascend/cann-8.5.0/{machine}-linux/install.info"]


@pytest.mark.parametrize("cann", ["8.5.0", "8.5.0.B160"])
def test_version_files_tell_the_targets_cann_with_its_build(cann: str) -> None:
    found = manifest(plan(Options(cann=cann)), compatibility())
    assert found["target"]["cann"] == cann.lower()
    assert [file["version"] for file in found["base"]["version_files"]] == [cann.lower()]


def test_a_forced_image_says_so_in_manifest_and_labels() -> None:
    made = plan(forced=("fit",))
    assert manifest(made, compatibility())["forced"] == ["fit"]
    assert labels(made)["org.cannery.forced"] == "fit"
    assert str(made.tag).endswith("-forced")
    assert "org.cannery.forced" not in labels(plan())


def test_a_stand_in_image_says_so_in_its_labels() -> None:
    found = labels(plan(STANDIN))
    assert "stand-in" in found["org.cannery.warning"]
    assert found["org.opencontainers.image.version"].endswith("-standin")
    assert "org.cannery.warning" not in labels(plan())


def test_the_text_is_sorted_json_that_ends_in_a_line_end() -> None:
    made = plan()
    text = manifest_text(made, compatibility())
    assert text.endswith("}\n")
    assert json.loads(text) == manifest(made, compatibility())
    assert text == manifest_text(replace(made, env=dict(made.env)), compatibility())


def test_env_is_the_images_whole_environment() -> None:
    made = plan()
    assert manifest(made, compatibility())["env"] == made.env


def test_it_says_of_every_source_where_it_is_and_what_it_was_made_of() -> None:
    assert manifest(source_plan(), compatibility())["sources"] == [
        source("engine", "0.11.0", "wheel", ENGINE),
        source("kernels", "1.2.0", "wheel", KERNELS, chips=["910b"]),
        source("plugin", "1.0", "editable", PLUGIN),
    ]


def test_kernels_are_for_the_chip_of_the_target() -> None:
    found = manifest(source_plan(Options(chip="a3")), compatibility())["sources"]
    assert [item["chips"] for item in found] == [[], ["a3"], []]


def test_a_users_own_tree_has_the_version_that_it_has() -> None:
    own = {"engine": LocalTree("d" * 64, "2" * 40, dirty=True), "plugin": LocalTree("e" * 64, None, dirty=False)}
    engine, _, plugin = manifest(source_plan(local=own), compatibility())["sources"]
    assert (engine["version"], engine["commit"], engine["dirty"]) == (None, "2" * 40, True)
    assert (plugin["version"], plugin["commit"], plugin["dirty"]) == (None, None, False)


def test_a_release_that_is_built_is_a_source_of_its_version() -> None:
    found = source_recipe(
        components=[{"name": "torch"}, {"name": "torch-npu"}, {"name": "engine", "release": "0.11.0"}]
    )
    sdist = package("engine", "0.11.0", file="engine-0.11.0.tar.gz")
    locks = {arch: replace(lock(found, arch), packages=(*lock(found, arch).packages, sdist)) for arch in Arch}
    made = manifest(make_plan(found, inputs(found, locks=locks)), compatibility())
    assert made["sources"] == [source("engine", "0.11.0", "wheel", ENGINE) | {"commit": None, "release": "0.11.0"}]
    assert "engine" not in {row["name"] for row in made["wheels"]}


def test_native_parts_that_a_stand_in_cannot_build_are_left_out_with_the_reason() -> None:
    value = {"build_env": {"KERNELS": "0"}, "install": "editable", "reason": "no CANN to compile against"}
    kernels = source_components()["kernels"].model_dump(exclude_defaults=True) | {"standin": value}
    every = {**components(), **source_components(), "kernels": parse_component(kernels)}
    for options, wanted in (
        (STANDIN, ("editable", "/opt/src/kernels", "no CANN to compile against", [])),
        (None, ("wheel", None, "", ["910b"])),
    ):
        found = source_recipe(options, catalog(components=every))
        (row,) = (
            row
            for row in manifest(make_plan(found, inputs(found, socs=("ascend910b1",))), compatibility())["sources"]
            if row["name"] == "kernels"
        )
        assert (row["install"], row["path"], row["without"], row["chips"]) == wanted


def test_where_a_component_has_no_kernels_the_check_that_looks_at_them_may_be_skipped() -> None:
    value = {"build_env": {"KERNELS": "0"}, "reason": "no CANN to compile against"}
    for soc, options, wanted in (("SOC_VERSION", STANDIN, True), ("SOC_VERSION", None, False), (None, STANDIN, False)):
        kernels = source_components()["kernels"].model_copy(update={"soc_variable": soc, "before": ()})
        kernels = type(kernels).model_validate(kernels.model_dump(exclude_defaults=True) | {"standin": value})
        found = source_recipe(options, catalog(components={**components(), **source_components(), "kernels": kernels}))
        made = manifest(make_plan(found, inputs(found, socs=("ascend910b1",))), compatibility())
        assert ("static.device-type" in made["may_skip"]) is wanted


def test_patch_of_a_module_that_a_stand_in_cannot_import_is_skipped_there_with_its_reason() -> None:
    item = {"module": "kernels", "standin": "it imports acl"}
    kernels = source_components()["kernels"].model_dump(exclude_defaults=True) | {"imports": [item]}
    every = {**components(), **source_components(), "kernels": parse_component(kernels)}
    file = RecordedFile("/opt/src/kernels/a.py", None, "0" * 64, "kernels.a")
    tree = PatchedTree("kernels", (Patch("mine", "2" * 64, "PATCHES", "3" * 40, (file,)),), ())
    for options, reason in ((STANDIN, "it imports acl"), (None, None)):
        found = source_recipe(options, catalog(components=every))
        made = replace(make_plan(found, inputs(found, socs=("ascend910b1",))), patched=(tree,))
        value = manifest(made, compatibility())
        (row,) = value["patches"][0]["files"]
        assert row.get("standin") == reason
        assert ("import.kernels.a" in value["may_skip"]) is (reason is not None)
        assert ("import.kernels" in value["may_skip"]) is (reason is not None)


@pytest.mark.parametrize("local", [{}, {"engine": LocalTree("d" * 64, None, dirty=True)}])
def test_it_has_the_published_form_and_the_scripts(root: Path, local: dict[str, LocalTree]) -> None:
    schema = json.loads((root / "docs/manifest.schema.json").read_text())
    found = json.loads(manifest_text(source_plan(local=local), compatibility()))
    jsonschema.validate(found, schema)
    assert len(found["sources"]) == 3


def test_several_hosts_are_a_fact_of_the_profile(root: Path) -> None:
    """W10."""
    assert "several_hosts" not in manifest(plan(), compatibility())
    one = profile(several_hosts=True)
    found = recipe(found=catalog(profiles={"stack": one}))
    value = manifest(make_plan(found, inputs(found)), compatibility())
    jsonschema.validate(value, json.loads((root / "docs/manifest.schema.json").read_text()))
    assert value["several_hosts"] is True
    assert "npu.network" in value["may_skip"]


@given(st.text())
def test_its_text_is_what_json_writes(text: str) -> None:
    made = plan()
    odd = made.recipe.profile.model_copy(update={"summary": text})
    made = replace(made, recipe=replace(made.recipe, profile=odd))
    value = manifest(made, compatibility())
    written = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    assert manifest_text(made, compatibility()) == f"{written}\n"
