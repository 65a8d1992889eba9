"""Where a hunk goes in a file: the search of GNU patch, forward, and backward for what is in the file already."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.patches.patch_hunk import Hunk

# What git takes for a head: what stands behind the `@@` of a hunk is the last such line before it, cut.
_HEAD = re.compile(rb"[A-Za-z_$]")
_SCOPE = re.compile(rb"([ \t]*)(?:async[ \t]+def|def|class)\b")
# A line that the patch file has lost: no line of a file is equal to it.
_LOST = b""


@dataclass(frozen=True)
class Place:
    """Where a hunk begins in the file (1-based), by how much fuzz, and whether its result is what stands there."""

    line: int
    fuzz: int
    is_there: bool


def find_place(hunk: Hunk, lines: Sequence[bytes], guess: int, free: int, fuzz: int) -> Place | None:
    """Return the place of `hunk` nearest to line `guess`, with the least fuzz up to `fuzz`; None if it fits nowhere.

    `free` is the first line that no hunk before it has written. With each fuzz the hunk is looked for as it is, then as
    if it were applied, so that with fuzz nothing is applied twice.
    """
    if not hunk.old:
        return _blind(hunk, lines, guess, free)
    for level in range(min(fuzz, max(hunk.prefix, hunk.suffix)) + 1):
        for side, is_there in ((hunk.old, False), (hunk.new, True)):
            line = _find(hunk, side, lines, guess, free, level) if side else None
            if line is not None:
                return Place(line, level, is_there)
    return None


def is_same_scope(hunk: Hunk, lines: Sequence[bytes], line: int) -> bool:
    """Say whether the result of `hunk`, found at `line` of the file, stands there in the scope that the hunk is for.

    Two proofs are needed, since functions of one class may well have equal lines: the head that the hunk names behind
    its `@@` is the last one above, and stands once in the file; and each def and class around is that head, or is among
    the hunk's own lines. A hunk that names no head has none; if its first change is not indented, it is for no
    function or class, and that its result stands once in the file does.
    """
    texts = (one.text for one in hunk.lines if one.sign != " " and one.text.strip())
    changed = next(texts, b"")
    depth = len(changed) - len(changed.lstrip())
    if not hunk.section:
        return bool(changed) and not depth and _times(hunk.new, lines) == 1
    above = [one for one in lines[: line - 1] if _HEAD.match(one)]
    head = above[-1] if above else b""
    named = hunk.section.encode()
    if not head.startswith(named) or sum(one.startswith(named) for one in lines) != 1:
        return False
    around = _around(lines, line + hunk.prefix - 1, depth)
    return bool(changed) and all(one >= line or lines[one - 1] == head for one in around)


def _times(part: Sequence[bytes], lines: Sequence[bytes]) -> int:
    """Return how often `part` stands in `lines`."""
    return sum(lines[at : at + len(part)] == list(part) for at, one in enumerate(lines) if one == part[0])


def _around(lines: Sequence[bytes], last: int, depth: int) -> Iterator[int]:
    """Give the lines (1-based) of the defs and classes around what is `depth` deep and stands behind line `last`."""
    for place in range(last, 0, -1):
        found = _SCOPE.match(lines[place - 1])
        if found and len(found[1]) < depth:
            depth = len(found[1])
            yield place


def least_fuzz(hunk: Hunk, lines: Sequence[bytes], guess: int, free: int, most: int) -> int:
    """Return the fuzz (up to `most`) with which `hunk` would fit, 0 if none."""
    context = max(hunk.prefix, hunk.suffix)
    levels = range(1, min(most, context) + 1) if hunk.old else ()
    return next((level for level in levels if _find(hunk, hunk.old, lines, guess, free, level) is not None), 0)


def nearest_line(expected: Sequence[bytes], lines: Sequence[bytes], guess: int) -> int:
    """Return the line (1-based) from which on most of `expected` stands in `lines`, the one nearest to `guess`."""
    places = range(1, max(len(lines), 1) + 1)

    def score(place: int) -> tuple[int, int]:
        pairs = zip(expected, lines[place - 1 : place - 1 + len(expected)], strict=False)
        return sum(one == other and bool(one.strip()) for one, other in pairs), -abs(place - guess)

    return max(places, key=score)


def _blind(hunk: Hunk, lines: Sequence[bytes], guess: int, free: int) -> Place | None:
    """Return the place of a hunk without any old line (`diff -U0`): nothing but the line number tells it."""
    if hunk.new and tuple(lines[guess - 1 : guess - 1 + len(hunk.new)]) == hunk.new:
        return Place(guess, 0, is_there=True)
    return Place(guess, 0, is_there=False) if free <= guess <= len(lines) + 1 else None


def _find(  # noqa: PLR0913, PLR0917 - what a search needs
    hunk: Hunk, side: tuple[bytes, ...], lines: Sequence[bytes], guess: int, free: int, fuzz: int
) -> int | None:
    """Return where `side` stands in `lines` (1-based) without its outer context, as much as `fuzz` lets go.

    Less context before than behind is that of the file's start, if the hunk begins there, and less behind that of its
    end: then it fits nowhere else.
    """
    pattern = side + (_LOST,) * hunk.missing
    context = max(hunk.prefix, hunk.suffix)
    head, tail = fuzz + hunk.prefix - context, fuzz + hunk.suffix - context
    core = pattern[max(head, 0) : len(pattern) - max(tail, 0)]
    if not core:
        return None
    if head < 0 and hunk.old_start <= 1:
        places: Iterator[int] = iter((1,))
    elif tail < 0:
        places = iter((len(lines) - len(pattern) + 1,))
    else:
        places = _outwards(guess, free, len(lines) - (len(pattern) - max(tail, 0)) + 1)
    head = max(head, 0)
    for place in places:
        start = place - 1 + head
        # Comparing the first line alone first makes this several times as fast.
        if place >= free and lines[start : start + 1] == [core[0]] and tuple(lines[start : start + len(core)]) == core:
            return place
    return None


def _outwards(guess: int, low: int, high: int) -> Iterator[int]:
    """Give the whole numbers from `low` to `high`, nearest to `guess` first, of equally near ones the higher first."""
    first = max(guess - high, low - guess, 0)
    last = max(high - guess, guess - low)
    for place in chain.from_iterable((guess + offset, guess - offset) for offset in range(first, last + 1)):
        if low <= place <= high:
            yield place
