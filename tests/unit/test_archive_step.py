from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from factories import archive_recipe, catalog, components, inputs, profile, subject

from cannery.compat.rules import check_recipe
from cannery.compat.rules.chips import emulation
from cannery.errors import UsageError
from cannery.lock.request import lock_request
from cannery.plan.make import make_plan
from cannery.plan.manifest import manifest
from cannery.plan.plan import LayerKind
from cannery.plan.steps import archive_steps
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from cannery.catalog.catalog import Catalog
    from cannery.catalog.component import Component
    from cannery.plan.plan import Plan


def planned(found: Catalog | None = None, options: Options | None = None, version: str = "5.3.0") -> Plan:
    recipe = archive_recipe(options, found, version)
    return make_plan(recipe, inputs(recipe, templates={"tools/archive.py": "a", "tools/common/hook.py": "b"}))


def changed(**changes: object) -> Catalog:
    """A catalog whose `allocator` is another one."""
    value = {**components()["allocator"].model_dump(), **changes}
    mine: Component = type(components()["allocator"]).model_validate(value)
    return catalog(components={**catalog().components, "allocator": mine})


def digests(made: Plan) -> dict[str, str]:
    return {layer.name: layer.digest for layer in made.layers}


@pytest.mark.parametrize(("arch", "bits"), [("amd64", "12"), ("arm64", "16")])
def test_the_commands_are_those_of_the_targets_arch(arch: str, bits: str) -> None:
    (step,) = archive_steps(archive_recipe(Options(arch=arch)))
    assert (step.file, step.version, step.sha256, step.size) == ("allocator-5.3.0.tar.bz2", "5.3.0", "5" * 64, 700_000)
    configure = ["./configure", "--prefix=/usr/local", f"--with-lg-page={bits}"]
    install = ["make", "-j{jobs}", "install", "DESTDIR={destdir}"]
    assert json.loads(step.text) == {
        "name": "allocator",
        "commands": [configure, install],
        "files": ["/usr/local/lib/libjemalloc.so.2"],
    }


def test_it_is_a_layer_of_its_own_between_the_system_and_the_wheels() -> None:
    made = planned()
    kinds = [layer.kind for layer in made.layers]
    assert kinds[:3] == [LayerKind.SYSTEM, LayerKind.VENV, LayerKind.ARCHIVE]
    assert made.layers[2].summary == "/usr/local/lib/libjemalloc.so.2 of allocator-5.3.0.tar.bz2"
    assert made.env["LD_PRELOAD"] == "/usr/local/lib/libjemalloc.so.2"
    assert (made.system_packages, made.links) == ((), ())


def test_another_version_rebuilds_that_layer_and_changes_the_plan() -> None:
    before, after = planned(), planned(version="5.2.0")
    assert {name for name, digest in digests(after).items() if digests(before)[name] != digest} == {
        "allocator",
        "files",
    }
    assert before.digest != after.digest


def test_what_is_only_told_of_a_tarball_changes_no_image() -> None:
    archives = components()["allocator"].model_dump()["archives"]
    told = changed(archives={v: {**a, "note": "n", "source": "s", "date": "2022-05-06"} for v, a in archives.items()})
    without = changed(archives={"5.3.0": archives["5.3.0"]})
    assert planned(without).digest == planned().digest
    assert digests(planned(told)) == {**digests(planned()), "files": digests(planned(told))["files"]}


@pytest.mark.parametrize("what", ["steps", "sha256"])
def test_what_is_built_or_how_changes_its_layer(what: str) -> None:
    archives = components()["allocator"].model_dump()["archives"]
    archives["5.3.0"]["sha256"] = "9" * 64
    data = changed(steps=[["make"]]) if what == "steps" else changed(archives=archives)
    assert digests(planned(data))["allocator"] != digests(planned())["allocator"]


def test_the_manifest_names_the_tarball_and_what_has_to_be_there() -> None:
    told = manifest(planned(), catalog().compatibility)
    assert told["archives"] == [
        {
            "component": "allocator",
            "version": "5.3.0",
            "file": "allocator-5.3.0.tar.bz2",
            "hash": f"sha256:{'5' * 64}",
            "files": ["/usr/local/lib/libjemalloc.so.2"],
        }
    ]
    assert told["checks"]["files"] == [{"path": "/usr/local/lib/libjemalloc.so.2", "sha256": None}]
    assert told["checks"]["libraries"] == ["/usr/local/lib/libjemalloc.so.2"]


def test_no_lock_and_no_pin_speaks_of_a_tarball() -> None:
    recipe = archive_recipe()
    assert not [text for text in lock_request(recipe).requirements if "allocator" in text]
    assert "allocator" not in subject(recipe).versions
    with pytest.raises(UsageError, match="allocator is no package of this profile"):
        archive_recipe(Options(pins=("allocator==5.2.0",)))


def test_a_build_for_another_arch_compiles_it_under_emulation() -> None:
    (said,) = emulation(subject(archive_recipe(Options(arch="arm64")), build_arch=Arch.AMD64))
    assert said.what == "allocator is compiled under emulation: the target is arm64, this machine amd64"
    assert not [*emulation(subject(archive_recipe(), build_arch=Arch.AMD64))]


def test_the_package_and_the_tarball_of_one_library_are_not_taken_together() -> None:
    pins = [pin.model_dump(exclude_unset=True) for pin in profile().components]
    both = profile(components=[{"name": "allocator", "version": "5.3.0"}, *pins])
    recipe = select(catalog(profiles={"stack": both}), "stack", Options(), Arch.AMD64)
    (found,) = (one for one in check_recipe(recipe, catalog()) if one.code == "files")
    assert found.severity is Severity.ERROR
    assert found.what == "allocator and jemalloc both bring /usr/local/lib/libjemalloc.so.2"
    assert found.fix == "take allocator or jemalloc out of `components` in images/profiles/stack.yaml"
    assert not [one for one in check_recipe(archive_recipe(), catalog()) if one.code == "files"]
