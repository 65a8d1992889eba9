"""The environment of CANN images, from their ENV lines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from cannery.catalog.catalog import BaseLine, BaseTag, VersionFile
from cannery.catalog.target import Target
from cannery.errors import FindingsError, UsageError
from cannery.recipe.environment import DEFAULT_PATH, expand_env, python_home
from cannery.vocab import Arch, Chip

TARGET = Target("8.5.0", Chip.A2, "ubuntu22.04", "3.11", Arch.AMD64)
TAG = BaseTag(python="3.11.14", atb_abi=1)


def line(*env: str) -> BaseLine:
    return BaseLine(
        cann="8.5.0",
        source="test",
        toolkit_home="/usr/local/Ascend/cann-8.5.0",
        set_env=(),
        version_files=(),
        env={"ubuntu22.04": env},
        python_packages=(),
        tags={},
    )


def expand(*env: str) -> dict[str, str]:
    return expand_env(line(*env), TARGET, TAG)


def test_later_lines_extend_earlier_ones_from_dockers_default_path() -> None:
    env = expand("PATH={python_home}/bin:${PATH}", "H=/opt/h", "PATH=$H/bin:$PATH")
    assert env["PATH"] == f"/opt/h/bin:/usr/local/python3.11.14/bin:{DEFAULT_PATH}"


def test_an_unset_name_leaves_the_empty_segment_that_docker_leaves() -> None:
    assert expand("LD_LIBRARY_PATH=/a/:$LD_LIBRARY_PATH")["LD_LIBRARY_PATH"] == "/a/:"


def test_quotes_are_docker_quotes() -> None:
    assert expand('SUFFIX=""', 'NAME="a b"') == {"PATH": DEFAULT_PATH, "SUFFIX": "", "NAME": "a b"}


def test_abi_of_the_tag_fills_its_field() -> None:
    lines = line("ATB_HOME_PATH=/atb/cxx_abi_{atb_abi}", "LIB=${ATB_HOME_PATH}/lib")
    assert expand_env(lines, TARGET, TAG)["LIB"] == "/atb/cxx_abi_1/lib"
    assert expand_env(lines, TARGET, BaseTag(python="3.11.14", atb_abi=0))["LIB"] == "/atb/cxx_abi_0/lib"


def test_a_name_like_a_field_is_dockers() -> None:
    assert expand("python_home=/x", "A=${python_home}:{python_home}")["A"] == "/x:/usr/local/python3.11.14"


def test_order_is_that_of_first_appearance() -> None:
    assert list(expand("B=1", "A=2", "B=$B$A")) == ["PATH", "B", "A"]


def test_unknown_os_is_a_finding_that_names_the_nearest() -> None:
    with pytest.raises(FindingsError, match=r"no image on ubuntu24\.04[\s\S]*ubuntu22\.04"):
        expand_env(line("A=1"), replace(TARGET, os="ubuntu24.04"), TAG)


@pytest.mark.parametrize("text", ["no equals sign", "1A=x"])
def test_what_is_no_env_line_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="is not an ENV line"):
        line(text)


def test_a_reference_that_is_not_understood_is_refused() -> None:
    with pytest.raises(UsageError, match=r"images/bases/8\.5\.0\.yaml"):
        expand("A=${B:-x}")


def test_python_home() -> None:
    assert python_home(TAG) == "/usr/local/python3.11.14"


def test_version_file_is_found_by_machine() -> None:
    file = VersionFile(name="toolkit", path="/c/{machine}-linux/x.info", line="version={version}")
    assert (file.at(Arch.AMD64), file.at(Arch.ARM64)) == ("/c/x86_64-linux/x.info", "/c/aarch64-linux/x.info")
