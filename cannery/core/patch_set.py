"""A patch set: the patch files that are meant for one commit of one repository, found by it and applied to its tree."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

from cannery.core.errors import FindingsError
from cannery.core.file_patch import Change, FilePatch, PatchFile
from cannery.core.patch_apply import FileResult, HunkResult, Outcome, apply_file
from cannery.core.patch_problem import Problem, file_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Shorter hashes are not told apart from words, and by chance fit another commit.
SHORTEST = 7
_HASH = re.compile(rf"[0-9a-f]{{{SHORTEST},40}}")


@dataclass(frozen=True)
class PatchSet:
    """The patches of `repo` for the commit `rev` (a full or short hash, as the folder says), from `origin` in words.

    `files` are in the order in which they apply, which is that of their names; `fuzz` is what is allowed, by name.
    """

    repo: str
    rev: str
    origin: str
    files: tuple[PatchFile, ...]
    fuzz: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.name)))

    @property
    def folder(self) -> str:
        """Its place in `origin`, as the user knows it."""
        return f"{self.repo}/{self.rev}"

    @property
    def keeper(self) -> str:
        """Who keeps it, in words: a plugin, or a folder of sets."""
        return self.origin.removesuffix(f"/{self.folder}")


@dataclass(frozen=True)
class PatchResult:
    """One patch file's results, a file each; `changed` are the paths whose bytes or modes it changes.

    `rewritten` are those whose bytes it changes. A mode that is set may be the file's own: a tree is read without them.
    """

    patch: PatchFile
    files: tuple[FileResult, ...]
    changed: tuple[str, ...]
    rewritten: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether all of it fits."""
        return all(result.ok for result in self.files)

    @property
    def already(self) -> bool:
        """Whether the tree has all of it; modes, which are not known of it, do not count."""
        known = [one for one in self.files if one.patch.hunks or one.patch.change is not Change.MODIFIED]
        return bool(known) and all(result.already for result in known)


@dataclass(frozen=True)
class SetResult:
    """What a set does to a tree: of each path it touches the bytes `before` and after (`contents`); None is no file.

    `modes` are git's modes that it sets, of paths that exist after it. `notes` say what went well but not as written:
    repaired patches, hunks with offset or fuzz, hunks that the tree has already.
    """

    set: PatchSet
    results: tuple[PatchResult, ...]
    contents: Mapping[str, bytes | None]
    before: Mapping[str, bytes | None]
    modes: Mapping[str, str]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the whole set is applied, and each patch of it changes something, as far as texts can tell."""
        return not self.problems


@dataclass
class Layered:
    """The files of a tree as patches have left it so far: `changed` over those that `under` reads (None: no file)."""

    under: Callable[[str], bytes | None]
    changed: dict[str, bytes | None] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes as they are now; None for no such file."""
        return self.changed[path] if path in self.changed else self.under(path)


def find_set(sets: Iterable[PatchSet], commit: str) -> PatchSet | None:
    """Return the set for `commit`, both being full or short hashes; None if there is none for it.

    Raises FindingsError where a set's revision or `commit` is no hash, or more than one set fits.
    """
    found = fitting_sets(sets, commit)
    if len(found) > 1:
        which = ", ".join(f"{one.folder} of {one.origin}" for one in found)
        raise FindingsError(f"more than one patch set fits commit {commit}: {which}", hint="keep one of them")
    return found[0] if found else None


def fitting_sets(sets: Iterable[PatchSet], commit: str) -> tuple[PatchSet, ...]:
    """Return the sets for `commit` in their order, all being full or short hashes.

    Raises FindingsError where a set's revision or `commit` is no hash.
    """
    known = tuple(sets)
    wanted = commit.lower()
    if not _HASH.fullmatch(wanted):
        raise FindingsError(f"{commit!r} is no commit", hint=f"give a hash of {SHORTEST} to 40 hex digits")
    for one in known:
        if not _HASH.fullmatch(one.rev.lower()):
            what = f"the folder {one.folder} is named by no commit, so nobody knows what its patches are for"
            hint = f"name it by the commit: {SHORTEST} to 40 hex digits"
            raise FindingsError(what, where=one.origin, hint=hint)
    return tuple(one for one in known if wanted.startswith(one.rev.lower()) or one.rev.lower().startswith(wanted))


def refuse_ambiguous(sets: Iterable[PatchSet], commit: str) -> None:
    """Raise `FindingsError` where the short hash `commit` is the beginning of several commits that have sets."""
    revisions = sorted({one.rev.lower() for one in sets})
    # Of one commit the folders may have more or fewer digits; sorted, a beginning stands before what it begins.
    others = [next_ for one, next_ in pairwise(revisions) if not next_.startswith(one)]
    if others:
        what = f"{commit!r} is the beginning of several commits that have sets: {', '.join(revisions)}"
        raise FindingsError(what, hint="give more digits of the one that is meant")


def no_set_for(repo: str, commit: str, sets: Iterable[PatchSet]) -> str:
    """Return the words for a commit that has no set, naming the commits that have one."""
    known = ", ".join(sorted(f"{one.rev} ({one.origin})" for one in sets if one.repo == repo))
    return f"no patch set of {repo} is for commit {commit}; there are sets for {known or 'no commit at all'}"


def apply_set(patches: PatchSet, read: Callable[[str], bytes | None], *, anywhere: bool = False) -> SetResult:
    """Apply the set to the tree whose files `read` gives (None: no such file), each patch to what those before left.

    `anywhere`, for a tree of another commit: a hunk whose result stands anywhere in its file is there already.
    """
    tree = _Tree(read)
    results: list[PatchResult] = []
    problems: list[Problem] = []
    notes: list[str] = []
    for file in patches.files:
        result = _apply_patch(file, tree, patches.fuzz.get(file.name, 0), anywhere=anywhere)
        results.append(result)
        problems += _problems(result)
        notes += _notes(result)
    before = {path: tree.before[path] for path in sorted(tree.before)}
    contents = {path: tree.now.get(path, content) for path, content in before.items()}
    modes = {path: mode for path, mode in sorted(tree.modes.items()) if contents.get(path) is not None}
    return SetResult(patches, tuple(results), contents, before, modes, tuple(problems), tuple(notes))


class _Tree:
    """The tree as the patches have left it so far: `before` what was read, `now` what is written over it."""

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self.before: dict[str, bytes | None] = {}
        self.now: dict[str, bytes | None] = {}
        self.modes: dict[str, str] = {}

    def content(self, path: str) -> bytes | None:
        """Return a file's bytes, reading it once."""
        if path not in self.before:
            self.before[path] = self._read(path)
        return self.now.get(path, self.before[path])


def _apply_patch(file: PatchFile, tree: _Tree, fuzz: int, *, anywhere: bool) -> PatchResult:
    results: list[FileResult] = []
    first: dict[str, tuple[bytes | None, str | None]] = {}
    for patch in file.files:
        old, new = patch.old_path or patch.path, patch.path
        for path in (old, new):
            first.setdefault(path, (tree.content(path), tree.modes.get(path)))
        target = tree.content(new) if new != old else None
        result = apply_file(patch, tree.content(old), target=target, fuzz=fuzz, anywhere=anywhere)
        results.append(result)
        if result.ok:
            _write(tree, patch, result)
    changed = tuple(path for path, was in first.items() if was != (tree.content(path), tree.modes.get(path)))
    rewritten = tuple(path for path, (was, _) in first.items() if was != tree.content(path))
    return PatchResult(file, tuple(results), changed, rewritten)


def _write(tree: _Tree, patch: FilePatch, result: FileResult) -> None:
    tree.now[patch.path] = result.after
    if patch.change is Change.RENAMED and patch.old_path:
        tree.now[patch.old_path] = None
    # A file's old mode is not known here: what a new file has, or a change asks for, is set.
    if patch.new_mode and (patch.change is not Change.ADDED or not result.already):
        tree.modes[patch.path] = patch.new_mode


def _problems(result: PatchResult) -> list[Problem]:
    name = result.patch.name
    found = [problem for file in result.files for problem in file_problems(name, file)]
    if found or result.changed:
        return found
    if result.already:
        hint = "it is in this commit: leave the patch out of its set"
        return [Problem(name, _paths(result), "changes nothing: already in the tree", hint=hint)]
    return [Problem(name, _paths(result), "changes nothing", hint="leave the patch out of its set")]


def _paths(result: PatchResult) -> str:
    return ", ".join(dict.fromkeys(file.patch.path for file in result.files))


def _notes(result: PatchResult) -> list[str]:
    """Return what the user should know of a patch that fits."""
    where = f"{result.patch.name}.patch"
    notes = [f"{where}: {note}" for note in result.patch.notes]
    for file in result.files:
        start = f"{where}: {file.patch.path}"
        notes += [f"{start}: {file.note}"] if file.note else []
        for hunk in file.hunks:
            # That a whole patch is in the tree is a problem, and told as one.
            told = "" if hunk.outcome is Outcome.ALREADY and result.already else _told(hunk)
            notes += [f"{start}: hunk {hunk.hunk.number} {told}"] if told else []
    return notes


def _told(result: HunkResult) -> str:
    if result.outcome is Outcome.ALREADY:
        return f"is in the tree already, at line {result.line}"
    if result.outcome is Outcome.CONFLICT or not (result.fuzz or result.offset):
        return ""
    fuzz = f" with fuzz {result.fuzz}" if result.fuzz else ""
    offset = f", {result.offset:+} from where its header says" if result.offset else ""
    return f"goes to line {result.line}{fuzz}{offset}"
