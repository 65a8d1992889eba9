"""A tree as patches see it, and what becomes of a patch on it, as values: its changes, or its problems in words."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from cannery.util.addresses import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cannery.patches.sets import PatchFile, PatchSet

EXECUTABLE = "100755"
# Of a hunk that does not fit so many lines are shown; lines are cut at this width.
SHOWN_LINES = 12
WIDTH = 160
# What git writes with `apply --verbose` under LC_ALL=C.
CHECKED = re.compile(r"Checking patch (.+)\.\.\.")
MOVED = re.compile(r"Hunk #(\d+) succeeded at (\d+) \(offset (-?\d+) lines?\)\.")
MISFIT = re.compile(
    r"^(?:error: while searching for:\n(?P<wanted>.*?)\n)?error: patch failed: (?P<path>.+):(?P<line>\d+)\n",
    re.DOTALL | re.MULTILINE,
)
ERROR = re.compile(r"error: (.+): (patch does not apply|.+)")
WORDS = {
    "already exists in index": "it exists already, with other content",
    "does not exist in index": "the file does not exist",
}


class Files(Protocol):
    """The files of a tree, wherever they are."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when there is none."""

    def is_executable(self, path: str) -> bool:
        """Whether a file may be executed."""


@dataclass
class Layered:
    """A tree with changes over it: `changed` has the bytes of files (None: no file), `modes` whether they may run."""

    under: Files
    changed: dict[str, bytes | None] = field(default_factory=dict)
    modes: dict[str, bool] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes as they are now; None for no such file."""
        return self.changed[path] if path in self.changed else self.under.read(path)

    def is_executable(self, path: str) -> bool:
        """Whether a file may be executed as it is now."""
        return self.modes[path] if path in self.modes else self.under.is_executable(path)

    def add(self, changes: Iterable[FileChange]) -> None:
        """Lay changes over the tree."""
        for one in changes:
            self.changed[one.path] = one.after
            if one.new_mode is not None:
                self.modes[one.path] = one.new_mode == EXECUTABLE


@dataclass(frozen=True)
class FileChange:
    """One file: its bytes and git's mode before and after; None where there is no file."""

    path: str
    before: bytes | None
    after: bytes | None
    old_mode: str | None = None
    new_mode: str | None = None


@dataclass(frozen=True)
class Problem:
    """Why a patch does not apply, or changes nothing; `lines` are what it searches for, or a conflict."""

    patch: str
    path: str
    what: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join((f"{self.patch}.patch: {self.path}: {self.what}", *(f"    {line}" for line in self.lines)))


@dataclass(frozen=True)
class PatchResult:
    """What a patch does to a tree: the files that it changes, or its problems.

    `already`: the tree has it; `changes` then lead from the tree without it to the tree as it is. `notes` are about
    hunks that go to other lines.
    """

    patch: PatchFile
    changes: tuple[FileChange, ...] = ()
    already: bool = False
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the patch fits the tree, or the tree has it already."""
        return not self.problems


def notes_in(said: str) -> Iterator[str]:
    """Give notes about the hunks that git applied at other lines; `said` is what it wrote."""
    path = ""
    for line in said.splitlines():
        if checked := CHECKED.fullmatch(line):
            path = checked[1].rpartition(" => ")[2]
        elif moved := MOVED.fullmatch(line):
            yield f"{path}: hunk {moved[1]} applies at line {moved[2]}, {int(moved[3]):+} from its header's"


def problems_in(patch: PatchFile, said: str) -> Iterator[Problem]:
    """Give the problems of a patch that git refused; `said` is what it wrote."""
    named = set()
    for misfit in MISFIT.finditer(said):
        named.add(misfit["path"])
        wanted = tuple(map(_shown, (misfit["wanted"] or "").removesuffix("\n").split("\n")))
        what = f"the hunk for line {misfit['line']} does not fit; it is for these lines:"
        yield Problem(patch.name, misfit["path"], what, wanted[:SHOWN_LINES])
    for line in MISFIT.sub("", said).splitlines():
        if (error := ERROR.fullmatch(line)) and error[1] not in named:
            yield Problem(patch.name, error[1], WORDS.get(error[2], error[2]))


def conflicts_in(merged: bytes) -> tuple[str, ...]:
    """Return the parts of a three-way merge in which both sides differ, with git's marks, as lines."""
    found: list[str] = []
    is_inside = False
    for line in merged.decode(errors="replace").split("\n"):
        is_inside = is_inside or line.startswith("<<<<<<< ")
        if is_inside:
            found.append(_shown(line))
        is_inside = is_inside and not line.startswith(">>>>>>> ")
    return tuple(found)


def _shown(line: str) -> str:
    return plain(line.rstrip("\r"))[:WIDTH]


@dataclass(frozen=True)
class Ported:
    """What became of one patch on another tree; `is_merged`: it did not fit as it is, and git merged it."""

    result: PatchResult
    is_merged: bool = False

    @property
    def verdict(self) -> str:
        """The outcome as a whole."""
        if not self.result.ok:
            return "does not apply"
        if self.result.already:
            return "is there already"
        if self.is_merged:
            return "applies, merged with what changed upstream"
        return "applies, at other lines" if self.result.notes else "applies"


def port_lines(one: Ported) -> Iterator[str]:
    """Give the lines about one patch: its verdict, hunks that go to other lines, and both sides of conflicts."""
    yield f"{one.result.patch.name}: {one.verdict}"
    yield from (f"  {note}" for note in one.result.notes)
    for problem in one.result.problems:
        yield f"  {problem.path}: {problem.what}"
        yield from (f"      {line}" for line in problem.lines)


def port_value(one: Ported, origin: str) -> dict[str, Any]:
    """Return the same for JSON; `origin` is where the patch's set is kept."""
    return {
        "patch": one.result.patch.name,
        "origin": origin,
        "result": one.verdict,
        "files": [change.path for change in one.result.changes],
        "notes": one.result.notes,
        "problems": [asdict(problem) for problem in one.result.problems],
    }


def origin_folders(sets: Sequence[PatchSet]) -> tuple[str, ...]:
    """Return below which folder each set is written: "" for a single one, else a name made of its origin.

    Sets of one repo and commit cannot share a folder of sets: patches of the same name would meet.
    """
    if len(sets) == 1:
        return ("",)
    return tuple(re.sub(r"[^\w.]+", "-", one.keeper) for one in sets)
