"""Parts of an image that are made in boxes, without an engine.

The surroundings of the run (`Context`) come in with `Work` and go no deeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.assemble.image import Part
    from cannery.build.io.buildx import BakeResult
    from cannery.host.io.place import StorePlace
    from cannery.pipeline import Work


def boxed(work: Work, place: StorePlace, folder: Path, part: Part) -> BakeResult:
    """Make a part of the rendered folder in boxes, and put it into the store."""
    raise NotImplementedError
