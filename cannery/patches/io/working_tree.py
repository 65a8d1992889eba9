"""A patch set made of what differs from HEAD in a developer's working tree, a patch a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, count
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, UsageError
from cannery.patches.io.git_apply import git_repository
from cannery.patches.result import FileChange
from cannery.sources.io.git import GitReadError
from cannery.sources.io.work_tree import head_blob, kind_of, read_work_tree, tree_root
from cannery.sources.plan import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cannery.sources.io.work_tree import WorkTree

# Characters of a patch's name; file systems take 255 bytes.
LONGEST = 60
FATAL = "fatal: "


@dataclass(frozen=True)
class NewSet:
    """A set made of a working tree: its HEAD, patches by name, and files that are in no patch."""

    rev: str
    texts: dict[str, bytes]
    untracked: tuple[str, ...]


def new_set(folder: Path, env: Mapping[str, str]) -> NewSet:
    """Make a set of what differs from HEAD in the working tree that `folder` is in, file by file.

    Raises `UsageError` for a folder that is in none, or whose tree git cannot read, `FindingsError` for a tree without
    changes and for changes that no patch of a file can hold.
    """
    try:
        tree = read_work_tree(tree_root(folder), env)
    except GitReadError as error:
        hint = "name the working tree that you develop in"
        what = f"--tree: git cannot read {str(folder)!r}: {str(error).removeprefix(FATAL)}"
        raise UsageError(what, hint=hint) from error
    if tree.head is None:
        hint = "patches are for a commit: commit the state that they change"
        raise UsageError(f"--tree: nothing was committed yet in {str(folder)!r}", hint=hint)
    _refuse_submodules(tree, env)
    found = {path: _change(tree, path, env) for path in tree.differing()}
    if not found:
        new = f"; git does not track {', '.join(tree.untracked[:3])}: `git add -N` it" if tree.untracked else ""
        raise FindingsError(
            f"nothing differs from HEAD{new}", where=str(tree.folder), hint="change what is to be patched"
        )
    names = patch_names(list(found))
    with git_repository(env) as git:
        texts = {names[path]: git.diff([one]) for path, one in found.items()}
    return NewSet(tree.head, texts, tree.untracked)


def _change(tree: WorkTree, path: str, env: Mapping[str, str]) -> FileChange:
    before, kind = tree.at_head.get(path), kind_of(tree.folder, path)
    if Kind.LINK in {kind, before[0] if before else None}:
        raise FindingsError(f"{path} is a symlink: no patch can hold it", where=str(tree.folder))
    after = (tree.folder / path).read_bytes() if kind else None
    return FileChange(path, head_blob(tree, path, env), after, before[0] if before else None, kind)


def _refuse_submodules(tree: WorkTree, env: Mapping[str, str]) -> None:
    """Refuse a tree with changes inside a submodule, or another commit of it: no patch of this tree can hold them."""
    for path, commit in tree.submodules.items():
        folder = tree.folder / path
        if folder.is_symlink() or not (folder / ".git").exists():
            continue
        inner = read_work_tree(folder, env)
        if inner.head != commit or inner.differing():
            hint = f"make its patches with --tree {folder}, or take the changes back"
            raise FindingsError(f"submodule {path} has changes of its own", where=str(tree.folder), hint=hint)


def patch_names(paths: list[str]) -> dict[str, str]:
    """Return {path: name of its patch}: the file's own name without its ending, with a number where another has it."""
    names: dict[str, str] = {}
    for path in sorted(paths):
        name = re.sub(r"[^\w-]+", "_", PurePosixPath(path).stem).strip("_")[:LONGEST] or "file"
        taken = set(names.values())
        names[path] = next(one for one in chain([name], _numbered(name)) if one not in taken)
    return names


def _numbered(name: str) -> Iterator[str]:
    return (f"{name}_{number}" for number in count(2))
