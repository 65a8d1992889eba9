"""A patch set made of a working tree: what differs from HEAD, a patch a file, each with a name of its own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cannery.errors import FindingsError
from cannery.patches.changes import python_changes
from cannery.patches.io.folders import read_set
from cannery.patches.io.git_apply import git_repository
from cannery.patches.io.working_tree import working_diff, working_tree
from cannery.patches.summary import entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Bytes of a patch's name; file systems take 255, with its ending and a number.
LONGEST = 200


@dataclass(frozen=True)
class NewSet:
    """A set made of a working tree: its HEAD, {name: patch}, entries for a summary, and files that are in no patch."""

    rev: str
    texts: dict[str, bytes]
    entries: tuple[dict[str, Any], ...]
    untracked: tuple[str, ...]


def new_set(repo: str, folder: Path, env: Mapping[str, str]) -> NewSet:
    """Make a set of what differs from HEAD in a working tree, file by file; each is tried on HEAD first.

    Raises `UsageError` as `working_tree`, `FindingsError` as `working_diff` and for what no patch of a file can hold.
    """
    with working_tree(folder, env) as tree, git_repository(env) as git:
        diffs, untracked = working_diff(tree, env)
        names = patch_names(list(diffs))
        texts = {names[path]: text for path, text in diffs.items()}
        entries = []
        for file in read_set(repo, tree.head, str(folder), texts).files:
            result = git.apply(file, tree)
            if not result.ok:
                raise FindingsError("\n".join(map(str, result.problems)), where=str(folder))
            parts = [python_changes(one.path, one.before, one.after) for one in result.changes]
            entries.append(entry(file.name, parts))
        return NewSet(tree.head, texts, tuple(entries), untracked)


def patch_names(paths: list[str]) -> dict[str, str]:
    """Return {path: name of its patch}, each once: the file's own name without its ending where no other file has it.

    Otherwise with folders before it, then with its ending, and at last with a number.
    """
    names: dict[str, str] = {}
    for path in sorted(paths):
        taken = set(names.values())
        names[path] = next(name for name in _names_for(PurePosixPath(path)) if name not in taken)
    return names


def _names_for(path: PurePosixPath) -> Iterator[str]:
    """Give names for the patch of one file, the shortest first; they never end."""
    parts = path.with_suffix("").parts
    yield from (_fit("_".join(parts[-take:])) for take in range(1, len(parts) + 1))
    whole = _fit("_".join(path.parts))
    yield whole
    yield from (f"{whole}_{number}" for number in count(2))


def _fit(name: str) -> str:
    """Return a name that sets are read with again: no dot in front, nothing that does not print, not too long."""
    plain = "".join(sign if sign.isprintable() else "_" for sign in name).lstrip(".") or "_"
    return plain.encode()[:LONGEST].decode(errors="ignore")
