"""Reports from the field (version conflicts, chips, indexes), each as the command that a user runs.

The table is the real one; profiles, components and packages are small and made up.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import yaml
from small_checkout import ROOT, Small, make_small
from stub_index import StubIndex, make_wheel

from cannery.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLUGIN = """\
kind: native
summary: the plugin
hosts: {github: vllm-project/vllm-ascend}
install: wheel
soc_variable: SOC_VERSION
after: [torch, torch-npu, vllm]
revisions:
  b6d63bbd52945192bba2ad8038e6c3bc241bc3b5:
    {version: 0.11.0rc3, requires: [torch==2.7.1, torch-npu==2.7.1], requires_python: ">=3.9", source: pyproject.toml}
releases:
  0.11.0rc1: {requires: [torch==2.7.1, torch-npu==2.7.1], source: METADATA}
  0.13.0: {requires: [torch-npu], requires_python: ">=3.10,<3.12", chips: [910b], source: METADATA}
"""
ENGINE = """\
kind: source
summary: the engine
hosts: {github: vllm-project/vllm}
install: wheel
build_env: {VLLM_TARGET_DEVICE: empty}
after: [torch]
releases:
  0.11.0: {requires: [dep], source: requirements/common.txt}
  0.13.0: {requires: [dep], source: requirements/common.txt}
"""
STACK = """\
summary: made up
target: {{cann: "{cann}", chip: 910b, os: ubuntu22.04, python: "3.11", arch: [amd64]}}
exclude_newer: "2026-06-01"
components:
  - {{name: torch, version: "{torch}"}}
  - {{name: torch-npu, version: "{npu}"}}
  - {{name: vllm, release: "{engine}"}}
  - {{name: vllm-ascend, {plugin}}}
"""


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        found = make_small(tmp_path, index, capsys, monkeypatch)
        images = found.root / "images"
        shutil.copy(ROOT / "images/compatibility.yaml", images / "compatibility.yaml")
        (images / "components/vllm.yaml").write_text(ENGINE)
        (images / "components/vllm-ascend.yaml").write_text(PLUGIN)
        for base in (images / "bases").glob("8*.yaml"):
            base.write_text(yaml.safe_dump({**yaml.safe_load(base.read_text()), "python_packages": []}))
        yield found


def write(small: Small, more: str = "", **values: str) -> None:
    text = STACK.format(**{"cann": "8.3.rc2", "engine": "0.11.0", "torch": "2.7.1", **values})
    small.profile("case").write_text(text + more)


def test_v01_an_engine_for_a_newer_torch_passes_and_the_override_is_a_note(small: Small) -> None:
    for name, version in (("torch", "2.7.1"), ("torch-npu", "2.7.1.post1"), ("vllm", "0.11.0")):
        small.index.add(make_wheel(name, version))
    override = 'overrides: [{requirement: "torch-npu==2.7.1.post1", reason: "the build for CANN 8.3.RC2"}]\n'
    commit = "commit: b6d63bbd52945192bba2ad8038e6c3bc241bc3b5"
    write(small, override, npu="2.7.1.post1", plugin=commit)
    assert small("lock", "case").code == ExitCode.DONE
    done = small("check", "case")
    assert done.code == ExitCode.DONE, done.out
    assert "error" not in done.out.replace("no errors", "")
    assert (
        "note [override] torch-npu==2.7.1.post1 overrides: vllm-ascend asks torch-npu==2.7.1\n"
        "    why: the build for CANN 8.3.RC2\n" in done.out
    )
    assert "vllm 0.11.0: torch" not in done.out  # its CUDA build's torch gives way to vllm-ascend's


def test_v03_a_newer_pair_under_an_older_plugin_names_both_ways_out(small: Small) -> None:
    write(small, npu="2.8.0", torch="2.8.0", plugin='release: "0.11.0rc1"')
    done = small("check", "case")
    assert done.code == ExitCode.FINDINGS
    assert "error [fit] torch 2.8.0, torch-npu 2.8.0 and vllm-ascend 0.11.0rc1 do not fit" in done.out
    for offer in (
        "torch 2.7.1, torch-npu 2.7.1 and vllm 0.11.0 with",
        "vllm-ascend 0.12.0rc1",
        "vllm-ascend 0.13.0rc1",
    ):
        assert offer in done.out


@pytest.mark.parametrize("python", ["3.9", "3.12"])
def test_v14_a_python_that_the_plugin_does_not_take(small: Small, python: str) -> None:
    write(small, cann="8.5.0", engine="0.13.0", torch="2.8.0", npu="2.8.0.post2", plugin='release: "0.13.0"')
    done = small("check", "case", "--python", python)
    assert done.code == ExitCode.FINDINGS
    assert ">=3.10,<3.12" in done.out
    assert "8.5.0-910b-ubuntu22.04-py3.11" in done.out


def test_c01_ready_made_kernels_of_another_chip(small: Small) -> None:
    write(small, cann="8.5.0", engine="0.13.0", torch="2.8.0", npu="2.8.0.post2", plugin='release: "0.13.0"')
    done = small("check", "case", "--chip", "A3")
    assert done.code == ExitCode.FINDINGS
    assert "error [chip]" in done.out
    assert "ascend910_9391" in done.out


def test_c11_the_chip_is_one_field(small: Small) -> None:
    more = "env: {SOC_VERSION: ascend910_9391}\n"
    write(small, more, npu="2.7.1", plugin="commit: b6d63bbd52945192bba2ad8038e6c3bc241bc3b5")
    done = small("check", "case")
    assert done.code == ExitCode.FINDINGS
    assert "error [soc]" in done.out
    assert "ascend910b1" in done.out
