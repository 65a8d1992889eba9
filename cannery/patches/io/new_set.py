"""A patch set made of a working tree: what differs from HEAD, a patch a file, each with a name of its own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cannery.errors import FindingsError
from cannery.patches.io.folders import read_set
from cannery.patches.io.working_tree import working_diff, working_tree
from cannery.patches.patch_summary import entry
from cannery.patches.py_changes import python_changes
from cannery.patches.set_apply import apply_set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cannery.context import Context

# Bytes of a patch's name; file systems take 255, with its ending and a number.
LONGEST = 200


@dataclass(frozen=True)
class NewSet:
    """A set made of a working tree: its HEAD, {name: patch}, entries for a summary, and files that are in no patch."""

    rev: str
    texts: dict[str, bytes]
    entries: tuple[dict[str, Any], ...]
    untracked: tuple[str, ...]


def new_set(context: Context, repo: str, folder: Path) -> NewSet:
    """Make a set of what differs from HEAD in a working tree, file by file; each is tried on HEAD before it is given.

    Raises `UsageError` as `working_tree`, `FindingsError` as `working_diff` and for what no patch of texts can hold.
    """
    with working_tree(context, folder) as tree:
        diffs, untracked = working_diff(tree, context.env)
        names = patch_names(list(diffs))
        texts = {names[path]: text for path, text in diffs.items()}
        entries = []
        for path, text in sorted(diffs.items()):
            patches = read_set(repo, tree.head, str(folder), {names[path]: text})
            result = apply_set(patches, tree.at_head)
            if result.problems:
                raise FindingsError("\n".join(map(str, result.problems)), where=str(folder))
            parts = [python_changes(name, result.before[name], after) for name, after in result.contents.items()]
            entries.append(entry(names[path], parts))
        return NewSet(tree.head, texts, tuple(entries), untracked)


def patch_names(paths: list[str]) -> dict[str, str]:
    """Return {path: name of its patch}, no name twice: the file's own without its ending where no other file has it.

    Otherwise folders stand before it, then its ending behind it, and at last a number.
    """
    names: dict[str, str] = {}
    for path in sorted(paths):
        taken = set(names.values())
        names[path] = next(name for name in _names_for(PurePosixPath(path)) if name not in taken)
    return names


def _names_for(path: PurePosixPath) -> Iterator[str]:
    """Yield names for the patch of one file, the shortest first, without an end."""
    parts = path.with_suffix("").parts
    yield from (_fit("_".join(parts[-take:])) for take in range(1, len(parts) + 1))
    whole = _fit("_".join(path.parts))
    yield whole
    yield from (f"{whole}_{number}" for number in count(2))


def _fit(name: str) -> str:
    """Return a name that sets are read with again: no dot in front, nothing that does not print, not too long."""
    plain = "".join(sign if sign.isprintable() else "_" for sign in name).lstrip(".") or "_"
    return plain.encode()[:LONGEST].decode(errors="ignore")
