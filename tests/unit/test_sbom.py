"""The bill of materials of an image: complete, and valid by the schemas of those who read it."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from factories import ENGINE, catalog, inputs, package, plan, source_recipe

from cannery.catalog.addresses import Host
from cannery.lock.io.wheels import store_path
from cannery.plan.make import make_plan
from cannery.plan.sources import LocalTree
from cannery.recipe.recipe import Options
from cannery.report.bill import Bill, make_bill
from cannery.report.cyclonedx import cyclonedx_text
from cannery.report.io.sides import licence_of, read_licences
from cannery.report.spdx import spdx_text

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.plan import Plan

LICENCES = {"ray": "Apache-2.0", "torch": "BSD-3-Clause AND MIT", "sympy": "BSD", "numpy": ""}
SPDX_FIELDS = {
    *("SPDXID", "name", "versionInfo", "primaryPackagePurpose", "downloadLocation", "filesAnalyzed", "comment"),
    *("licenseConcluded", "licenseDeclared", "licenseComments", "copyrightText", "checksums", "externalRefs"),
}


def sources(options: Options | None = None, **changes: object) -> Plan:
    found = source_recipe(options)
    return make_plan(found, inputs(found, socs=("ascend910b1",), **changes))


def bill(made: Plan, **hosts: str) -> Bill:
    known = {**catalog().hosts, **{name: Host(url=url) for name, url in hosts.items()}}
    return make_bill(made, LICENCES, known)


def cyclonedx(made: Bill) -> dict[str, Any]:
    text = cyclonedx_text(made)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    return dict(json.loads(text))


def spdx(made: Bill) -> dict[str, Any]:
    """The document, held against what SPDX 2.3 asks of one: no schema of it is at hand."""
    value = dict(json.loads(spdx_text(made)))
    assert (value["spdxVersion"], value["dataLicense"], value["SPDXID"]) == ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT")
    ids = [one["SPDXID"] for one in value["packages"]]
    assert len(ids) == len(set(ids))
    for one in value["packages"]:
        assert set(one) <= SPDX_FIELDS
    related = {word for one in value["relationships"] for word in (one["spdxElementId"], one["relatedSpdxElement"])}
    assert related == {*ids, "SPDXRef-DOCUMENT"}
    return value


@pytest.mark.parametrize("options", [None, Options(base="standin")])
def test_every_package_of_the_lock_and_no_other(options: Options | None) -> None:
    made = plan(options)
    found = [one["name"] for one in cyclonedx(bill(made))["components"] if "pypi" in one.get("purl", "")]
    assert sorted(found) == sorted(one.name for one in made.lock.packages)
    found = [one["name"] for one in spdx(bill(made))["packages"] if "pypi" in str(one.get("externalRefs"))]
    assert sorted(found) == sorted(one.name for one in made.lock.packages)


def test_what_else_is_in_an_image() -> None:
    components = {one["bom-ref"]: one for one in cyclonedx(bill(plan()))["components"]}
    others = {ref for ref in components if not ref.startswith(("wheel:", "sdist:"))}
    base = next(ref for ref in others if ref.startswith("base:"))
    assert others - {base} == {"system:libjemalloc2", "system:libnuma1"}
    assert components["system:libnuma1"]["purl"] == "pkg:deb/ubuntu/libnuma1?arch=amd64"
    assert components[base]["type"] == "container"
    assert components[base]["purl"].startswith("pkg:docker/")


def test_the_stand_in_is_named_as_what_it_is() -> None:
    components = cyclonedx(bill(plan(Options(base="standin"))))["components"]
    (base,) = (one for one in components if one["type"] == "container")
    assert "purl" not in base
    assert {"name": "cannery:made by", "value": "cannery: a Debian system with stubs in place of CANN"} in base[
        "properties"
    ]
    assert any(one.get("purl", "").startswith("pkg:deb/debian/") for one in components)


def test_hashes_licences_and_who_asks() -> None:
    value = cyclonedx(bill(plan()))
    components = {one["bom-ref"]: one for one in value["components"]}
    ray = next(one for one in plan().lock.packages if one.name == "ray")
    assert components["wheel:ray"]["hashes"] == [{"alg": "SHA-256", "content": ray.sha256}]
    assert components["wheel:ray"]["licenses"][0]["license"]["id"] == "Apache-2.0"
    assert components["wheel:torch"]["licenses"][0]["expression"] == "BSD-3-Clause AND MIT"
    assert components["wheel:sympy"]["licenses"][0]["license"]["name"] == "BSD"
    assert "licenses" not in components["wheel:numpy"]
    assert components["wheel:torch"]["purl"] == "pkg:pypi/torch@2.9.0%2Bcpu"
    asks = {one["ref"]: one.get("dependsOn", []) for one in value["dependencies"]}
    assert asks["wheel:torch"] == ["wheel:sympy"]
    assert "wheel:sympy" not in asks["image"]
    reached = {"image"}
    while more := {ref for one in reached for ref in asks[one]} - reached:
        reached |= more
    assert reached == {"image", *components}


def test_licences_in_spdx_are_expressions_or_nothing() -> None:
    packages = {one["SPDXID"]: one for one in spdx(bill(plan()))["packages"]}
    assert packages["SPDXRef-wheel-torch"]["licenseDeclared"] == "BSD-3-Clause AND MIT"
    sympy = packages["SPDXRef-wheel-sympy"]
    assert (sympy["licenseDeclared"], sympy["licenseComments"]) == ("NOASSERTION", "METADATA: BSD")


def test_sources_have_their_commit() -> None:
    components = {one["bom-ref"]: one for one in cyclonedx(bill(sources()))["components"]}
    engine = components["source:engine"]
    assert engine["pedigree"]["commits"] == [{"uid": ENGINE}]
    assert engine["purl"].startswith("pkg:generic/engine@0.11.0?vcs_url=git%2Bhttps://")
    assert engine["purl"].endswith(f"%40{ENGINE}")
    assert {one for one in components if one.startswith("source:")} == {
        f"source:{name}" for name in ("engine", "kernels", "plugin")
    }


def test_a_source_on_github_has_its_own_kind_of_url() -> None:
    made = sources()
    chosen = tuple(
        replace(one, component=one.component.model_copy(update={"hosts": {"github": "Own/Engine"}}))
        if one.name == "engine"
        else one
        for one in made.recipe.chosen
    )
    made = replace(made, recipe=replace(made.recipe, chosen=chosen))
    components = {one["bom-ref"]: one for one in cyclonedx(bill(made))["components"]}
    assert components["source:engine"]["purl"] == f"pkg:github/own/engine@{ENGINE}"


def test_a_tree_of_the_user_has_no_public_address() -> None:
    made = sources(local={"engine": LocalTree("d" * 64, "c" * 40, dirty=True)})
    engine = {one["bom-ref"]: one for one in cyclonedx(bill(made))["components"]}["source:engine"]
    assert "purl" not in engine
    assert {"name": "cannery:changed", "value": "yes"} in engine["properties"]
    spdx(bill(made))


def test_the_same_plan_gives_the_same_text() -> None:
    for write in (cyclonedx_text, spdx_text):
        assert write(bill(plan())) == write(bill(plan()))
    assert bill(plan()).id != bill(plan(Options(arch="arm64"))).id
    assert cyclonedx(bill(plan()))["metadata"]["timestamp"].startswith("2026-01-02T00:00:00")


def test_a_wheel_and_a_system_package_of_one_name_are_two_parts() -> None:
    made = plan()
    made = replace(made, system_packages=("ray", "g++"))
    refs = {one["bom-ref"] for one in cyclonedx(bill(made))["components"]}
    assert {"wheel:ray", "system:ray", "system:g++"} <= refs
    spdx(bill(made))


# Licences.


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("Name: x\nLicense-Expression: MIT OR Apache-2.0\nLicense: other\n", "MIT OR Apache-2.0"),
        ("License: Apache License, Version 2.0\n", "Apache-2.0"),
        ("License: BSD\n", "BSD"),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License\n", "MIT"),
        (
            "License: Permission is hereby\n        granted\nClassifier: License :: OSI Approved :: BSD License\n",
            "BSD License",
        ),
        (f"License: {'x' * 200}\n", ""),
        ("Classifier: License :: A\nClassifier: License :: B\n", ""),
        ("Name: x\n\nLicense: MIT\n", ""),
        ("", ""),
    ],
)
def test_the_licence_of_a_metadata(metadata: str, licence: str) -> None:
    assert licence_of(metadata) == licence


def test_licences_are_read_from_the_wheels_that_are_here(tmp_path: Path) -> None:
    there, broken, absent = (package(name, size=0) for name in ("there", "broken", "absent"))
    for one in (there, broken):
        store_path(one, tmp_path).parent.mkdir(parents=True)
    with zipfile.ZipFile(store_path(there, tmp_path), "w") as archive:
        archive.writestr("there-1.0.dist-info/METADATA", "License: MIT\n\nLicense: GPL\n")
    store_path(broken, tmp_path).write_text("no zip")
    assert read_licences([there, broken, absent], tmp_path) == {"there": "MIT"}
