"""CUDA by other names than nvidia-*: what the table denies, and what it does not (W1, case 04)."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

import pytest
from checkouts import ROOT

from cannery.catalog.io.read import load_catalog
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch

if TYPE_CHECKING:
    from cannery.catalog.catalog import Catalog


@cache
def catalog() -> Catalog:
    return load_catalog(ROOT / "images")


def denied(name: str, *sources: str) -> bool:
    return any(fnmatchcase(name, one.pattern) for one in catalog().compatibility.denied(sources))


@pytest.mark.parametrize(
    "name",
    [
        *("vllm", "cupy", "cupy-cuda12x", "cupy-cuda13x", "onnxruntime-gpu", "jax-cuda12-plugin", "jax-cuda13-pjrt"),
        *("nvidia-nccl-cu12", "nvidia-cublas", "nvidia-modelopt", "cuda-pathfinder", "cuda-python", "flash-attn-3"),
        *("sgl-kernel", "sglang-kernel", "flashinfer-python", "faiss-gpu", "cudf-cu12", "nixl-cu13", "xformers"),
        *("tensorrt", "tensorrt-llm", "paddlepaddle-gpu"),
    ],
)
def test_cuda_by_any_name_is_denied(name: str) -> None:
    assert denied(name)


@pytest.mark.parametrize(
    "name",
    [
        *("nvidia-ml-py", "pynvml", "onnxruntime", "jax", "jaxtyping", "sgl-kernel-npu", "vllm-ascend", "deepspeed"),
        "gpustat",
    ],
)
def test_what_is_no_cuda_is_not(name: str) -> None:
    assert not denied(name)


def test_vllm_is_denied_as_a_wheel_alone() -> None:
    assert not denied("vllm", "vllm")
    assert denied("vllm", "sglang")
    recipe = select(catalog(), "verl-npu", Options(arch="arm64"), Arch.AMD64)
    assert not denied("vllm", *(chosen.package for chosen in recipe.sources))
