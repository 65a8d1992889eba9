"""What the manifest lets `pip check` say: where the profile overrides or excludes a package, and nothing else."""

from __future__ import annotations

import re

import pytest
from factories import compatibility, inputs, source_recipe

from cannery.plan.make import make_plan
from cannery.plan.manifest import manifest

OVERRIDES = [{"requirement": "torch-npu==2.9.0", "reason": "the build that is there"}]
EXCLUDES = [{"requirement": "nvidia-modelopt", "reason": "CUDA alone uses it"}]


@pytest.fixture(scope="module")
def patterns() -> list[re.Pattern[str]]:
    found = source_recipe(overrides=OVERRIDES, excludes=EXCLUDES, pip_check_allow=["^a line of its own$"])
    made = manifest(make_plan(found, inputs(found, socs=("ascend910b1",))), compatibility())
    return [re.compile(text) for text in made["checks"]["pip_check_allow"]]


# Lines as pip writes them (pip._internal.commands.check).
@pytest.mark.parametrize(
    ("line", "is_allowed"),
    [
        ("a line of its own", True),
        ("kernels 1.0 has requirement torch-npu==2.7.1.dev20250724, but you have torch-npu 2.9.0.", True),
        ("kernels 1.0 has requirement Torch_NPU<2.9,>=2, but you have torch-npu 2.9.0.", True),
        ("kernels 1.0 has requirement torch-npu-extra==1, but you have torch-npu-extra 2.", False),
        ("kernels 1.0 has requirement torch==2.9.0, but you have torch 2.8.0.", False),
        ("torch-npu 2.9.0 has requirement numpy<2, but you have numpy 2.1.", False),
        ("kernels 1.0 requires torch-npu, which is not installed.", False),
        ("engine 1.0 requires nvidia-modelopt, which is not installed.", True),
        ("engine 1.0 requires nvidia_modelopt, which is not installed.", True),
        ("engine 1.0 requires nvidia-modelopt-core, which is not installed.", False),
        ("nvidia-modelopt 1.0 requires pulp, which is not installed.", False),
    ],
)
def test_lines_of_pip_check(patterns: list[re.Pattern[str]], line: str, is_allowed: bool) -> None:
    assert any(pattern.search(line) for pattern in patterns) is is_allowed
