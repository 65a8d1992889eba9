"""Which parts of a set are compiled for its chip when the image is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.vocab import ComponentKind

if TYPE_CHECKING:
    from cannery.recipe.recipe import Chosen, Recipe


def compiled(recipe: Recipe) -> tuple[Chosen, ...]:
    """Return the native components that are compiled: all but releases that come with ready-made kernels.

    A stand-in has nothing to compile against, and does without those that say how.
    """
    native = (c for c in recipe.sources if c.component.kind is ComponentKind.NATIVE)
    return tuple(c for c in native if not (c.release and c.known and c.known.chips) and recipe.standin_of(c) is None)
