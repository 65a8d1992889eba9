"""A developer's working tree: its commit, and a patch set made of what differs from that, a patch a file.

It is read without its own configuration (see `foreign_tree`).
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, UsageError
from cannery.patches.io.folders import read_set
from cannery.patches.io.git_apply import git_repository
from cannery.patches.syntax import changed_names
from cannery.sources.io.foreign_tree import ForeignTree, opened, tree_root
from cannery.sources.io.git import GitReadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cannery.patches.syntax import Change

# Characters of a patch's name; file systems take 255 bytes.
LONGEST = 60
FATAL = "fatal: "
# What git reports of a repository in which nothing was committed.
NO_COMMIT = "Needed a single revision"
GITLINK = b"160000 "
EXECUTABLE = b"100755 "
PLAIN = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
# Without it git runs `git status` in each submodule, with the configuration of that one.
OUTSIDE_SUBMODULES = "--ignore-submodules=dirty"


@dataclass(frozen=True)
class WorkingTree:
    """A working tree that is open: HEAD, its root, and git for it."""

    head: str
    git: ForeignTree

    @property
    def top(self) -> Path:
        """The root of the tree."""
        return self.git.folder

    def read(self, path: str) -> bytes | None:
        """Return the content of a file at HEAD, None where it has none."""
        try:
            return self.git.read("cat-file", "blob", f"HEAD:{path}")
        except GitReadError:
            return None

    def is_executable(self, path: str) -> bool:
        """Whether a file may be executed at HEAD."""
        return self.git.read("ls-tree", "HEAD", "--", f":(literal){path}").startswith(EXECUTABLE)


@contextmanager
def working_tree(folder: Path, env: Mapping[str, str]) -> Iterator[WorkingTree]:
    """Give the working tree that `folder` is in while the block runs.

    Raises `UsageError` for a folder that is in none, or whose tree git cannot read.
    """
    try:
        with opened(tree_root(folder), env) as git:
            head = git.read("rev-parse", "--verify", "HEAD^{commit}").decode().strip()
            yield WorkingTree(head, git)
    except GitReadError as error:
        raise _unread(folder, error) from error


def working_commit(folder: Path, env: Mapping[str, str]) -> str:
    """Return HEAD of the working tree whose root is `folder`.

    Raises `UsageError` for another folder: a repository somewhere above it does not know what is in it.
    """
    with working_tree(folder, env) as tree:
        if tree.top.resolve() != folder.resolve():
            what = f"--tree: {str(folder)!r} is a folder inside a working tree"
            raise UsageError(what, hint=f"name its root, {tree.top}")
        return tree.head


def working_diff(tree: WorkingTree, env: Mapping[str, str]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return {path: its diff from HEAD} of what is changed in a working tree, and files that git does not track.

    Raises `FindingsError` for a tree without changes and for one with changes inside a submodule, `GitReadError`.
    """
    plain = (*PLAIN, OUTSIDE_SUBMODULES)
    names = tree.git.read(*plain, "--name-only", "-z", "HEAD").decode(errors="surrogateescape")
    changed = [name for name in names.split("\0") if name]
    _refuse_submodules(tree, env)
    diffs = {name: tree.git.read(*plain, "--full-index", "HEAD", "--", f":(literal){name}") for name in changed}
    others = tree.git.read("ls-files", "--others", "--exclude-standard", "-z")
    untracked = tuple(name for name in others.decode(errors="replace").split("\0") if name)
    if not diffs:
        new = f"; git does not track {', '.join(untracked[:3])}: `git add -N` it" if untracked else ""
        hint = "change what is to be patched"
        raise FindingsError(f"nothing differs from HEAD{new}", where=str(tree.top), hint=hint)
    return diffs, untracked


def _refuse_submodules(tree: WorkingTree, env: Mapping[str, str]) -> None:
    """Refuse a tree with changes inside a submodule: no patch of this tree can hold them."""
    for line in tree.git.read("ls-files", "-z", "--stage").split(b"\0"):
        name = line.partition(b"\t")[2].decode(errors="surrogateescape")
        folder = tree.top / name
        if not line.startswith(GITLINK) or folder.is_symlink() or not (folder / ".git").exists():
            continue
        with opened(folder, env) as git:
            if git.read("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"):
                hint = f"make its patches with --tree {folder}, or take the changes back"
                raise FindingsError(f"submodule {name} has changes of its own", where=str(tree.top), hint=hint)


def _unread(folder: Path, error: GitReadError) -> UsageError:
    """Return the error to raise where git refuses `folder`. The reason is git's first line, advice its last."""
    reason = next((line.removeprefix(FATAL) for line in error.lines if line.startswith(FATAL)), str(error))
    if NO_COMMIT in reason:
        hint = "patches are for a commit: commit the state that they change"
        return UsageError(f"--tree: nothing was committed yet in {str(folder)!r}", hint=hint)
    hint = "name the working tree that you develop in"
    return UsageError(f"--tree: git cannot read {str(folder)!r}: {reason}", hint=hint)


@dataclass(frozen=True)
class NewSet:
    """A set made of a working tree: its HEAD, patches and what they change by name, and files that are in no patch."""

    rev: str
    texts: dict[str, bytes]
    changes: dict[str, tuple[Change, ...]]
    untracked: tuple[str, ...]


def new_set(repo: str, folder: Path, env: Mapping[str, str]) -> NewSet:
    """Make a set of what differs from HEAD in a working tree, file by file; each is tried on HEAD first.

    Raises `UsageError` as `working_tree`, `FindingsError` as `working_diff` and for what no patch of a file can hold.
    """
    with working_tree(folder, env) as tree, git_repository(env) as git:
        diffs, untracked = working_diff(tree, env)
        names = patch_names(list(diffs))
        texts = {names[path]: text for path, text in diffs.items()}
        changes = {}
        for file in read_set(repo, tree.head, str(folder), texts).files:
            result = git.apply(file, tree)
            if not result.ok:
                raise FindingsError("\n".join(map(str, result.problems)), where=str(folder))
            parts = (changed_names(one.path, one.before, one.after) for one in result.changes)
            changes[file.name] = tuple(chain.from_iterable(parts))
        return NewSet(tree.head, texts, changes, untracked)


def patch_names(paths: list[str]) -> dict[str, str]:
    """Return {path: name of its patch}: the file's own name without its ending, with a number where another has it."""
    names: dict[str, str] = {}
    for path in sorted(paths):
        name = re.sub(r"[^\w-]+", "_", PurePosixPath(path).stem).strip("_")[:LONGEST] or "file"
        taken = set(names.values())
        names[path] = next(one for one in chain([name], (f"{name}_{at}" for at in count(2))) if one not in taken)
    return names
