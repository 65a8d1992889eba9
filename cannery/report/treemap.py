"""A treemap: nested boxes whose areas are proportional to sizes. The frame is split in two, again and again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The height of a group's title, and the width of its edge, in units of the frame.
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
    for number, (group, box) in enumerate(zip(order, boxes_of([sizes[one] for one in order], frame), strict=True)):
        yield Tile(group, "", sizes[group], box, number)
        parts = sorted(((size, name) for name, size in groups[group].items() if size > 0), key=lambda p: (-p[0], p[1]))
        # The members fill the area below the group's title, if there is space for one.
        edge = min(EDGE, box.width / 8, box.height / 8)
        top = TITLE if box.height > 3 * TITLE else edge
        inside = Box(box.x + edge, box.y + top, box.width - 2 * edge, box.height - top - edge)
        inner = boxes_of([size for size, _ in parts], inside)
        for (size, name), place in zip(parts, inner, strict=True):
            yield Tile(group, name, size, place, number)


def boxes_of(sizes: Sequence[float], frame: Box) -> list[Box]:
    """Return a box for each of `sizes` (above 0, largest first). Together they fill the frame.

    The frame is split across its longer side, where both parts are nearest to the same size.
    """
    if len(sizes) < 2:
        return [frame] * len(sizes)
    total, before = sum(sizes), list(accumulate(sizes))
    count = min(range(1, len(sizes)), key=lambda number: abs(total - 2 * before[number - 1]))
    share = before[count - 1] / total
    if frame.width >= frame.height:
        width = frame.width * share
        one = replace(frame, width=width)
        other = replace(frame, x=frame.x + width, width=frame.width - width)
    else:
        height = frame.height * share
        one = replace(frame, height=height)
        other = replace(frame, y=frame.y + height, height=frame.height - height)
    return boxes_of(sizes[:count], one) + boxes_of(sizes[count:], other)
