"""What is wrong with a patch on a tree, in words: which patch, file and hunk, what it needs and what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.patches.apply import Outcome
from cannery.util.plain_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.patches.apply import FileResult, HunkResult
    from cannery.patches.patch_hunk import Hunk

# Of each side of a conflict so many lines are shown, from the one before the first difference on, cut at this width.
_SHOWN_LINES = 6
_WIDTH = 100


@dataclass(frozen=True)
class Problem:
    """A patch that does not do what it should: `what` in words, of a hunk also what it expects and what was found.

    `expected` and `found` are whole; `found_line` is where `found` stands in the file (1-based).
    """

    patch: str
    path: str
    what: str
    hunk: Hunk | None = None
    expected: tuple[bytes, ...] = ()
    found: tuple[bytes, ...] = ()
    found_line: int | None = None
    hint: str = ""

    @property
    def where(self) -> str:
        """Patch, file and hunk."""
        hunk = f": hunk {self.hunk.number} ({plain(self.hunk.header)})" if self.hunk else ""
        return f"{self.patch}.patch: {self.path}{hunk}"

    @property
    def detail(self) -> tuple[str, ...]:
        """Both sides of a conflict, as lines, shortened around their first difference."""
        if self.found_line is None:
            return ()
        start = _first_shown(self.expected, self.found)
        return (
            "the patch expects:" if self.expected else "the patch expects nothing there",
            *_shown(self.expected, start),
            f"the file has, from line {self.found_line + start}:" if self.found else "the file has no lines there",
            *_shown(self.found, start),
        )

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}", *(f"    {line}" for line in self.detail)]
        return "\n".join([*lines, f"  → {self.hint}"] if self.hint else lines)


def file_problems(name: str, result: FileResult) -> Iterator[Problem]:
    """Give the problems of one file's part of the patch `name`."""
    path = result.patch.old_path or result.patch.path
    if result.problem:
        conflict = next((hunk for hunk in result.hunks if hunk.outcome is Outcome.CONFLICT), None)
        found_line, found = (conflict.found_line, conflict.found) if conflict else (None, ())
        expected = conflict.expected if conflict else ()
        yield Problem(name, path, result.problem, None, expected, found, found_line)
        return
    for hunk in result.hunks:
        if hunk.outcome is Outcome.CONFLICT:
            yield _conflict(name, path, hunk)


def _conflict(name: str, path: str, result: HunkResult) -> Problem:
    what, hint = "does not fit", "make the patch again for this commit, or correct it"
    if result.needs_fuzz:
        lines = "line" if result.needs_fuzz == 1 else "lines"
        what = f"fits only with fuzz {result.needs_fuzz}, which is not allowed"
        hint = (
            f"if {result.needs_fuzz} {lines} of context at each end of its hunks may differ, allow it by name: "
            f"`fuzz: {{{name}: {result.needs_fuzz}}}`"
        )
    elif result.elsewhere is not None:
        what = f"does not fit; what it makes stands at line {result.elsewhere}, which may be another place"
    elif result.hunk.missing:
        what = "does not fit (and its last context line is missing)"
    return Problem(name, path, what, result.hunk, result.expected, result.found, result.found_line, hint)


def _first_shown(expected: Sequence[bytes], found: Sequence[bytes]) -> int:
    """Return the index of the line before the first difference."""
    pairs = zip(expected, found, strict=False)
    differs = next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(expected), len(found)))
    return max(differs - 1, 0)


def _shown(lines: Sequence[bytes], start: int) -> tuple[str, ...]:
    shown = [f"  | {_text(line)}" for line in lines[start : start + _SHOWN_LINES]]
    more = len(lines) - start - _SHOWN_LINES
    return (*shown, f"  | … {more} more") if more > 0 else tuple(shown)


def _text(line: bytes) -> str:
    text = plain(line.removesuffix(b"\n").decode(errors="replace"))
    cut = text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"
    return cut if line.endswith(b"\n") else f"{cut} (no line end)"
