"""A patch set made of a working tree: what differs from HEAD, a patch a file, each with a name of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, count
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.errors import FindingsError
from cannery.patches.io.folders import read_set
from cannery.patches.io.git_apply import git_repository
from cannery.patches.io.working_tree import working_diff, working_tree
from cannery.patches.syntax import changed_names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.patches.syntax import Change

# Characters of a patch's name; file systems take 255 bytes.
LONGEST = 60


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
