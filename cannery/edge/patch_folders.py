"""Patch sets in folders, `<repo>/<revision>/*.patch`: images/patches, and a user's own (PATCHES=folder)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.core.errors import UsageError
from cannery.core.patch_set import PatchSet
from cannery.core.patch_text import parse_patch
from cannery.core.patching import USER_SETS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.core.component import PatchSets
    from cannery.edge.patch_trees import Tree

SUFFIX = ".patch"
OURS = "images/patches"
LAYOUT = "a folder of patch sets is laid out as <repo>/<commit>/<name>.patch"


def folder_sets(images: Path, own: Path | None) -> tuple[PatchSet, ...]:
    """Return the patch sets of images/patches and of the user's folder, in that order.

    Raises `FindingsError` for a patch that cannot be read, `UsageError` for a user's folder without a set.
    """
    found = _sets(images / "patches", OURS)
    if own is None:
        return found
    mine = _sets(own, USER_SETS)
    if not mine:
        raise UsageError(f"{USER_SETS}: there is no patch set in {str(own)!r}", hint=LAYOUT)
    return (*found, *mine)


def _sets(folder: Path, origin: str) -> tuple[PatchSet, ...]:
    files = sorted(path for path in folder.glob(f"*/*/*{SUFFIX}") if path.is_file())
    by_set: dict[tuple[str, str], dict[str, bytes]] = {}
    for path in files:
        repo, rev, name = path.relative_to(folder).parts
        by_set.setdefault((repo, rev), {})[name.removesuffix(SUFFIX)] = path.read_bytes()
    return tuple(read_set(repo, rev, f"{origin}/{repo}/{rev}", texts) for (repo, rev), texts in by_set.items())


def read_set(
    repo: str, rev: str, origin: str, texts: Mapping[str, bytes], fuzz: Mapping[str, int] | None = None
) -> PatchSet:
    """Return a set of {name: content of its file}. Raises `FindingsError` for a patch that cannot be read."""
    files = tuple(parse_patch(name, text) for name, text in sorted(texts.items()))
    return PatchSet(repo=repo, rev=rev, origin=origin, files=files, fuzz=dict(fuzz or {}))


def plugin_sets(plugin: str, kept: PatchSets | None, tree: Tree) -> dict[str, tuple[PatchSet, ...]]:
    """Return by repo the patch sets that the tree of a plugin keeps. Raises `FindingsError` for what is no patch."""
    if kept is None:
        return {}
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    for path in tree.paths:
        inner = path.removeprefix(f"{kept.folder}/").split("/")
        if path.startswith(f"{kept.folder}/") and len(inner) == 3 and path.endswith(SUFFIX):
            found.setdefault((inner[0], inner[1]), {})[inner[2].removesuffix(SUFFIX)] = tree.read(path) or b""
    sets: dict[str, tuple[PatchSet, ...]] = {}
    for (repo, rev), texts in sorted(found.items()):
        sets[repo] = (*sets.get(repo, ()), read_set(repo, rev, plugin, texts, kept.fuzz))
    return sets
