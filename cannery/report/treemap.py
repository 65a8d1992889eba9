"""A treemap: nested boxes with areas in proportion to sizes ("Squarified Treemaps", Bruls et al., 2000)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The height of a group's title, and the width of its edge, in the units of the frame.
TITLE, EDGE = 16.0, 1.5


@dataclass(frozen=True)
class Box:
    """A rectangle by its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Tile:
    """One box with its bytes and the number of its group. The box of the group itself has the name ""."""

    group: str
    name: str
    size: int
    box: Box
    number: int


def treemap(groups: Mapping[str, Mapping[str, int]], frame: Box) -> Iterator[Tile]:
    """Yield the tiles of {group: {name: bytes}}: each group, then its members."""
    sizes = {group: sum(parts.values()) for group, parts in groups.items() if sum(parts.values()) > 0}
    order = sorted(sizes, key=lambda group: (-sizes[group], group))
    for number, (group, box) in enumerate(zip(order, squarified([sizes[one] for one in order], frame), strict=True)):
        yield Tile(group, "", sizes[group], box, number)
        parts = sorted(((size, name) for name, size in groups[group].items() if size > 0), key=lambda p: (-p[0], p[1]))
        # The members fill the part below the group's title, if there is room for one.
        edge = min(EDGE, box.width / 8, box.height / 8)
        top = TITLE if box.height > 3 * TITLE else edge
        inside = Box(box.x + edge, box.y + top, box.width - 2 * edge, box.height - top - edge)
        inner = squarified([size for size, _ in parts], inside)
        for (size, name), place in zip(parts, inner, strict=True):
            yield Tile(group, name, size, place, number)


def squarified(sizes: Sequence[float], frame: Box) -> list[Box]:
    """Return a box for each of `sizes` (above 0, largest first). Together they fill the frame."""
    scale = frame.width * frame.height / (sum(sizes) or 1)
    areas, boxes = [size * scale for size in sizes], []
    while areas:
        side = min(frame.width, frame.height)
        count = 1
        while count < len(areas) and _worst(areas[: count + 1], side) <= _worst(areas[:count], side):
            count += 1
        row, frame = _row(areas[:count], frame)
        boxes += row
        areas = areas[count:]
    return boxes


def _worst(areas: Sequence[float], side: float) -> float:
    """Return the worst ratio of width and height in a row along `side`; areas come largest first."""
    total = sum(areas)
    return max(side**2 * areas[0] / total**2, total**2 / (side**2 * areas[-1]))


def _row(areas: Sequence[float], frame: Box) -> tuple[list[Box], Box]:
    """Return the boxes of a row along the shorter side of the frame, and what is left of the frame."""
    is_wide, total = frame.width >= frame.height, sum(areas)
    side, longer = sorted((frame.width, frame.height))
    depth = min(total / side, longer)  # the last row may be out by what was lost in rounding
    boxes, at = [], frame.y if is_wide else frame.x
    for area in areas:
        length = side * area / total
        boxes.append(Box(frame.x, at, depth, length) if is_wide else Box(at, frame.y, length, depth))
        at += length
    left = max(longer - depth, 1e-9)
    if is_wide:
        return boxes, Box(frame.x + depth, frame.y, left, frame.height)
    return boxes, Box(frame.x, frame.y + depth, frame.width, left)
