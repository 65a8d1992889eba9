"""The hunks of one file's patch on the file's lines: what became of each, and the lines behind them all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.patches.patch_place import Place, find_place, is_same_scope, least_fuzz, nearest_line

if TYPE_CHECKING:
    from cannery.patches.patch_hunk import Hunk

# With how much fuzz a hunk that does not fit is tried, to tell what would have to be allowed: GNU patch's own limit.
MOST_FUZZ = 2


class Outcome(StrEnum):
    """How a hunk fits a file."""

    APPLIES = "applies"
    OFFSET = "applies with offset"
    FUZZ = "applies with fuzz"
    ALREADY = "already there"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class HunkResult:
    """What became of a hunk.

    `line` is where it went in the file as it is after the patch (1-based), `offset` how far that is from where its
    header says, `fuzz` the context lines let go at each end. Of a conflict: `expected` are the lines it needs, `found`
    those from `found_line` of the file before on, and `needs_fuzz` the fuzz with which it would fit (0: none would do);
    `elsewhere` is the line at which its result stands, should it be another place than it is for.
    """

    hunk: Hunk
    outcome: Outcome
    line: int | None = None
    offset: int = 0
    fuzz: int = 0
    expected: tuple[bytes, ...] = ()
    found: tuple[bytes, ...] = ()
    found_line: int | None = None
    needs_fuzz: int = 0
    elsewhere: int | None = None


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines of a file with their ends, which are line feeds only."""
    *lines, rest = data.split(b"\n")
    return [*(line + b"\n" for line in lines), *([rest] if rest else [])]


@dataclass(frozen=True)
class _State:
    """How far the hunks have come.

    `moved` is the way from old line numbers to the file's, `there` the part of it that is due to hunks which the file
    had already, `grown` the lines written more than taken, `done` the file's lines that are copied or replaced.
    """

    moved: int = 0
    there: int = 0
    grown: int = 0
    done: int = 0


def apply_hunks(
    hunks: tuple[Hunk, ...], lines: list[bytes], fuzz: int, *, anywhere: bool = False
) -> tuple[tuple[HunkResult, ...], bytes]:
    """Return each hunk's result and the file after those that fit, `fuzz` being allowed. `lines` have their ends.

    A hunk is there already if its result stands where the hunks before it say that it goes, or at another line in the
    scope that it is for (`is_same_scope`). Elsewhere the same lines may belong to another function, and the hunk is a
    conflict; with `anywhere` they count there too, as of GNU patch.
    """
    state = _State()
    results: list[HunkResult] = []
    out: list[bytes] = []
    for hunk in hunks:
        # A hunk without old lines names the line behind which it goes.
        start = hunk.old_start + (hunk.old_count == 0)
        guess = start + state.moved
        place = find_place(hunk, lines, guess, state.done + 1, fuzz)
        is_elsewhere = place is not None and place.is_there and place.line != guess and not anywhere
        if place is None or (is_elsewhere and not is_same_scope(hunk, lines, place.line)):
            elsewhere = place.line if place else None
            results.append(replace(_conflict(hunk, lines, guess, state), elsewhere=elsewhere))
            continue
        offset = place.line - start - state.there
        results.append(HunkResult(hunk, _outcome(place, offset), place.line + state.grown, offset, place.fuzz))
        written, done = _written(hunk, lines, place, state.done)
        out += written
        growth = len(hunk.new) - len(hunk.old)
        state = _State(
            moved=place.line - start + growth * place.is_there,
            there=state.there + growth * place.is_there,
            grown=state.grown + growth * (not place.is_there),
            done=done,
        )
    return tuple(results), _joined([*out, *lines[state.done :]])


def _outcome(place: Place, offset: int) -> Outcome:
    if place.is_there:
        return Outcome.ALREADY
    return Outcome.FUZZ if place.fuzz else Outcome.OFFSET if offset else Outcome.APPLIES


def _written(hunk: Hunk, lines: list[bytes], place: Place, done: int) -> tuple[list[bytes], int]:
    """Return what the file gets up to the hunk's last change, and how many of its own lines that uses up.

    Context is the file's own, not the patch's: with fuzz they differ.
    """
    out: list[bytes] = []
    at = place.line - 1
    for line in hunk.lines:
        if line.sign == " ":
            at += 1
            continue
        takes, gives = (line.sign == "-", line.sign == "+") if not place.is_there else (False, False)
        passes = place.is_there and line.sign == "+"
        out += lines[done:at]
        done = at
        if takes:
            at, done = at + 1, done + 1
        elif gives:
            out.append(line.text)
        elif passes:
            out += lines[at : at + 1]
            at, done = at + 1, done + 1
    return out, done


def _joined(lines: list[bytes]) -> bytes:
    """Return the lines as a file: one that ends without a line feed gets it where another follows, as of GNU patch."""
    *all_but_last, last = lines or [b""]
    return b"".join([*(line if line.endswith(b"\n") else line + b"\n" for line in all_but_last), last])


def _conflict(hunk: Hunk, lines: list[bytes], guess: int, state: _State) -> HunkResult:
    line = nearest_line(hunk.old, lines, guess)
    needed = least_fuzz(hunk, lines, guess, state.done + 1, MOST_FUZZ)
    found = tuple(lines[line - 1 : line - 1 + len(hunk.old)])
    return HunkResult(hunk, Outcome.CONFLICT, expected=hunk.old, found=found, found_line=line, needs_fuzz=needed)
