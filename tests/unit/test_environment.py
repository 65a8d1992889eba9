from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from factories import (
    ENGINE,
    KERNELS,
    LIBRARY,
    PATCHER,
    PLUGIN,
    catalog,
    components,
    inputs,
    profile,
    recipe,
    source_components,
    source_recipe,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cannery.catalog.component import Component, CxxAbi, parse_component
from cannery.errors import FindingsError
from cannery.plan import Link
from cannery.plan.make import make_plan
from cannery.plan.manifest import manifest
from cannery.recipe.environment import (
    atb_abi,
    docker_quote,
    image_environment,
    known_abi,
    profile_script,
    shell_quote,
    with_abi,
)
from cannery.recipe.recipe import Options, Recipe, python_folders, tree_links, with_arch
from cannery.vocab import Arch

BASE = {"PATH": "/usr/local/python3.11.14/bin:/usr/bin", "LD_LIBRARY_PATH": "/lib64"}
names = st.text("ABC_019", max_size=4).map(lambda n: f"X_{n}")
values = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=20)


def test_base_then_venv_then_components_then_profile() -> None:
    env = image_environment(recipe(), BASE)
    assert env["PATH"] == "/opt/venv/bin:/usr/local/python3.11.14/bin:/usr/bin"
    assert env["VIRTUAL_ENV"] == "/opt/venv"
    assert env["LD_PRELOAD"] == "/usr/local/lib/libjemalloc.so.2"
    assert env["MORE_PATH"] == "/lib64:/opt/more"
    assert list(env)[:3] == ["PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"]


def test_no_empty_segment_is_left_for_the_working_directory() -> None:
    env = image_environment(recipe(), {**BASE, "LD_LIBRARY_PATH": "/a::/lib64:"})
    assert (env["LD_LIBRARY_PATH"], env["MORE_PATH"]) == ("/a:/lib64", "/a:/lib64:/opt/more")


def test_a_value_may_refer_to_what_was_set_before_and_an_unset_name_is_empty() -> None:
    parts = {
        **components(),
        "ray": components()["ray"].model_copy(update={"env": {"A": "${LD_PRELOAD}!", "B": "[${NO}]"}}),
    }
    found = recipe(found=catalog(components=parts, profiles={"stack": profile(env={"C": "${A}${B}", "D": "$A"})}))
    env = image_environment(found, BASE)
    assert env["C"] == "/usr/local/lib/libjemalloc.so.2![]"
    assert env["D"] == "$A", "only braces refer"


# ATB's C++ ABI

ATB = "/usr/local/Ascend/nnal/atb/latest/atb"
OF_ATB = {
    "PATH": f"{ATB}/cxx_abi_0/bin:/usr/bin",
    "ATB_HOME_PATH": f"{ATB}/cxx_abi_0",
    "LD_LIBRARY_PATH": f"{ATB}/cxx_abi_0/lib:{ATB}/cxx_abi_0/examples:/lib64:/mine{ATB}/cxx_abi_0/lib",
    "OTHER": f"{ATB}/cxx_abi_0x",
}
RANGES = {Arch.AMD64: {">=2.4,<2.7": 0, ">=2.7.1": 1}, Arch.ARM64: {">=2.4,<2.6": 0, ">=2.6": 1}}


def with_torch_npu(version: str | None, arch: Arch = Arch.AMD64, abi: int = 0) -> Recipe:
    """The made-up stack with a release of torch_npu, on images that name ATB's build of `abi`."""
    of_npu = components()["torch-npu"].model_copy(update={"cxx_abi": CxxAbi(by_release=RANGES, source="its symbols")})
    pins = [{"name": "torch-npu", "version": version}, {"name": "ray"}]
    lines = {
        cann: line.model_copy(
            update={"tags": {name: tag.model_copy(update={"atb_abi": abi}) for name, tag in line.tags.items()}}
        )
        for cann, line in catalog().bases.items()
    }
    data = catalog(
        profiles={"stack": profile(components=pins)}, components={**components(), "torch-npu": of_npu}, bases=lines
    )
    return with_arch(recipe(found=data), arch)


@pytest.mark.parametrize(
    ("version", "amd64", "arm64"),
    [
        ("2.5.1", 0, 0),
        ("2.6.0", 0, 1),
        ("2.6.0.post3", 0, 1),
        ("2.7.1", 1, 1),
        ("2.8.0.post2", 1, 1),
        ("2.7.1.dev20250724", None, 1),
        ("2.1.0", None, None),
        (None, None, None),
    ],
)
def test_torch_npu_decides_which_atb_fits(version: str | None, amd64: int | None, arm64: int | None) -> None:
    found = {arch: known_abi(with_torch_npu(version, arch)) for arch in Arch}
    assert found == {Arch.AMD64: amd64, Arch.ARM64: arm64}


def test_every_path_of_atb_in_the_bases_environment_follows() -> None:
    env = image_environment(with_torch_npu("2.7.1"), OF_ATB)
    assert env["ATB_HOME_PATH"] == f"{ATB}/cxx_abi_1"
    assert env["PATH"] == f"/opt/venv/bin:{ATB}/cxx_abi_1/bin:/usr/bin"
    # A path that only holds ATB's, or begins like it, is another one.
    assert env["LD_LIBRARY_PATH"] == f"{ATB}/cxx_abi_1/lib:{ATB}/cxx_abi_1/examples:/lib64:/mine{ATB}/cxx_abi_0/lib"
    assert env["OTHER"] == f"{ATB}/cxx_abi_0x"


def test_a_base_of_the_new_abi_goes_back_for_an_old_release() -> None:
    base = {name: value.replace("cxx_abi_0", "cxx_abi_1") for name, value in OF_ATB.items()}
    found = with_torch_npu("2.5.1", abi=1)
    assert image_environment(found, base)["ATB_HOME_PATH"] == f"{ATB}/cxx_abi_0"
    assert atb_abi(found) == 0


def test_an_unknown_release_leaves_the_bases_atb() -> None:
    found = with_torch_npu("2.1.0", abi=1)
    assert image_environment(found, OF_ATB)["ATB_HOME_PATH"] == OF_ATB["ATB_HOME_PATH"]
    assert atb_abi(found) == 1, "as the base's facts say"


def test_without_a_base_there_is_only_what_torch_npu_says() -> None:
    options = Options(os="openeuler22.03")
    with pytest.raises(FindingsError, match=r"no CANN image 8\.5\.0-910b-openeuler22\.03-py3\.11"):
        atb_abi(recipe(options))


def test_a_base_without_atb_stays_as_it_is() -> None:
    env = image_environment(with_torch_npu("2.7.1"), {**BASE, "ATB_HOME_PATH": "/opt/my/atb"})
    assert (env["ATB_HOME_PATH"], env["LD_LIBRARY_PATH"]) == ("/opt/my/atb", "/lib64")


def test_manifest_and_environment_name_one_abi_and_the_arches_share_a_tag() -> None:
    plans = [make_plan(found, inputs(found)) for found in (with_torch_npu("2.6.0", arch) for arch in Arch)]
    told = {plan.recipe.target.arch: manifest(plan, catalog().compatibility)["base"]["atb_abi"] for plan in plans}
    assert told == {Arch.AMD64: 0, Arch.ARM64: 1}
    assert plans[0].tag == plans[1].tag


# Trees

TREES = [
    {"name": "torch", "version": "2.9.0"},
    {"name": "torch-npu", "version": "2.9.0"},
    {"name": "engine", "commit": ENGINE},
    {"name": "patcher", "commit": PATCHER},
    {"name": "plugin", "commit": PLUGIN},
    {"name": "kernels", "commit": KERNELS},
]


def changed(name: str, **changes: object) -> Component:
    """A made-up source with other fields."""
    return parse_component({**source_components()[name].model_dump(exclude_unset=True), **changes})


def trees(pins: list[dict[str, str]] | None = None, **changes: object) -> Recipe:
    """The made-up sources, `plugin` a tree in a folder of its repository, with `changes` to the patcher."""
    parts = {
        **source_components(),
        "plugin": changed("plugin", install="tree", subdirectory="python/src"),
        "patcher": changed("patcher", **changes),
    }
    return source_recipe(found=catalog(components={**components(), **parts}), components=pins or TREES)


def test_trees_stand_on_pythonpath_behind_the_bases_own_in_the_profiles_order() -> None:
    env = image_environment(trees(), {**BASE, "PYTHONPATH": "/cann/python:/cann/tbe:"})
    assert env["PYTHONPATH"] == "/cann/python:/cann/tbe:/opt/src/patcher:/opt/src/plugin/python/src"


def test_without_entries_of_the_base_there_is_no_empty_segment() -> None:
    assert image_environment(trees(), BASE)["PYTHONPATH"] == "/opt/src/patcher:/opt/src/plugin/python/src"


def test_what_is_installed_needs_no_pythonpath() -> None:
    assert "PYTHONPATH" not in image_environment(source_recipe(), BASE)


def test_a_profile_may_put_its_own_before_the_trees() -> None:
    found = catalog(components={**components(), **source_components()})
    env = {"PYTHONPATH": "/mine:${PYTHONPATH}"}
    wanted = source_recipe(found=found, components=TREES, env=env)
    assert image_environment(wanted, {**BASE, "PYTHONPATH": "/cann"})["PYTHONPATH"] == "/mine:/cann:/opt/src/patcher"


def test_a_native_tree_on_the_stand_in_only() -> None:
    kernels = changed("kernels", standin={"install": "tree", "reason": "nothing to compile with"})
    found = catalog(components={**components(), **source_components(), "kernels": kernels})
    assert python_folders(source_recipe(found=found)) == ()
    assert python_folders(source_recipe(Options(base="standin"), found)) == ("/opt/src/kernels",)


def test_a_release_that_is_a_wheel_is_no_tree() -> None:
    release = {"0.1": {"source": "its METADATA"}}
    pins = [*TREES[:3], {"name": "patcher", "release": "0.1"}]
    assert python_folders(trees(pins, releases=release)) == ()
    made = {"0.1": {"source": "its PKG-INFO", "sdist": True}}
    assert python_folders(trees(pins, releases=made)) == ("/opt/src/patcher",)


LINKS = {"plugin": "plugin/python/src/plugin", "a/engine": "engine/engine", "lib": "library/lib"}


def test_links_from_a_tree_lead_into_the_trees_that_stand_there() -> None:
    """A wheel (engine) leaves no tree behind, and library is not in the profile."""
    found = trees(tree_links=LINKS)
    assert list(tree_links(found)) == [("/opt/src/patcher/plugin", "/opt/src/plugin/python/src/plugin")]
    plan = make_plan(found, inputs(found))
    assert plan.links == (Link("/opt/src/patcher/plugin", "/opt/src/plugin/python/src/plugin"),)
    assert [layer.summary for layer in plan.layers if layer.kind == "links"] == ["/opt/src/patcher/plugin"]


def test_links_into_an_editable_tree() -> None:
    pins = [*TREES[:4], {"name": "library", "commit": LIBRARY}]
    assert list(tree_links(trees(pins, tree_links=LINKS))) == [("/opt/src/patcher/lib", "/opt/src/library/lib")]


def exported(shell: str, script: str, env: dict[str, str]) -> dict[str, str]:
    """What a program sees that is started after the script was sourced under `set -eu`."""
    command = [shell, "-eu", "-c", f"{script}\nexec /usr/bin/env -0"]
    done = subprocess.run(command, capture_output=True, check=True, env=env)
    assert done.stderr == b""
    return dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0")[:-1])


@pytest.mark.parametrize("shell", ["sh", "bash"])
@given(st.dictionaries(names, values, max_size=6), values, st.dictionaries(names, values, max_size=3))
@settings(max_examples=25)
def test_a_login_shell_gets_the_same_values_and_keeps_what_it_was_given(
    shell: str, table: dict[str, str], path: str, given_by_user: dict[str, str]
) -> None:
    shell = f"/bin/{shell}"
    script = profile_script({"VIRTUAL_ENV": "/opt/venv", **table, "PATH": path})
    reset = {"PATH": "/reset/by/etc/profile"}
    seen = exported(shell, script, {**reset, "VIRTUAL_ENV": "/opt/venv", **table, **given_by_user})
    assert seen["PATH"] == path
    assert {name: seen[name] for name in table} == {**table, **{n: v for n, v in given_by_user.items() if n in table}}
    # Without the image's environment, whatever the base's own scripts set before: all of it.
    seen = exported(shell, script, {**reset, **dict.fromkeys(table, "/set/by/the/base")})
    assert {name: seen[name] for name in table} == table


@given(values)
def test_shell_quote_is_one_word(value: str) -> None:
    quoted = shell_quote(value)
    assert quoted.startswith("'")
    assert quoted[1:-1].replace("'\\''", "'") == value


def dockerfile_word(text: str) -> str:
    """Read one double-quoted word as BuildKit's lexer (frontend/dockerfile/shell) does: `\\` before `"`, `$`, `\\`."""
    assert text[0] == text[-1] == '"'
    out, rest = "", list(text[1:-1])
    while rest:
        char = rest.pop(0)
        assert char not in '"$', "would end the word or expand"
        out += rest.pop(0) if char == "\\" and rest[0] in '"$\\' else char
    return out


@given(values)
def test_docker_quote_is_one_word_that_expands_to_nothing_else(value: str) -> None:
    assert dockerfile_word(docker_quote(value)) == value


def test_docker_quote_of_a_trailing_backslash_does_not_join_lines() -> None:
    assert docker_quote("a\\") == '"a\\\\"'


def test_the_folder_of_the_compiler_is_on_path_where_a_script_brings_it() -> None:
    found = recipe()
    folder = "/usr/local/Ascend/cann-8.5.0/share/info/ascendnpu-ir/bin"
    line = found.base.line.model_copy(update={"set_env": (*found.base.line.set_env, f"{folder}/set_env.sh")})
    changed = replace(found, base=replace(found.base, line=line))
    assert folder not in image_environment(found, {"PATH": "/bin"})["PATH"]
    assert image_environment(changed, {"PATH": "/bin"})["PATH"] == f"/opt/venv/bin:{folder}:/bin"


@pytest.mark.parametrize("abi", [0, 1])
def test_the_abi_that_login_shells_hand_to_atbs_script_follows_the_one_of_torch(abi: int) -> None:
    env = {"ATB_HOME_PATH": "/atb/cxx_abi_1", "ATB_CXX_ABI": "1", "OTHER": "1"}
    assert with_abi(env, abi) == {"ATB_HOME_PATH": f"/atb/cxx_abi_{abi}", "ATB_CXX_ABI": str(abi), "OTHER": "1"}
    assert "ATB_CXX_ABI" not in with_abi({"ATB_HOME_PATH": "/atb/cxx_abi_1"}, abi)
