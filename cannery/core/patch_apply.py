"""Apply one file's part of a patch to the file's bytes: where a hunk goes is as of GNU patch, fuzz only as allowed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from cannery.core.patch_hunk import HunkLine
from cannery.core.patch_place import Place, find_place, least_fuzz, nearest_line
from cannery.core.patch_text import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.core.patch_text import FilePatch, Hunk

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
    those from `found_line` of the file before on, and `needs_fuzz` the fuzz with which it would fit (0: none would do).
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


@dataclass(frozen=True)
class FileResult:
    """What became of a file: its bytes `after` (None: deleted, or not made) and `problem` ("" if only hunks have one).

    `already`: the tree has all of it. `note` is what was read otherwise than it is written, or "".
    """

    patch: FilePatch
    hunks: tuple[HunkResult, ...]
    after: bytes | None
    problem: str = ""
    already: bool = False
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether `after` is what the patch means."""
        return not self.problem and all(result.outcome is not Outcome.CONFLICT for result in self.hunks)


def apply_file(patch: FilePatch, before: bytes | None, *, target: bytes | None = None, fuzz: int = 0) -> FileResult:
    """Apply `patch` to `before`, the bytes at its old path (of an added file, at its new one); None: no such file.

    `target` are the bytes at the new path of a renamed or copied file. `fuzz` is how many lines of context at each end
    of a hunk may differ. Never raises for a patch that does not fit.
    """
    fitted, note = _fitted(patch, before if before is not None else target)
    nothing = next((hunk for hunk in fitted.hunks if hunk.changes_nothing), None)
    if nothing:
        return FileResult(fitted, (), None, f"hunk {nothing.number} ({nothing.header}) changes nothing")
    match patch.change:
        case Change.ADDED:
            result = _added(fitted, before)
        case Change.DELETED:
            result = _deleted(fitted, before)
        case Change.RENAMED | Change.COPIED:
            result = _moved(fitted, before, target, fuzz)
        case Change.MODIFIED:
            result = _modified(fitted, before, fuzz)
    return replace(result, note=note)


def _fitted(patch: FilePatch, text: bytes | None) -> tuple[FilePatch, str]:
    """Return `patch` with LF for CRLF where the whole patch file has CRLF and the file `text` has none, and a note."""
    if not patch.crlf or (text and b"\r\n" in text) or not patch.hunks:
        return patch, ""
    hunks = tuple(replace(hunk, lines=tuple(map(_with_lf, hunk.lines))) for hunk in patch.hunks)
    return replace(patch, hunks=hunks), "the patch file's CRLF line ends are read as LF, which the file has"


def _with_lf(line: HunkLine) -> HunkLine:
    return HunkLine(line.sign, line.text[:-2] + b"\n") if line.text.endswith(b"\r\n") else line


def _added(patch: FilePatch, before: bytes | None) -> FileResult:
    content = b"".join(chain.from_iterable(hunk.new for hunk in patch.hunks))
    if before == content:
        return _whole(patch, Outcome.ALREADY, content)
    if before:
        return _whole(patch, Outcome.CONFLICT, None, "it exists already, with other content", _lines(before))
    return _whole(patch, Outcome.APPLIES, content)


def _deleted(patch: FilePatch, before: bytes | None) -> FileResult:
    content = b"".join(chain.from_iterable(hunk.old for hunk in patch.hunks))
    if before is None:
        return _whole(patch, Outcome.ALREADY, None)
    if before != content:
        problem = "it is to be deleted, and its content is not what the patch knows"
        return _whole(patch, Outcome.CONFLICT, None, problem, _lines(before))
    return _whole(patch, Outcome.APPLIES, None)


def _whole(
    patch: FilePatch, outcome: Outcome, after: bytes | None, problem: str = "", found: Sequence[bytes] = ()
) -> FileResult:
    """Return the result of a patch that makes or takes a whole file."""
    misfit = bool(problem)
    hunks = tuple(
        HunkResult(
            hunk,
            outcome,
            line=None if misfit else 1,
            expected=hunk.old if misfit else (),
            found=tuple(found),
            found_line=1 if misfit else None,
        )
        for hunk in patch.hunks
    )
    return FileResult(patch, hunks, after, problem, already=outcome is Outcome.ALREADY)


def _moved(patch: FilePatch, before: bytes | None, target: bytes | None, fuzz: int) -> FileResult:
    is_there = target is not None and (before is None or patch.change is Change.COPIED)
    if is_there:  # moved by whom it may: what is left is its hunks
        result = _modified(patch, target, fuzz)
        already = result.ok and all(hunk.outcome is Outcome.ALREADY for hunk in result.hunks)
        if patch.change is Change.COPIED and not already:
            return FileResult(patch, (), None, f"{patch.new_path} exists already, with other content")
        if already and not patch.hunks and patch.change is Change.COPIED and before != target:
            return FileResult(patch, (), None, f"{patch.new_path} exists already, with other content")
        return replace(result, already=already)
    if target is not None:
        return FileResult(patch, (), None, f"it is to become {patch.new_path}, which exists already")
    return replace(_modified(patch, before, fuzz), already=False)


def _modified(patch: FilePatch, before: bytes | None, fuzz: int) -> FileResult:
    # `diff` without -N has no other word for a file that is new.
    if before is None and [(hunk.old_start, hunk.old_count) for hunk in patch.hunks] == [(0, 0)]:
        before = b""
    if before is None:
        return FileResult(patch, (), None, "the file does not exist")
    results, after = _apply(patch.hunks, _lines(before), fuzz)
    ok = all(result.outcome is not Outcome.CONFLICT for result in results)
    already = bool(results) and all(result.outcome is Outcome.ALREADY for result in results)
    return FileResult(patch, results, after if ok else None, already=already)


def _lines(data: bytes) -> list[bytes]:
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


def _apply(hunks: tuple[Hunk, ...], lines: list[bytes], fuzz: int) -> tuple[tuple[HunkResult, ...], bytes]:
    """Return each hunk's result and the file after those that fit."""
    state = _State()
    results: list[HunkResult] = []
    out: list[bytes] = []
    for hunk in hunks:
        # A hunk without old lines names the line behind which it goes.
        start = hunk.old_start + (hunk.old_count == 0)
        guess = start + state.moved
        place = find_place(hunk, lines, guess, state.done + 1, fuzz)
        if place is None:
            results.append(_conflict(hunk, lines, guess, state))
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
