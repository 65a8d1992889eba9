from __future__ import annotations

import json
from dataclasses import replace

import pytest
from factories import compatibility, plan
from hypothesis import given
from hypothesis import strategies as st

from cannery import __version__
from cannery.core.manifest import labels, manifest, manifest_text, size_bytes
from cannery.core.recipe import Options

STANDIN = Options(base="standin")


@pytest.mark.parametrize(("text", "size"), [("16g", 16 << 30), ("512M", 512 << 20), ("3k", 3072), ("1024", 1024)])
def test_sizes_as_docker_writes_them(text: str, size: int) -> None:
    assert size_bytes(text) == size


@given(st.integers(0, 10**6))
def test_sizes_are_exact(number: int) -> None:
    assert size_bytes(f"{number}g") == number * 1024**3 == size_bytes(f"{number * 1024}m")


def test_it_names_every_wheel_with_hash_and_group() -> None:
    made = plan()
    rows = {row["name"]: row for row in manifest(made, compatibility())["wheels"]}
    assert list(rows) == [p.name for p in made.lock.packages]
    assert all(row["hash"].startswith("sha256:") for row in rows.values())
    assert [rows[n]["group"] for n in ("antlr4", "sympy", "torch")] == ["built", "torch-deps", "torch"]
    assert [name for name, row in rows.items() if row["built"]] == ["antlr4"]


def test_it_says_on_what_the_image_stands() -> None:
    real, standin = (manifest(plan(options), compatibility()) for options in (None, STANDIN))
    assert (real["base"]["kind"], standin["base"]["kind"]) == ("real", "standin")
    assert real["base"]["reference"] == "registry.example/cann:8.5.0-910b-ubuntu22.04-py3.11"
    assert standin["base"]["reference"].startswith("cannery-standin:")
    assert real["base"]["python_home"] == "/usr/local/python3.11.14"
    assert (real["may_skip"], standin["may_skip"]) == (["npu.nodes"], ["npu.nodes", "npu.tensor"])


def test_it_carries_the_checks_of_the_components() -> None:
    found = manifest(plan(), compatibility())
    assert found["checks"]["imports"] == [
        {"module": "torch", "component": "torch", "attribute": "__version__"},
        {"module": "torch_npu", "component": "torch-npu"},
        {"module": "ray", "component": "ray", "attribute": "__version__", "equals": "2.50.0"},
    ]
    assert found["checks"]["libraries"] == ["/usr/local/lib/libjemalloc.so.2"]
    assert found["shm_min_bytes"] == 2 << 30
    assert found["deny"] == ["nvidia-*"]
    assert found["exclusive"] == [["triton", "triton-ascend"]]
    assert found["tool"] == {"name": "cannery", "version": __version__}


def test_version_files_of_the_target_hold_no_field() -> None:
    for arch, machine in (("amd64", "x86_64"), ("arm64", "aarch64")):
        files = manifest(plan(Options(arch=arch)), compatibility())["base"]["version_files"]
        assert [file["path"] for file in files] == [f"/usr/local/Ascend/cann-8.5.0/{machine}-linux/install.info"]


def test_a_forced_image_says_so_in_manifest_and_labels() -> None:
    made = plan(forced=("fit",))
    assert manifest(made, compatibility())["forced"] == ["fit"]
    assert labels(made)["org.cannery.forced"] == "fit"
    assert str(made.tag).endswith("-forced")
    assert "org.cannery.forced" not in labels(plan())


def test_a_stand_in_image_says_so_in_its_labels() -> None:
    found = labels(plan(STANDIN))
    assert "stand-in" in found["org.cannery.warning"]
    assert found["org.opencontainers.image.version"].endswith("-standin")
    assert "org.cannery.warning" not in labels(plan())


def test_the_text_is_sorted_json_that_ends_in_a_line_end() -> None:
    made = plan()
    text = manifest_text(made, compatibility())
    assert text.endswith("}\n")
    assert json.loads(text) == manifest(made, compatibility())
    assert text == manifest_text(replace(made, env=dict(made.env)), compatibility())


def test_env_is_the_images_whole_environment() -> None:
    made = plan()
    assert manifest(made, compatibility())["env"] == made.env
