"""Apply one file's part of a patch to the file's bytes: where a hunk goes is as of GNU patch, fuzz only as allowed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from cannery.patches.patch_fit import HunkResult, Outcome, apply_hunks, lines_of
from cannery.patches.patch_hunk import HunkLine
from cannery.patches.values import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.patches.values import FilePatch

__all__ = ["FileResult", "HunkResult", "Outcome", "apply_file"]


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


def apply_file(
    patch: FilePatch, before: bytes | None, *, target: bytes | None = None, fuzz: int = 0, anywhere: bool = False
) -> FileResult:
    """Apply `patch` to `before`, the bytes at its old path (of an added file, at its new one); None: no such file.

    `target` are the bytes at the new path of a renamed or copied file. `fuzz` is how many lines of context at each end
    of a hunk may differ; `anywhere` is as of `apply_hunks`. Never raises for a patch that does not fit.
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
            result = _moved(fitted, before, target, fuzz, anywhere=anywhere)
        case Change.MODIFIED:
            result = _modified(fitted, before, fuzz, anywhere=anywhere)
    return replace(result, note=note)


def _fitted(patch: FilePatch, text: bytes | None) -> tuple[FilePatch, str]:
    """Return `patch` with LF for CRLF where the patch file is all CRLF and the file `text` has none, and a note.

    Such a patch file was written by an editor or a checkout that turns line ends; of a new file the same is meant.
    """
    if not patch.crlf or (text and b"\r\n" in text) or not patch.hunks:
        return patch, ""
    hunks = tuple(replace(hunk, lines=tuple(map(_with_lf, hunk.lines))) for hunk in patch.hunks)
    return replace(patch, hunks=hunks), "the patch file's CRLF line ends are read as LF"


def _with_lf(line: HunkLine) -> HunkLine:
    return HunkLine(line.sign, line.text[:-2] + b"\n") if line.text.endswith(b"\r\n") else line


def _added(patch: FilePatch, before: bytes | None) -> FileResult:
    content = b"".join(chain.from_iterable(hunk.new for hunk in patch.hunks))
    if before == content:
        return _whole(patch, Outcome.ALREADY, content)
    if before:
        return _whole(patch, Outcome.CONFLICT, None, "it exists already, with other content", lines_of(before))
    return _whole(patch, Outcome.APPLIES, content)


def _deleted(patch: FilePatch, before: bytes | None) -> FileResult:
    content = b"".join(chain.from_iterable(hunk.old for hunk in patch.hunks))
    if before is None:
        return _whole(patch, Outcome.ALREADY, None)
    if before != content:
        problem = "it is to be deleted, and its content is not what the patch knows"
        return _whole(patch, Outcome.CONFLICT, None, problem, lines_of(before))
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


def _moved(patch: FilePatch, before: bytes | None, target: bytes | None, fuzz: int, *, anywhere: bool) -> FileResult:
    is_there = target is not None and (before is None or patch.change is Change.COPIED)
    if is_there:  # moved by whom it may: what is left is its hunks
        result = _modified(patch, target, fuzz, anywhere=anywhere)
        already = result.ok and all(hunk.outcome is Outcome.ALREADY for hunk in result.hunks)
        if patch.change is Change.COPIED and not already:
            return FileResult(patch, (), None, f"{patch.new_path} exists already, with other content")
        if already and not patch.hunks and patch.change is Change.COPIED and before != target:
            return FileResult(patch, (), None, f"{patch.new_path} exists already, with other content")
        return replace(result, already=already)
    if target is not None:
        return FileResult(patch, (), None, f"it is to become {patch.new_path}, which exists already")
    return replace(_modified(patch, before, fuzz, anywhere=anywhere), already=False)


def _modified(patch: FilePatch, before: bytes | None, fuzz: int, *, anywhere: bool) -> FileResult:
    # `diff` without -N has no other word for a file that is new.
    if before is None and [(hunk.old_start, hunk.old_count) for hunk in patch.hunks] == [(0, 0)]:
        before = b""
    if before is None:
        return FileResult(patch, (), None, "the file does not exist")
    results, after = apply_hunks(patch.hunks, lines_of(before), fuzz, anywhere=anywhere)
    ok = all(result.outcome is not Outcome.CONFLICT for result in results)
    already = bool(results) and all(result.outcome is Outcome.ALREADY for result in results)
    return FileResult(patch, results, after if ok else None, already=already)
