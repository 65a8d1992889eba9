"""Applies patches with git in a temporary repository, without the settings of the user or of the tree.

The repository only has the files that a patch touches, so commits, folders and source distributions work the same way.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cannery.errors import FindingsError
from cannery.patches.sets import strip_level, surplus
from cannery.sources.io.git import attempt, read
from cannery.sources.plan import is_bad_path
from cannery.util.addresses import plain

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator, Mapping

    from cannery.patches.sets import PatchFile
    from cannery.sources.io.export import TreeReader

    # The files of a tree, unchanged or with changes.
    Files: TypeAlias = "TreeReader | Layered"

EXECUTABLE = "100755"
PLAIN = "100644"
# The most lines of a hunk in a message, and their width.
SHOWN_LINES = 12
WIDTH = 160
# The output of `git apply --verbose` with LC_ALL=C.
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
# Variables that change how git reads and writes patches.
NOT_OURS = ("GIT_CONFIG", "GIT_DIFF_OPTS", "GIT_EXTERNAL_DIFF")
# File names are not quoted, and the user's attributes are not used.
SETTINGS = ("-c", "core.quotePath=false", "-c", f"core.attributesFile={os.devnull}")
DIFF = ("diff-tree", "--patch", "--binary", "--full-index", "--find-renames")
APPLY = ("apply", "--whitespace=nowarn")
AT_LINE = re.compile(r"(.*?)(?: at|\() ?line (\d+)\)?(?:: .*)?")
EDITED = "make the patch again with `git diff`; if you edit a hunk by hand, correct the counts in its header too"
# The user's settings must not change how a patch is read.
WITHOUT_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
CUT_OFF = "the file is cut off: make it again, or name it in `truncated` of the component that keeps it"


@dataclass
class Layered:
    """A tree with changes: `changed` is {path: content, None if deleted}, `modes` is {path: is executable}."""

    under: Files
    changed: dict[str, bytes | None] = field(default_factory=dict)
    modes: dict[str, bool] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        """Return the current bytes of a file; None if there is none."""
        return self.changed[path] if path in self.changed else self.under.read(path)

    def is_executable(self, path: str) -> bool:
        """Whether a file is now executable."""
        return self.modes[path] if path in self.modes else self.under.is_executable(path)

    def add(self, changes: Iterable[FileChange]) -> None:
        """Add changes to the tree."""
        for one in changes:
            self.changed[one.path] = one.after
            if one.new_mode is not None:
                self.modes[one.path] = one.new_mode == EXECUTABLE


@dataclass(frozen=True)
class FileChange:
    """One file: its bytes and git's mode before and after; None if it does not exist."""

    path: str
    before: bytes | None
    after: bytes | None
    old_mode: str | None = None
    new_mode: str | None = None


@dataclass(frozen=True)
class Problem:
    """Why a patch does not apply or changes nothing. `lines` are the lines that it expects, or a conflict."""

    patch: str
    path: str
    what: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join((f"{self.patch}.patch: {self.path}: {self.what}", *(f"    {line}" for line in self.lines)))


@dataclass(frozen=True)
class PatchResult:
    """The result of a patch on a tree: the changed files, or its problems.

    `already`: the tree already has the patch; `changes` then lead from a tree without it to this tree. `notes` are
    about hunks that apply at other lines. `is_merged`: it did not apply, and git merged it.
    """

    patch: PatchFile
    changes: tuple[FileChange, ...] = ()
    already: bool = False
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    is_merged: bool = False

    @property
    def ok(self) -> bool:
        """Whether the patch applies, or the tree already has it."""
        return not self.problems

    @property
    def verdict(self) -> str:
        """The result as a text."""
        if not self.ok:
            return "does not apply"
        if self.already:
            return "is there already"
        if self.is_merged:
            return "applies, merged with what changed upstream"
        return "applies, at other lines" if self.notes else "applies"


@dataclass(frozen=True)
class Git:
    """An empty bare repository, and the environment for git commands on it."""

    folder: Path
    env: Mapping[str, str]

    def paths(self, patch: PatchFile) -> tuple[str, ...]:
        """Return the paths that a patch names. Raises `FindingsError` if git cannot read the patch."""
        line = surplus(patch.text)
        if line:
            what = "the hunk before this line has fewer lines in its header"
            raise FindingsError(what, where=f"{_file(patch)}:{line}", hint=EDITED)
        found: dict[str, None] = {}
        for direction in ((), ("-R",)):  # for a renamed file, git prints the new name
            done = self._apply(patch, "--numstat", "-z", *direction)
            if done.returncode != 0:
                raise _unread(patch, done.stderr.decode(errors="replace"))
            lines = done.stdout.split(b"\0")[:-1]
            found |= dict.fromkeys(os.fsdecode(line.split(b"\t", 2)[2]) for line in lines)
        bad = next((path for path in found if is_bad_path(path) or not path.isprintable()), None)
        if bad is not None:
            hint = "a patch may only name files of the tree"
            raise FindingsError(f"it changes {bad!a}, which is not a path in a tree", where=_file(patch), hint=hint)
        return tuple(found)

    def apply(self, patch: PatchFile, tree: Files) -> PatchResult:
        """Return the result of `patch` on `tree`. Raises `FindingsError` if git cannot read the patch."""
        before = self._tree(
            {path: (tree.read(path), EXECUTABLE if tree.is_executable(path) else PLAIN) for path in self.paths(patch)}
        )
        done = self._apply(patch, "--cached", "--verbose")
        output = done.stderr.decode(errors="replace")
        changes = self._changes(before, self._written()) if done.returncode == 0 else ()
        if changes:
            strange = [one for one in changes if one.new_mode not in {None, PLAIN, EXECUTABLE}]
            problems = tuple(Problem(patch.name, one.path, "it makes a symlink or a submodule") for one in strange)
            if problems:
                return PatchResult(patch, problems=problems)
            return PatchResult(patch, changes, notes=tuple(_notes_in(output)))
        read(self._words("read-tree", before), self.env)
        if self._apply(patch, "--cached", "-R").returncode == 0:
            return PatchResult(patch, self._changes(self._written(), before), already=True)
        problems = tuple(_problems_in(patch, output)) or (Problem(patch.name, "", "changes nothing"),)
        return PatchResult(patch, problems=problems)

    def merge(self, ours: bytes, base: bytes, theirs: bytes) -> tuple[bytes, bool]:
        """Return the three-way merge of a text, with conflict markers, and whether it is without conflicts."""
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            (self.folder / name).write_bytes(data)
        names = ("-L", "the tree", "-L", "before the patch", "-L", "with the patch")
        sides = (str(self.folder / name) for name in ("ours", "base", "theirs"))
        done = attempt(("merge-file", "-p", "--diff3", *names, *sides), self.env)
        return done.stdout, done.returncode == 0

    def diff(self, changes: Iterable[FileChange]) -> bytes:
        """Return changes as a patch."""
        found = tuple(changes)
        before = self._tree({one.path: (one.before, one.old_mode) for one in found})
        after = self._tree({one.path: (one.after, one.new_mode) for one in found})
        return read(self._words(*DIFF, before, after), self.env)

    def _words(self, *arguments: str | Path) -> tuple[str | Path, ...]:
        return (f"--git-dir={self.folder}", *SETTINGS, *arguments)

    def _apply(self, patch: PatchFile, *options: str) -> subprocess.CompletedProcess[bytes]:
        words = self._words(*APPLY, f"-p{strip_level(patch.text)}", *options, "-")
        return attempt(words, self.env, stdin=patch.text)

    def _tree(self, files: Mapping[str, tuple[bytes | None, str | None]]) -> str:
        """Write only these files, {path: (content, mode)}, to the index, and return their tree."""
        read(self._words("read-tree", "--empty"), self.env)
        lines = []
        for path, (data, mode) in files.items():
            if data is not None:
                blob = read(self._words("hash-object", "-w", "--stdin"), self.env, stdin=data).strip()
                lines.append(b"%s %s\t%s\0" % ((mode or PLAIN).encode(), blob, os.fsencode(path)))
        read(self._words("update-index", "-z", "--index-info"), self.env, stdin=b"".join(lines))
        return self._written()

    def _written(self) -> str:
        return read(self._words("write-tree"), self.env).decode().strip()

    def _changes(self, before: str, after: str) -> tuple[FileChange, ...]:
        words = self._words("diff-tree", "-r", "-z", "--no-renames", before, after)
        fields = read(words, self.env).split(b"\0")[:-1]
        found = []
        for head, path in zip(fields[::2], fields[1::2], strict=True):
            # A missing file has zeros as mode and object.
            old_mode, new_mode, old, new = (one.strip("0") and one for one in head.decode()[1:].split(" ")[:4])
            data = {one: read(self._words("cat-file", "blob", one), self.env) for one in (old, new) if one}
            change = FileChange(os.fsdecode(path), data.get(old), data.get(new), old_mode or None, new_mode or None)
            found.append(change)
        return tuple(found)


@contextmanager
def git_repository(env: Mapping[str, str]) -> Iterator[Git]:
    """Yield a repository for patches while the block runs. Raises `UnableError` if git is not installed."""
    own = {name: value for name, value in env.items() if not name.startswith(NOT_OURS)} | WITHOUT_CONFIG
    with tempfile.TemporaryDirectory(prefix="cannery-patches-") as folder:
        read(("init", "--quiet", "--bare", "--template=", folder), own)
        yield Git(Path(folder), own)


def _unread(patch: PatchFile, output: str) -> FindingsError:
    """Return the error for a file that git cannot read as a patch; `output` is git's output."""
    line = next((one for one in output.splitlines() if one.startswith(("error: ", "fatal: "))), output).strip()
    reason = line.partition(": ")[2].partition(" (allow with")[0]
    place = AT_LINE.fullmatch(reason)
    where = f"{_file(patch)}:{place[2]}" if place else _file(patch)
    hint = EDITED if patch.text.endswith(b"\n") else CUT_OFF
    return FindingsError(f"git cannot read this patch: {place[1] if place else reason}", where=where, hint=hint)


def _file(patch: PatchFile) -> str:
    return f"{patch.name}.patch"


def _notes_in(output: str) -> Iterator[str]:
    """Yield notes about the hunks that git applied at other lines; `output` is git's output."""
    path = ""
    for line in output.splitlines():
        if checked := CHECKED.fullmatch(line):
            path = checked[1].rpartition(" => ")[2]
        elif moved := MOVED.fullmatch(line):
            yield f"{path}: hunk {moved[1]} applies at line {moved[2]}, {int(moved[3]):+} from its header's"


def _problems_in(patch: PatchFile, output: str) -> Iterator[Problem]:
    """Yield the problems of a patch that git refused; `output` is git's output."""
    named = set()
    for misfit in MISFIT.finditer(output):
        named.add(misfit["path"])
        wanted = tuple(map(shown_line, (misfit["wanted"] or "").removesuffix("\n").split("\n")))
        what = f"the hunk for line {misfit['line']} does not fit; it is for these lines:"
        yield Problem(patch.name, misfit["path"], what, wanted[:SHOWN_LINES])
    for line in MISFIT.sub("", output).splitlines():
        if (error := ERROR.fullmatch(line)) and error[1] not in named:
            yield Problem(patch.name, error[1], WORDS.get(error[2], error[2]))


def shown_line(line: str) -> str:
    """Return a line of a file for a message, cut and without control characters."""
    return plain(line.rstrip("\r"))[:WIDTH]
