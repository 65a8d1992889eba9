"""What became of a patch on a tree, as values, and its problems in words: patch, file, hunk, and both sides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.patches.text import hunks_of
from cannery.util.plain_text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cannery.patches.sets import PatchFile
    from cannery.patches.text import Hunk

EXECUTABLE = "100755"
# Of each side of a conflict so many lines are shown, cut at this width.
SHOWN_LINES = 12
WIDTH = 160
# What git writes with `apply --verbose` under LC_ALL=C.
CHECKED = re.compile(r"Checking patch (.+)\.\.\.")
MOVED = re.compile(r"Hunk #(\d+) succeeded at (\d+) \(offset (-?\d+) lines?\)\.")
MISFIT = re.compile(r"error: patch failed: (.+):(\d+)")
ERROR = re.compile(r"error: (.+): (patch does not apply|.+)")
WORDS = {
    "already exists in index": "it exists already, with other content",
    "does not exist in index": "the file does not exist",
}


@dataclass(frozen=True)
class FileChange:
    """One file: its bytes and git's mode before and after; None where there is no file."""

    path: str
    before: bytes | None
    after: bytes | None
    old_mode: str | None = None
    new_mode: str | None = None

    @property
    def changes_mode(self) -> bool:
        """Whether it can be executed after and could not before, or the other way round."""
        return self.after is not None and (self.old_mode == EXECUTABLE) != (self.new_mode == EXECUTABLE)


@dataclass(frozen=True)
class Offset:
    """A hunk that was applied at `line`, which is `lines` further down (if negative: up) than its header has it."""

    path: str
    number: int
    line: int
    lines: int


@dataclass(frozen=True)
class Problem:
    """Why a patch does not apply, or changes nothing; `sides` are lines that show both sides of a conflict."""

    patch: str
    path: str
    what: str
    hunk: Hunk | None = None
    sides: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Patch, file and hunk."""
        hunk = f": hunk {self.hunk.number} ({plain(self.hunk.header)})" if self.hunk else ""
        return f"{self.patch}.patch: {self.path}{hunk}"

    def __str__(self) -> str:
        return "\n".join((f"{self.where}: {self.what}", *(f"    {line}" for line in self.sides)))


@dataclass(frozen=True)
class PatchResult:
    """What a patch does to a tree: the files that it changes, or its problems.

    `already`: the tree has it; `changes` then lead from the tree without it to the tree as it is.
    """

    patch: PatchFile
    changes: tuple[FileChange, ...] = ()
    already: bool = False
    offsets: tuple[Offset, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the patch fits the tree, or the tree has it already."""
        return not self.problems

    @property
    def contents(self) -> dict[str, bytes | None]:
        """{path: bytes} after it, None for a file that is gone."""
        return {one.path: one.after for one in self.changes}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of a patch that fits."""
        return tuple(
            f"{self.patch.name}.patch: {one.path}: hunk {one.number} applies at line {one.line}, "
            f"{one.lines:+} from its header's"
            for one in self.offsets
        )


def offsets_in(said: str) -> tuple[Offset, ...]:
    """Return the hunks that git applied at other lines; `said` is what it wrote."""
    path, found = "", []
    for line in said.splitlines():
        if checked := CHECKED.fullmatch(line):
            path = checked[1].rpartition(" => ")[2]
        elif moved := MOVED.fullmatch(line):
            found.append(Offset(path, int(moved[1]), int(moved[2]), int(moved[3])))
    return tuple(found)


def problems_in(patch: PatchFile, said: str, read: Callable[[str], bytes | None]) -> Iterator[Problem]:
    """Give the problems of a patch that git refused; `said` is what it wrote, `read` gives the files of the tree."""
    named: set[str] = set()
    for line in said.splitlines():
        if misfit := MISFIT.fullmatch(line):
            named.add(misfit[1])
            yield _misfit(patch, misfit[1], int(misfit[2]), read(misfit[1]) or b"")
        elif (error := ERROR.fullmatch(line)) and error[1] not in named | {"while searching for"}:
            yield Problem(patch.name, error[1], WORDS.get(error[2], error[2]))


def _misfit(patch: PatchFile, path: str, start: int, content: bytes) -> Problem:
    hunk = next((one for one in hunks_of(patch.text, path) if one.start == start), None)
    if hunk is None:
        return Problem(patch.name, path, "does not fit")
    lines = content.split(b"\n")
    place = _nearest(hunk.old, lines, start)
    expected, found = _texts(hunk.old), _texts(lines[place - 1 : place - 1 + len(hunk.old)])
    has = f"the file has, from line {place} on:"
    sides = ("the patch expects:", *_marked(expected, found), has, *_marked(found, expected))
    return Problem(patch.name, path, "does not fit", hunk, sides)


def conflicts_in(merged: bytes) -> tuple[str, ...]:
    """Return the parts of a three-way merge in which both sides differ, with git's marks, as lines."""
    found: list[str] = []
    is_inside = False
    for line in _texts(merged.split(b"\n")):
        is_inside = is_inside or line.startswith("<<<<<<< ")
        if is_inside:
            found.append(line[:WIDTH])
        is_inside = is_inside and not line.startswith(">>>>>>> ")
    return tuple(found)


def _nearest(expected: Sequence[bytes], lines: Sequence[bytes], guess: int) -> int:
    """Return the line (1-based) from which on most of `expected` is in `lines`, the one nearest to `guess`."""

    def score(place: int) -> tuple[int, int]:
        pairs = zip(expected, lines[place - 1 : place - 1 + len(expected)], strict=False)
        return sum(one == other and bool(one.strip()) for one, other in pairs), -abs(place - guess)

    return max(range(1, len(lines) + 1), key=score)


def _marked(lines: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    for line in lines[:SHOWN_LINES]:
        yield f"  {' ' if line in other else '!'} {line[:WIDTH]}"
    if len(lines) > SHOWN_LINES:
        yield f"    … and {len(lines) - SHOWN_LINES} more lines"
    if not lines:
        yield "    (nothing)"


def _texts(lines: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(plain(line.decode(errors="replace").rstrip("\r")) for line in lines)
