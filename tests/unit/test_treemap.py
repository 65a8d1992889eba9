"""The layout of a treemap: all of the frame is used, nothing twice, and each box is as large as what it is for."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cannery.report.treemap import Box, boxes_of, treemap

if TYPE_CHECKING:
    from collections.abc import Sequence

FRAME = Box(3, 5, 1000, 520)
SIZES = st.lists(st.integers(1, 2**40), min_size=1, max_size=40)
NAMES = st.text("abcdef", min_size=1, max_size=3)


def area(box: Box) -> float:
    return box.width * box.height


def is_inside(box: Box, frame: Box, slack: float = 1e-6) -> bool:
    return (
        box.x >= frame.x - slack
        and box.y >= frame.y - slack
        and box.x + box.width <= frame.x + frame.width + slack
        and box.y + box.height <= frame.y + frame.height + slack
    )


def overlap(one: Box, other: Box) -> float:
    width = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    height = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    return max(width, 0) * max(height, 0)


def check(boxes: Sequence[Box], frame: Box) -> None:
    assert all(is_inside(box, frame) for box in boxes)
    assert all(box.width >= 0 and box.height >= 0 for box in boxes)
    assert all(overlap(one, other) < 1e-3 for one, other in combinations(boxes, 2))


@example([1, 261_561_228_212], 1.0, 1281.0)  # what is left of the frame is thinner than what rounding loses
@given(SIZES, st.floats(1, 2000), st.floats(1, 2000))
def test_boxes_fill_the_frame_and_no_two_overlap(sizes: list[int], width: float, height: float) -> None:
    frame = Box(0, 0, width, height)
    order = sorted(sizes, reverse=True)
    boxes = boxes_of(order, frame)
    check(boxes, frame)
    assert sum(map(area, boxes)) == pytest.approx(area(frame))
    for size, box in zip(order, boxes, strict=True):
        assert area(box) == pytest.approx(area(frame) * size / sum(sizes), abs=1e-4)


def test_equal_sizes_make_squares() -> None:
    boxes = boxes_of([1, 1, 1, 1], Box(0, 0, 100, 100))
    assert {(box.width, box.height) for box in boxes} == {(50, 50)}


def test_a_frame_is_cut_into_halves() -> None:
    """Sizes 6 6 4 3 2 2 1 in a frame of 6 by 4: the first two make a column of 3 by 2 each."""
    boxes = boxes_of([6, 6, 4, 3, 2, 2, 1], Box(0, 0, 6, 4))
    assert boxes[:2] == [Box(0, 0, 3, 2), Box(0, 2, 3, 2)]
    assert max(max(b.width / b.height, b.height / b.width) for b in boxes) <= 3


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.integers(0, 2**32), max_size=8), max_size=12))
def test_groups_hold_their_parts(groups: dict[str, dict[str, int]]) -> None:
    tiles = list(treemap(groups, FRAME))
    outer = {tile.group: tile for tile in tiles if not tile.name}
    check([tile.box for tile in outer.values()], FRAME)
    for group, tile in outer.items():
        inner = [one for one in tiles if one.group == group and one.name]
        assert all(one.number == tile.number for one in inner)
        assert {one.name: one.size for one in inner} == {name: size for name, size in groups[group].items() if size}
        assert sum(one.size for one in inner) == tile.size
        check([one.box for one in inner], tile.box)
    assert set(outer) == {group for group, parts in groups.items() if any(parts.values())}
    assert all(one.size >= other.size for one, other in pairwise(outer.values()))


def test_the_smallest_and_the_largest_of_one_image() -> None:
    tiles = list(treemap({"torch": {"torch": 2_000_000_000, "typing": 1}, "six": {"six": 11_000}}, FRAME))
    assert [(tile.group, tile.name) for tile in tiles] == [
        *(("torch", ""), ("torch", "torch"), ("torch", "typing"), ("six", ""), ("six", "six"))
    ]
    assert all(is_inside(tile.box, FRAME) for tile in tiles)


def test_nothing_makes_no_tile() -> None:
    assert list(treemap({}, FRAME)) == list(treemap({"a": {}, "b": {"x": 0}}, FRAME)) == []
