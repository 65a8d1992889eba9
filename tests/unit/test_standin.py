"""The stand-in base: reference, configuration and files."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path, PurePosixPath

import factories
import pytest

from cannery.catalog.catalog import BaseLine, BaseTag, StandIn
from cannery.catalog.target import Target
from cannery.making.base import standin_config
from cannery.recipe.recipe import Options
from cannery.standin.stubs import Stub
from cannery.standin.tree import (
    Entry,
    StandInSpec,
    cann_tree,
    entrypoint,
    standin_spec,
    tree_tar,
    with_parents,
)
from cannery.vocab import Arch, Chip

LATEST = "/usr/local/Ascend/ascend-toolkit/latest"
ATB = "/usr/local/Ascend/nnal/atb"
SET_ENV = ("/usr/local/Ascend/ascend-toolkit/set_env.sh", f"{ATB}/set_env.sh")


def spec(cann: str = "8.3.rc1", home: str = LATEST, arch: Arch = Arch.AMD64) -> StandInSpec:
    line = BaseLine.model_validate(
        {
            "cann": cann,
            "source": "test",
            "toolkit_home": home,
            "set_env": SET_ENV,
            "version_files": [
                {"name": "toolkit", "path": f"{home}/{{machine}}-linux/x.info", "line": "version={version}"},
                {"name": "nnal", "path": f"{ATB}/latest/version.info", "line": "Ascend-cann-atb : {version}"},
            ],
            "env": {
                "ubuntu22.04": [
                    "PATH={python_home}/bin:${PATH}",
                    f"ASCEND_HOME_PATH={home}",
                    "PATH=${ASCEND_HOME_PATH}/bin:${ASCEND_HOME_PATH}/tools/bin:$PATH",
                    "LD_LIBRARY_PATH=${ASCEND_HOME_PATH}/lib64:$LD_LIBRARY_PATH",
                    f"ATB_HOME_PATH={ATB}/latest/atb/cxx_abi_{{atb_abi}}",
                    "LD_LIBRARY_PATH=${ATB_HOME_PATH}/lib:${LD_LIBRARY_PATH}",
                    'ATB_SUFFIX=""',
                    "LCCL_PARALLEL=0",
                ]
            },
            "python_packages": [],
            "tags": {},
        }
    )
    data = StandIn.model_validate(
        {
            "schema": 1,
            "suite": "bookworm",
            "python": "3.11",
            "epoch": 1735689600,
            "packages": ["python3"],
            "folders": ["opp/vendors", "runtime"],
            "modules": ["acl"],
            "libraries": {"libascendcl.so": {"prefixes": ["acl"]}},
        }
    )
    target = Target(cann, Chip.A2, "ubuntu22.04", "3.11", arch)
    return StandInSpec(
        data, target, line, BaseTag(python="3.11.13", atb_abi=0), factories.package("torch-npu", "2.13.0")
    )


def tree(made: StandInSpec, stubs: dict[Stub, bytes] | None = None) -> dict[str, Entry]:
    return {entry.path: entry for entry in cann_tree(made, stubs or {})}


def shell(command: str, **env: str) -> dict[str, str]:
    done = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_a_module_of_cann_can_be_imported_and_has_nothing_in_it(tmp_path: Path) -> None:
    made = spec()
    (path,) = [path for path in tree(made) if path.endswith("/acl.py")]
    # The image's PYTHONPATH names the folder by the link `latest`.
    assert path.removesuffix("/acl.py").endswith("/python/site-packages")
    (tmp_path / "acl.py").write_bytes(tree(made)[path].content or b"")
    command = [sys.executable, "-c", "import acl; acl.init()"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "module 'acl' has no attribute 'init'" in done.stderr


def test_reference_names_the_base_it_stands_for() -> None:
    made = spec()
    assert made.reference == f"cannery-standin:8.3.rc1-910b-ubuntu22.04-py3.11-amd64-{made.digest}"
    assert len(made.digest) == 12
    assert spec().reference == made.reference


@pytest.mark.parametrize(
    "changed",
    [
        lambda made: replace(made, data=made.data.model_copy(update={"packages": ("python3", "git")})),
        lambda made: replace(made, data=made.data.model_copy(update={"schema_number": 2})),
        lambda made: replace(made, data=made.data.model_copy(update={"folders": ()})),
        lambda made: replace(made, data=made.data.model_copy(update={"modules": ()})),
        lambda made: replace(made, tag=BaseTag(python="3.11.14", atb_abi=0)),
        lambda made: replace(made, tag=BaseTag(python="3.11.13", atb_abi=1)),
        lambda made: replace(made, torch_npu=None),
        lambda made: replace(made, torch_npu=replace(made.torch_npu, sha256="0" * 64)),
        lambda made: replace(made, line=made.line.model_copy(update={"set_env": SET_ENV[:1]})),
    ],
)
def test_whatever_changes_the_image_changes_the_reference(changed) -> None:  # noqa: ANN001
    assert changed(spec()).digest != spec().digest


def test_reference_follows_the_locks_arch() -> None:
    recipe = factories.recipe(Options(base="standin"))
    data = factories.standin()
    references = [standin_spec(recipe, factories.lock(recipe, arch), data).reference for arch in Arch]
    assert "-amd64-" in references[0]
    assert "-arm64-" in references[1]


def test_configuration_is_that_of_a_cann_image_and_says_that_it_is_none() -> None:
    config = standin_config(spec(arch=Arch.ARM64), ["sha256:1", "sha256:2"])
    assert (config["architecture"], config["created"]) == ("arm64", "2025-01-01T00:00:00Z")
    assert config["rootfs"]["diff_ids"] == ["sha256:1", "sha256:2"]
    assert len(config["history"]) == 2
    inner = config["config"]
    assert f"LD_LIBRARY_PATH={ATB}/latest/atb/cxx_abi_0/lib:{LATEST}/lib64:" in inner["Env"]
    assert inner["Shell"] == ["/bin/bash", "-c"]
    assert inner["Labels"]["org.cannery.base.kind"] == "standin"
    assert "Cmd" not in inner


def test_entrypoint_sources_in_order_and_becomes_the_command() -> None:
    assert entrypoint(("/a", "/b")) == ("/bin/bash", "-c", 'source /a && source /b && exec "$@"', "--")


def test_up_to_8_3_latest_is_a_link_to_the_versions_folder() -> None:
    files = tree(spec())
    assert files[LATEST].target == "8.3.RC1"
    assert files["/usr/local/Ascend/ascend-toolkit/8.3.RC1/x86_64-linux/x.info"].content == b"version=8.3.RC1\n"
    assert files[f"{ATB}/8.3.RC1/version.info"].content == b"Ascend-cann-atb : 8.3.RC1\n"
    assert not any(path.startswith((f"{LATEST}/", f"{ATB}/latest/")) for path in files)


def test_from_8_5_the_toolkit_has_a_folder_of_its_own() -> None:
    files = tree(spec("8.5.0", "/usr/local/Ascend/cann-8.5.0", Arch.ARM64))
    assert files[LATEST].target == "../cann-8.5.0"
    assert files["/usr/local/Ascend/cann-8.5.0/aarch64-linux/x.info"].content == b"version=8.5.0\n"
    assert "/usr/local/Ascend/cann-8.5.0/opp/vendors" in files


def test_stubs_go_to_the_toolkit_and_to_both_abis_of_atb() -> None:
    stubs = {Stub("liba.so", "toolkit", (), (), ()): b"a", Stub("libatb.so", "atb", (), (), ()): b"b"}
    files = tree(spec(), stubs)
    assert files["/usr/local/Ascend/ascend-toolkit/8.3.RC1/lib64/liba.so"].content == b"a"
    assert [files[f"{ATB}/8.3.RC1/atb/cxx_abi_{abi}/lib/libatb.so"].content for abi in (0, 1)] == [b"b", b"b"]


def test_python_has_the_cann_images_path() -> None:
    files = tree(spec())
    folder = "/usr/local/python3.11.13/bin"
    links = {name: files[f"{folder}/{name}"].target for name in ("python", "python3", "python3.11")}
    assert links == {"python": "python3", "python3": "python3.11", "python3.11": "/usr/bin/python3.11"}


def test_npu_smi_says_what_it_is_and_fails(tmp_path) -> None:  # noqa: ANN001
    file = tmp_path / "npu-smi"
    file.write_bytes(tree(spec())["/usr/local/bin/npu-smi"].content or b"")
    done = subprocess.run(["/bin/sh", file, "info"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "stand-in" in done.stderr


@pytest.fixture
def scripts(tmp_path) -> str:  # noqa: ANN001
    """Shell text that sources both set_env.sh and prints the environment."""
    files = tree(spec())
    for number, path in enumerate(SET_ENV):
        (tmp_path / str(number)).write_bytes(files[path].content or b"")
    return f". {tmp_path}/0; . {tmp_path}/1; {shutil.which('env')}"


def test_set_env_changes_nothing_under_the_images_environment(scripts: str) -> None:
    env = spec().env
    found = shell(scripts, **env)
    assert {name: found.get(name) for name in env} == env


def test_set_env_gives_the_same_values_where_nothing_is_set(scripts: str) -> None:
    found, env = shell(scripts, PATH="/usr/bin:/bin"), spec().env
    assert found["PATH"] == f"{LATEST}/bin:{LATEST}/tools/bin:/usr/bin:/bin"
    assert found["LD_LIBRARY_PATH"] == env["LD_LIBRARY_PATH"].rstrip(":")
    singles = ("ASCEND_HOME_PATH", "ATB_HOME_PATH", "ATB_SUFFIX", "LCCL_PARALLEL")
    assert {name: found[name] for name in singles} == {name: env[name] for name in singles}


def test_set_env_follows_an_image_that_moved_atb_to_the_other_abi(scripts: str) -> None:
    env = {name: value.replace("cxx_abi_0", "cxx_abi_1") for name, value in spec().env.items()}
    found = shell(scripts, **env)
    assert {name: found.get(name) for name in env} == env


def test_a_script_gets_its_argument_where_it_is_sourced_and_keeps_its_path() -> None:
    argument = "--cxx_abi=${ATB_CXX_ABI:-1}"
    made = spec()
    made = replace(made, line=made.line.model_copy(update={"set_env": (SET_ENV[0], f"{SET_ENV[1]} {argument}")}))
    assert standin_config(made, [])["config"]["Entrypoint"][2] == (
        f'source {SET_ENV[0]} && source {SET_ENV[1]} {argument} && exec "$@"'
    )
    files = tree(made)
    assert files[SET_ENV[1]].mode == 0o755
    assert f". {SET_ENV[1]} {argument}\n" in (files["/etc/profile.d/ascend.sh"].content or b"").decode()


def test_a_script_in_a_bin_brings_that_folder_and_atbs_takes_the_abi_that_it_is_handed(tmp_path) -> None:  # noqa: ANN001
    compiler = "/usr/local/Ascend/cann-8.3.rc1/share/info/ascendnpu-ir/bin"
    lines = (*SET_ENV, f"{compiler}/set_env.sh")
    made = spec()
    made = replace(made, line=made.line.model_copy(update={"set_env": lines}))
    assert made.line.program_folders == (compiler,)
    files = tree(made)
    for number, path in enumerate(lines):
        (tmp_path / str(number)).write_bytes(files[path].content or b"")
    text = f". {tmp_path}/0; . {tmp_path}/2; set -- --cxx_abi=1; . {tmp_path}/1; {shutil.which('env')}"
    found = shell(text, PATH="/usr/bin:/bin")
    assert found["PATH"].split(":")[0] == compiler
    assert compiler not in made.env["PATH"].split(":")  # what a real image's ENV leaves out
    assert found["ATB_HOME_PATH"] == f"{ATB}/latest/atb/cxx_abi_1"
    assert found["LD_LIBRARY_PATH"].split(":")[0] == f"{ATB}/latest/atb/cxx_abi_1/lib"


def test_folders_above_come_first_and_once() -> None:
    paths = [entry.path for entry in with_parents([Entry("/a/b/c", b"x"), Entry("/a/b/d"), Entry("/a/b/c", b"y")])]
    assert paths == ["/a", "/a/b", "/a/b/c", "/a/b/d"]


def test_layer_is_the_same_every_time_and_writes_through_no_link() -> None:
    entries = cann_tree(spec(), {})
    layer = tree_tar(entries, 7)
    assert layer == tree_tar(cann_tree(spec(), {}), 7)
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        members = archive.getmembers()
    assert {(m.uid, m.gid, m.uname, m.mtime) for m in members} == {(0, 0, "", 7)}
    links = {m.name for m in members if m.issym()}
    above = {str(parent) for m in members for parent in PurePosixPath(m.name).parents}
    assert not links & above
    assert len(members) == len({m.name for m in members}) == len(entries)
