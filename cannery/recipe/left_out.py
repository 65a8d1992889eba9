"""What a stand-in image does not have of its profile, with reasons: what can only be compiled against a real CANN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from cannery.recipe.recipe import Chosen, Recipe


@dataclass(frozen=True)
class LeftOut:
    """A distribution (normalised name) that is not in the image, why, and the modules that can then not be imported."""

    name: str
    reason: str
    modules: tuple[str, ...]


def left_out(recipe: Recipe) -> tuple[LeftOut, ...]:
    """Return the sources that a stand-in does without, in the profile's order; nothing on any other base."""
    return tuple(
        LeftOut(chosen.package, standin.reason, tuple(dict.fromkeys(item.module for item in chosen.component.imports)))
        for chosen in recipe.sources
        if is_left_out(recipe, chosen) and (standin := recipe.standin_of(chosen))
    )


def unlinked(recipe: Recipe) -> tuple[Chosen, ...]:
    """Return the releases whose ready-made kernels cannot load: they link a CANN that a stand-in does not have."""
    if recipe.base.kind is not BaseKind.STANDIN:
        return ()
    return tuple(c for c in recipe.sources if c.release is not None and c.known is not None and c.known.chips)


def is_left_out(recipe: Recipe, chosen: Chosen) -> bool:
    """Whether a stand-in does without this source. A release's ready-made wheel needs no compiler, and comes in."""
    standin = recipe.standin_of(chosen)
    return standin is not None and standin.leave_out and chosen.file != "wheel"
