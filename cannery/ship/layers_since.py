"""Which layers a bundle holds when the other side has an older image. Pure.

An engine knows a layer by everything below it too. So of what both images have, only the lowest layers up to the first
that differs lie ready on the other side; the rest is there in content, and is taken out of the older image again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def new_layers(image: Sequence[str], base: Sequence[str]) -> tuple[str, ...]:
    """Return the diff ids of `image` that `base` lacks, each once, lowest first."""
    known = set(base)
    return tuple(dict.fromkeys(layer for layer in image if layer not in known))
