"""Links from one tree to another lead somewhere: only what is exported of the other can be their target."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import catalog, source_components

from cannery.catalog.component import parse_component
from cannery.catalog.io.read import cross_check, load_catalog
from cannery.sources.io.git_cache import places


@pytest.mark.parametrize(
    ("paths", "target", "dangles"),
    [
        ((), "kernels/tests/configs", False),
        (("kernels",), "kernels/tests/configs", True),
        (("kernels", "tests/configs"), "kernels/tests/configs", False),
        (("kernels", "tests"), "kernels/tests/configs", False),
        (("kernels", "tests/conf"), "kernels/tests/configs", True),
    ],
)
def test_a_link_to_what_is_not_exported(paths: tuple[str, ...], target: str, dangles: bool) -> None:
    parts = dict(source_components())
    for name, changes in (("kernels", {"paths": paths}), ("engine", {"tree_links": {"configs": target}})):
        value = parts[name].model_dump(mode="json", exclude_defaults=True)
        parts[name] = parse_component({**value, **changes})
    faults = [f.path for _, f in cross_check(catalog(components={**catalog().components, **parts}), ())]
    assert (("tree_links", "configs") in faults) is dangles


def test_the_examples_of_verl_npu_are_exported() -> None:
    found = load_catalog(Path("images")).sources
    assert "tests/verl_examples" in found["verl-npu"].paths
    assert {*found["verl-src"].tree_links} == {"configs", "dapo", "grpo"}


def test_a_project_that_moved_is_found_by_either_name(tmp_path: Path) -> None:
    for name in ("verl-project+verl", "volcengine+verl"):
        mirror = tmp_path / name
        git = mirror / name / "repo"
        (git / "objects").mkdir(parents=True)
        (git / "HEAD").touch()
        assert [found for _, found in places(mirror, "verl-project/verl") if found] == [git]


def test_todays_stacks_come_first() -> None:
    profiles = load_catalog(Path("images")).profiles
    assert min(profiles, key=lambda name: profiles[name].place) == "verl-vllm"
    replaced = {name: profile.replaced.by for name, profile in profiles.items() if profile.replaced}
    assert replaced == {
        "mindspeed-rl": "verl-megatron",
        "verl-npu": "verl-megatron",
        "verl-qwen3.5": "verl-qwen3.5-cann9",
        "verl-sglang": "verl-sglang-next",
    }
