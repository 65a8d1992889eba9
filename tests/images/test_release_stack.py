"""A guide's whole stack for arm64, from releases of the package index alone, built and verified under QEMU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cannery.vocab import Arch
from tests.e2e.engine_fixtures import Cannery, Early, Image

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.engine

# What the stand-in can import of it; all else has to be skipped by name.
IMPORTED = (
    "torch", "torch_npu", "torchvision", "triton", "ray", "transformers", "tensordict", "vllm", "vllm_ascend", "verl",
)  # fmt: skip


@pytest.fixture(scope="module")
def stack(release_stack: Early | None) -> Image:
    if release_stack is None:
        pytest.skip(f"no QEMU for arm64 on this host: {Arch.ARM64.emulation}")
    return Image(json.loads(release_stack.result()))


@pytest.fixture(scope="module")
def checks(stack: Image) -> Mapping[str, dict[str, Any]]:
    return {check["id"]: check for check in stack.table["report"]["checks"]}


@pytest.fixture(scope="module")
def manifest(cannery: Cannery, stack: Image) -> dict[str, Any]:
    done = cannery.docker("run", "--rm", stack.reference, "cat", "/opt/cannery/manifest.json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_is_an_arm64_image_that_verify_passes(cannery: Cannery, stack: Image) -> None:
    assert stack.table["report"]["result"] == "passed"
    assert cannery.docker("run", "--rm", stack.reference, "uname", "-m").stdout.strip() == "aarch64"


def test_a_trial_takes_no_moving_tag(stack: Image) -> None:
    (reference,) = stack.table["references"]
    assert reference.startswith("verl-qwen3.5:8.5.0-910b-ubuntu22.04-py3.11-")
    assert reference.endswith("-trial-standin")


@pytest.mark.parametrize("module", IMPORTED)
def test_imported(checks: Mapping[str, dict[str, Any]], module: str) -> None:
    mine = {name: check["status"] for name, check in checks.items() if name.startswith(f"import.{module}")}
    assert mine
    assert {*mine.values()} <= {"passed"}, mine


def test_what_is_skipped_says_why(checks: Mapping[str, dict[str, Any]]) -> None:
    skipped = {name: check["message"] for name, check in checks.items() if check["status"] == "skipped"}
    assert all(skipped.values()), skipped


def test_sources_are_the_releases(manifest: dict[str, Any]) -> None:
    wheels = {wheel["name"]: wheel["version"] for wheel in manifest["wheels"]}
    assert {name: wheels[name] for name in ("verl", "vllm-ascend")} == {"verl": "0.7.0", "vllm-ascend": "0.13.0"}
    (vllm,) = manifest["sources"]
    assert (vllm["name"], vllm["release"], vllm["commit"]) == ("vllm", "0.13.0", None)


def test_what_is_kept_out_is_named_with_its_reason(manifest: dict[str, Any]) -> None:
    kept_out = {item["requirement"]: item["reason"] for item in manifest["excludes"]}
    assert {*kept_out} == {"triton", "arctic-inference"}
    assert all(kept_out.values())
    assert not {*kept_out} & {wheel["name"] for wheel in manifest["wheels"]}


def test_kernels_that_link_cann_are_told_apart(stack: Image, checks: Mapping[str, dict[str, Any]]) -> None:
    assert "vllm-ascend with kernels that cannot load" in " ".join(stack.table["lacks"])
    assert "are allowed by the manifest" in checks["static.libraries"]["message"]
