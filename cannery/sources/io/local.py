"""A user's own tree as it is on disk, in place of a commit: of a git work tree what git tracks or does not ignore.

git only reads here, and no program that the tree's configuration names is run (see `work_tree`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cannery.errors import UnableError, UsageError
from cannery.sources.io.git import GitReadError
from cannery.sources.io.tar import Kind
from cannery.sources.io.work_tree import is_behind_link, kind_of, read_work_tree
from cannery.sources.plan import Missing, Why, is_bad_path, is_inside, leads_to, unmatched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

# Of a folder without git.
LEFT_OUT = frozenset({".git", "__pycache__"})
# A line of .gitmodules.
MODULE_PATH = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)


@dataclass
class LocalTree:
    """A tree on disk: entries by path, commit of HEAD (None: no git, or no commit yet), whether it differs from it."""

    folder: Path
    entries: dict[str, Kind] = field(default_factory=dict)
    commit: str | None = None
    dirty: bool = False
    missing: list[Missing] = field(default_factory=list)

    def read(self, path: str) -> bytes:
        """Return the content of an entry (of a link: its target). Raises `UnableError` for one that is gone."""
        place = self.folder / path
        try:
            return os.fsencode(place.readlink()) if self.entries[path] is Kind.LINK else place.read_bytes()
        except OSError as error:
            hint = "run it again when nothing writes to that tree"
            raise UnableError(f"cannot be read: {error.strerror}", where=str(place), hint=hint) from error


def local_tree(name: str, folder: Path, paths: tuple[str, ...], env: Mapping[str, str]) -> LocalTree:
    """Return what `folder` gives as source `name`, only `paths` of it when there are any.

    Submodules and repositories inside it are read the same way. A folder without a .git of its own gives all its files
    but .git, __pycache__ and *.pyc. Raises `UsageError` for a folder that is none, that git cannot read, or without
    one of `paths`.
    """
    if not folder.is_dir():
        raise UsageError(f"SRC_{name}: {str(folder)!r} is no folder", hint="name the folder of your own tree")
    tree = LocalTree(folder.absolute())
    try:
        if (folder / ".git").exists():
            tree.commit, tree.dirty = _add_repository(tree, "", paths, env)
        else:
            for path in _plain(folder, ""):
                _add(tree, path, paths)
            tree.missing += _unchecked(tree, "", (), paths)
    except GitReadError as error:
        raise UsageError(f"SRC_{name}: git cannot read it: {error}", where=str(folder)) from error
    except OSError as error:
        raise UnableError(f"SRC_{name} cannot be read: {error}", where=str(folder)) from error
    absent = unmatched(paths, tree.entries)
    if absent:
        raise UsageError(f"SRC_{name}: it has no {', '.join(absent)}", where=str(folder))
    return tree


def _add(tree: LocalTree, path: str, paths: tuple[str, ...]) -> bool:
    """Add a file or symlink that is asked for; return whether there is one. Devices, sockets and pipes are left out."""
    kind = kind_of(tree.folder, path)
    if kind is not None and is_inside(path, paths):
        tree.entries[path] = kind
    return kind is not None


def _plain(folder: Path, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as found:
        children = sorted(found, key=lambda child: child.name)
    for child in children:
        if child.name in LEFT_OUT or child.name.endswith(".pyc"):
            continue
        if child.is_dir(follow_symlinks=False):
            yield from _plain(folder / child.name, f"{prefix}{child.name}/")
        else:
            yield prefix + child.name


def _add_repository(
    tree: LocalTree, prefix: str, paths: tuple[str, ...], env: Mapping[str, str]
) -> tuple[str | None, bool]:
    """Add the files of the work tree at `prefix` and of those inside it; return its HEAD and whether it differs."""
    git = read_work_tree(tree.folder / prefix, env)
    dirty, links = git.is_changed, git.submodules
    for name in sorted({*git.tracked, *git.untracked}):
        # A repository that this one does not know of is listed as a folder.
        path = f"{prefix}{name}".rstrip("/")
        if (tree.folder / path / ".git").exists() and not is_behind_link(tree.folder, f"{path}/.git"):
            if leads_to(path, paths):  # submodules are read one by one
                head, is_changed = _add_repository(tree, f"{path}/", paths, env)
                dirty = dirty or is_changed or head != links.get(name, head)
        elif name not in links and not _add(tree, path, paths) and name in git.tracked and is_inside(path, paths):
            tree.missing.append(Missing(path, Why.ABSENT))
    tree.missing += _unchecked(tree, prefix, links, paths)
    return git.head, dirty


def _unchecked(tree: LocalTree, prefix: str, links: Iterable[str], paths: tuple[str, ...]) -> list[Missing]:
    """Return the submodules, by the index (`links`) and by .gitmodules, that have no files."""
    modules = tree.folder / prefix / ".gitmodules"
    named = MODULE_PATH.findall(modules.read_text(errors="surrogateescape")) if modules.is_file() else []
    places = (f"{prefix}{name}" for name in sorted({*links, *named}) if not is_bad_path(name))
    return [Missing(p, Why.UNCHECKED) for p in places if leads_to(p, paths) and not _has_files(tree.folder / p)]


def _has_files(place: Path) -> bool:
    return place.is_file() or (place.is_dir() and any(place.iterdir()))
