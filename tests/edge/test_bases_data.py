"""The facts about CANN images in images/bases, as they are committed."""

from __future__ import annotations

import re
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from cannery.catalog.io.read import load_catalog
from cannery.catalog.target import Target, parse_chip
from cannery.recipe.environment import expand_env
from cannery.standin.tree import StandInSpec, cann_tree, entrypoint
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.standin.tree import Entry

IMAGES = Path(__file__).parents[2] / "images"
TAG = re.compile(r"(?P<cann>.+?)-(?P<chip>910b|910|a3|310p|950)-(?P<os>[^-]+)-py(?P<python>.+)")


@pytest.fixture(scope="module", name="catalog")
def _catalog() -> Catalog:
    return load_catalog(IMAGES)


def environments(catalog: Catalog) -> dict[str, dict[str, str]]:
    found = {}
    for line in catalog.bases.values():
        for name, tag in line.tags.items():
            match = TAG.fullmatch(name)
            assert match, name
            target = Target(match["cann"], parse_chip(match["chip"]), match["os"], match["python"], Arch.ARM64)
            assert (target.cann, target.base_tag) == (line.cann, name)
            assert tag.python.startswith(f"{target.python}.")
            found[name] = expand_env(line, target, tag)
    return found


def test_every_tag_has_an_environment_with_nothing_left_to_fill_in(catalog: Catalog) -> None:
    found = environments(catalog)
    assert len(found) > 160
    assert [name for name, env in found.items() if re.search(r"[{}$]", "".join(env.values()))] == []
    for name, env in found.items():
        line = catalog.bases[name.partition("-")[0]]
        assert env["ASCEND_TOOLKIT_HOME"] == line.toolkit_home
        assert env["ASCEND_OPP_PATH"] == f"{line.toolkit_home}/opp"
        assert env["ATB_HOME_PATH"].endswith(f"cxx_abi_{line.tags[name].atb_abi}")
        assert f"/usr/local/python{line.tags[name].python}/bin" in env["PATH"].split(":")


def test_facts_that_stacks_trip_over(catalog: Catalog) -> None:
    found = environments(catalog)
    assert found["8.3.rc1-910b-ubuntu22.04-py3.11"]["ATB_HOME_PATH"].endswith("/cxx_abi_0")
    assert found["8.1.rc1-a3-ubuntu22.04-py3.10"]["ATB_HOME_PATH"].endswith("/cxx_abi_1")
    assert found["8.5.0-910b-ubuntu22.04-py3.11"]["ASCEND_HOME_PATH"] == "/usr/local/Ascend/cann-8.5.0"
    assert "8.3.rc1-910b-ubuntu22.04-py3.10" not in found
    assert len(catalog.bases["8.5.0"].set_env) == 3
    # 8.5.2 alone has devlib, whose stub of libascend_hal.so comes before the driver's library
    devlib = {name.partition("-")[0] for name, env in found.items() if "/devlib" in env["LD_LIBRARY_PATH"]}
    assert devlib == {"8.5.2"}
    # From 9.0.1 on the entrypoint hands ATB's script the ABI that ENV names
    atb = {cann: line.set_env[-1].partition(" ")[2] for cann, line in catalog.bases.items()}
    assert {cann for cann, argument in atb.items() if argument == "--cxx_abi=${ATB_CXX_ABI:-1}"} == {"9.0.1", "9.1.0"}
    assert {argument for argument in atb.values() if argument} == {"--cxx_abi=${ATB_CXX_ABI:-1}"}
    assert {name.partition("-")[0] for name, env in found.items() if env.get("ATB_CXX_ABI") == "1"} == {
        "9.0.1",
        "9.1.0",
    }
    # Of the interpreter's own libraries, openEuler's images name none
    assert "/usr/local/python3.12.13/lib" in found["9.1.0-910b-ubuntu22.04-py3.12"]["LD_LIBRARY_PATH"].split(":")
    assert "/usr/local/python" not in found["9.1.0-a3-openeuler24.03-py3.12"]["LD_LIBRARY_PATH"]


@pytest.mark.parametrize("cann", ["9.0.0", "9.0.1", "9.1.0"])
def test_a_line_from_9_0_on_has_one_grid_of_tags(catalog: Catalog, cann: str) -> None:
    chips, systems, pythons = (
        ("310p", "910", "910b", "a3", "950"),
        ("ubuntu22.04", "openeuler24.03"),
        ("10", "11", "12"),
    )
    every = {f"{cann}-{chip}-{os}-py3.{python}" for chip in chips for os in systems for python in pythons}
    assert set(catalog.bases[cann].tags) == every
    full = {tag.python for tag in catalog.bases[cann].tags.values()}
    assert full == {"3.10.20", "3.11.15", "3.12.13"}


def test_an_empty_segment_stays_where_the_images_have_it(catalog: Catalog) -> None:
    env = environments(catalog)["8.3.rc1-910b-ubuntu22.04-py3.11"]
    assert env["LD_LIBRARY_PATH"].endswith("/usr/local/Ascend/driver/lib64/driver/:")
    assert env["PYTHONPATH"].endswith("/tbe:")


def stand_ins(catalog: Catalog) -> Iterator[tuple[str, StandInSpec]]:
    """The stand-in of every tag that has one, for both arches, without stubs."""
    for line in catalog.bases.values():
        for name, tag in line.tags.items():
            match = TAG.fullmatch(name)
            assert match, name
            if match["python"] == catalog.standin.python:
                for arch in Arch:
                    target = Target(match["cann"], parse_chip(match["chip"]), match["os"], match["python"], arch)
                    yield f"{name} {arch}", StandInSpec(catalog.standin, target, line, tag, None)


def followed(path: str, tree: Mapping[str, Entry]) -> str:
    """`path` with the link of the tree that it leads through, if any, replaced by what the link names."""
    for parent in (PurePosixPath(path), *PurePosixPath(path).parents):
        target = tree[str(parent)].target if str(parent) in tree else None
        if target:
            return normpath(parent.parent / target / PurePosixPath(path).relative_to(parent))
    return path


def test_every_line_has_a_stand_in(catalog: Catalog) -> None:
    lines = {spec.line.cann for _, spec in stand_ins(catalog)}
    assert lines == set(catalog.bases)
    assert lines >= {"8.1.rc1", "8.2.rc1", "8.3.rc1", "8.3.rc2", "8.5.0", "8.5.1", "8.5.2", "9.0.0", "9.0.1", "9.1.0"}


def test_a_stand_in_has_every_folder_and_script_that_its_environment_and_entrypoint_name(catalog: Catalog) -> None:
    for name, spec in stand_ins(catalog):
        tree = {entry.path: entry for entry in cann_tree(spec, {})}
        env = spec.env
        homes = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "TOOLCHAIN_HOME", "ATB_HOME_PATH")
        for variable in homes:
            assert followed(env[variable], tree) in tree, f"{name}: {variable}={env[variable]}"
        for script in spec.line.scripts:
            assert tree[followed(script, tree)].mode == 0o755, f"{name}: {script}"
        assert " && ".join(f"source {script}" for script in spec.line.set_env) in entrypoint(spec.line.set_env)[2]
        for file in spec.line.version_files:
            content = tree[followed(file.at(spec.target.arch), tree)].content
            assert content is not None
            assert content.decode() == file.line.replace("{version}", spec.line.cann.upper()) + "\n", (
                f"{name}: {file.name}"
            )
        assert f"{spec.python_home}/bin/python3" in tree


def test_a_line_names_no_folder_of_another(catalog: Catalog) -> None:
    for name, spec in stand_ins(catalog):
        text = "\n".join([*spec.env.values(), *spec.line.set_env, spec.line.toolkit_home])
        assert set(re.findall(r"/cann-([^/:\n]+)", text)) <= {spec.line.cann}, name
        assert set(re.findall(r"ascend-toolkit/(\d[^/:\n]*)", text)) == set(), name
        assert ("/cann-" in text) != spec.line.cann.startswith(("8.1", "8.2", "8.3")), name
