"""The verify script's level train: which images have it, and what it may skip in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from cannery.recipe.recipe import Recipe

# As the verify script has them: distributions, and the component that runs from its tree.
TRAINERS = ("verl", "mindspeed-rl")
ENGINES = ("vllm", "sglang")


def trainer(recipe: Recipe) -> str:
    """Return the trainer whose step the level train takes: verl, mindspeed-rl, or "" for an image without one."""
    names = _names(recipe)
    return next((name for name in TRAINERS if name in names), "")


def train_skips(recipe: Recipe) -> tuple[str, ...]:
    """Return the checks of the level train that may be skipped, so that no profile has to name them.

    The step: on a stand-in, wherever the profile lets the NPU's nodes be absent, and without an engine that rolls out.
    MindSpeed-RL's data: where its modules cannot be imported.
    """
    name, kind = trainer(recipe), recipe.base.kind
    if not name:
        return ()
    standin = kind is BaseKind.STANDIN
    no_npu = "npu.nodes" in recipe.profile.may_skip.get(kind, ())
    no_engine = name == "verl" and not _names(recipe) & {*ENGINES}
    modules = {item.module for chosen in recipe.chosen for item in chosen.component.imports if item.standin}
    no_data = standin and name == "mindspeed-rl" and "mindspeed_rl" in modules
    return (*(("train.data",) if no_data else ()), *(("train.step",) if standin or no_npu or no_engine else ()))


def _names(recipe: Recipe) -> frozenset[str]:
    """Return the names of components and of their distributions."""
    return frozenset({chosen.name for chosen in recipe.chosen} | {chosen.package for chosen in recipe.chosen})
