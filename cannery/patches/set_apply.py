"""Apply a patch set to a tree, each patch to what those before it left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cannery.patches.apply import FileResult, apply_file
from cannery.patches.result import PatchResult, SetResult, notes_of, problems_of
from cannery.patches.values import Change, FilePatch, PatchFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from cannery.patches.problem import Problem
    from cannery.patches.sets import PatchSet


@dataclass
class Layered:
    """The files of a tree as patches have left it so far: `changed` over those that `under` reads (None: no file)."""

    under: Callable[[str], bytes | None]
    changed: dict[str, bytes | None] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes as they are now; None for no such file."""
        return self.changed[path] if path in self.changed else self.under(path)


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
        problems += problems_of(result)
        notes += notes_of(result)
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
