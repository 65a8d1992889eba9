"""Which images have verify's level train, and what it may skip in them without a word in the profile."""

from __future__ import annotations

import pytest
from factories import catalog, compatibility, components, inputs, profile, recipe

from cannery.catalog.component import Component, parse_component
from cannery.catalog.fields import NPU_CHECKS, TRAIN_CHECKS
from cannery.plan.make import make_plan
from cannery.plan.manifest import ENGINES, TRAINERS, manifest, train_skips, trainer
from cannery.recipe.recipe import Options, Recipe
from verifying import train

STANDIN_WORD = "it imports acl"


def wheel(**more: object) -> Component:
    return parse_component({"kind": "wheels", "summary": "made up", **more})


def bound(*names: str, base: str | None = None, may_skip: tuple[str, ...] = ()) -> Recipe:
    """A recipe of torch, torch_npu and some more packages; `src` is verl under another name."""
    module = {"module": "mindspeed_rl", "standin": STANDIN_WORD}
    more = {
        "verl": wheel(),
        "vllm": wheel(),
        "sglang": wheel(),
        "src": wheel(package="verl"),
        "mindspeed-rl": wheel(imports=[module]),
    }
    stack = profile(
        components=[{"name": name} for name in ("torch", "torch-npu", *names)],
        may_skip={"real": may_skip, "standin": may_skip},
    )
    found = catalog(components={**components(), **more}, profiles={"stack": stack})
    return recipe(Options(base=base), found)


def test_the_words_are_those_of_the_script_in_the_image() -> None:
    assert (tuple(train.TRAINERS), train.ENGINES) == (TRAINERS, ENGINES)
    assert tuple(train.CHECKS) == TRAIN_CHECKS


@pytest.mark.parametrize(
    ("names", "found"),
    [((), ""), (("vllm",), ""), (("verl",), "verl"), (("src",), "verl"), (("mindspeed-rl",), "mindspeed-rl")],
)
def test_the_trainer_follows_from_the_components(names: tuple[str, ...], found: str) -> None:
    assert trainer(bound(*names)) == found


@pytest.mark.parametrize(
    ("made", "skips"),
    [
        (bound("vllm", base="standin", may_skip=NPU_CHECKS), ()),
        (bound("verl", "vllm"), ()),
        (bound("verl", "vllm", may_skip=("npu.nodes",)), ("train.step",)),
        (bound("verl", "sglang", may_skip=("npu.smi",)), ()),
        (bound("verl", "sglang", base="standin"), ("train.step",)),
        (bound("verl"), ("train.step",)),
        (bound("mindspeed-rl"), ()),
        (bound("mindspeed-rl", may_skip=NPU_CHECKS), ("train.step",)),
        (bound("mindspeed-rl", base="standin"), ("train.data", "train.step")),
    ],
)
def test_what_may_be_skipped(made: Recipe, skips: tuple[str, ...]) -> None:
    assert train_skips(made) == skips


def test_the_manifest_has_it() -> None:
    found = bound("verl", "vllm", may_skip=NPU_CHECKS)
    assert manifest(make_plan(found, inputs(found)), compatibility())["may_skip"] == sorted([*NPU_CHECKS, "train.step"])
