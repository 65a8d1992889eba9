"""A user's own tree on disk: its HEAD, the files that git tracks or does not ignore, and those that differ from HEAD.

A repository's configuration may name programs that git starts: filters, text converters, file monitors, hooks. The tree
may be somebody else's, so no command that starts one is used: files are compared by the hash of their bytes. Files that
git would convert (line ends, LFS) therefore differ, as they do in an image.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from cannery.errors import UnableError, UsageError
from cannery.sources.io.git import GitReadError, attempt, read
from cannery.sources.plan import Kind, Missing, Why, is_bad_path, is_inside, leads_to, unmatched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

GITLINK = "160000"
SHA256_DIGITS = 64
# Names that are skipped in a folder without git.
LEFT_OUT = frozenset({".git", "__pycache__"})
# A line of .gitmodules.
MODULE_PATH = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class WorkTree:
    """A git work tree. `head` is None before the first commit.

    `at_head` and `tracked` (the index) are {path: (git's mode, object)}; `untracked` are paths that are not ignored.
    The path of an untracked repository inside it ends in a slash.
    """

    folder: Path
    head: str | None
    at_head: Mapping[str, tuple[str, str]]
    tracked: Mapping[str, tuple[str, str]]
    untracked: tuple[str, ...]

    @property
    def submodules(self) -> dict[str, str]:
        """{path: commit} of the submodules in the index."""
        return {path: oid for path, (mode, oid) in self.tracked.items() if mode == GITLINK}

    @property
    def is_changed(self) -> bool:
        """Whether it differs from HEAD, without submodules. Raises `OSError` for a file that cannot be read."""
        return bool(self.head is None or self.untracked or self.tracked != self.at_head or self.differing())

    def differing(self) -> tuple[str, ...]:
        """Return the tracked files, sorted, that differ from HEAD on disk; without submodules."""
        paths = sorted({*self.at_head, *self.tracked} - {*self.submodules})
        return tuple(path for path in paths if self.at_head.get(path) != self._on_disk(path))

    def _on_disk(self, path: str) -> tuple[str, str] | None:
        place = self.folder / path
        kind = kind_of(self.folder, path)
        if kind is None:
            return None
        data = os.fsencode(place.readlink()) if kind is Kind.LINK else place.read_bytes()
        algorithm = "sha256" if len(self.head or "") == SHA256_DIGITS else "sha1"
        name = hashlib.new(algorithm, b"blob %d\0" % len(data), usedforsecurity=False)
        name.update(data)
        return kind, name.hexdigest()


def is_behind_link(folder: Path, path: str) -> bool:
    """Whether a folder between `folder` and `path` is a symlink: the path is then not part of the tree."""
    return any((folder / above).is_symlink() for above in list(PurePosixPath(path).parents)[:-1])


def kind_of(folder: Path, path: str) -> Kind | None:
    """Return the kind of `path` below `folder`; None if it is no file or symlink, or is behind a symlink."""
    if is_behind_link(folder, path):
        return None
    try:
        mode = (folder / path).lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(mode):
        return Kind.LINK
    return (Kind.EXECUTABLE if mode & 0o100 else Kind.FILE) if stat.S_ISREG(mode) else None


def read_work_tree(folder: Path, env: Mapping[str, str]) -> WorkTree:
    """Read the work tree with the root `folder`, which has a `.git`. Nothing is written.

    Raises `GitReadError` for a repository that git cannot read, `UnableError` if git is not installed.
    """
    git_dir = folder / ".git"
    if pipes := [path.name for path in (git_dir.iterdir() if git_dir.is_dir() else ()) if path.is_fifo()]:
        raise GitReadError(f"fatal: .git/{pipes[0]} is a pipe")  # git would wait for it
    place = ("-C", folder, f"--git-dir={folder.absolute() / '.git'}", f"--work-tree={folder.absolute()}")
    staged = read((*place, "ls-files", "-z", "--stage"), env)
    others = read((*place, "ls-files", "-z", "--others", "--exclude-standard"), env)
    head = attempt((*place, "rev-parse", "--quiet", "--verify", "HEAD"), env).stdout.decode().strip() or None
    listed = read((*place, "ls-tree", "-r", "-z", "--full-tree", head), env) if head else b""
    return WorkTree(
        folder=folder,
        head=head,
        at_head=_entries(listed, 2),
        tracked=_entries(staged, 1),
        untracked=tuple(os.fsdecode(name) for name in others.split(b"\0")[:-1]),
    )


def _entries(listed: bytes, position: int) -> dict[str, tuple[str, str]]:
    """Return {path: (mode, object)} of lines with the mode as first word and the object at `position`."""
    found = {}
    for line in listed.split(b"\0")[:-1]:
        head, _, name = line.partition(b"\t")
        words = head.decode().split(" ")
        found[os.fsdecode(name)] = (words[0], words[position])
    return found


def head_blob(tree: WorkTree, path: str, env: Mapping[str, str]) -> bytes | None:
    """Return the content of a file at HEAD; None if HEAD does not have it."""
    found = tree.at_head.get(path)
    return read((f"--git-dir={tree.folder.absolute() / '.git'}", "cat-file", "blob", found[1]), env) if found else None


def tree_root(folder: Path) -> Path:
    """Return the root of the work tree that contains `folder`. Raises `GitReadError` if there is none."""
    if not folder.is_dir():
        raise GitReadError(f"fatal: cannot change to '{folder}': No such file or directory")
    start = folder.resolve()
    found = next((place for place in (start, *start.parents) if (place / ".git").exists()), None)
    if found is None:
        raise GitReadError("fatal: not a git repository (or any of the parent directories): .git")
    return found


@dataclass
class OwnTree:
    """A tree on disk: entries by path, the commit of HEAD (None without one), and whether the tree differs from it."""

    folder: Path
    entries: dict[str, Kind] = field(default_factory=dict)
    commit: str | None = None
    dirty: bool = False
    missing: list[Missing] = field(default_factory=list)

    def read(self, path: str) -> bytes:
        """Return the content of an entry (of a link: its target). Raises `UnableError` if it cannot be read."""
        place = self.folder / path
        try:
            return os.fsencode(place.readlink()) if self.entries[path] is Kind.LINK else place.read_bytes()
        except OSError as error:
            hint = "run it again when nothing writes to that tree"
            raise UnableError(f"cannot be read: {error.strerror}", where=str(place), hint=hint) from error


def local_tree(name: str, folder: Path, paths: tuple[str, ...], env: Mapping[str, str]) -> OwnTree:
    """Return the tree in `folder` for source `name`; if `paths` are given, only those.

    Submodules and repositories inside it are read the same way. Of a folder without .git, all files are read except
    __pycache__ and *.pyc. Raises `UsageError` for a path that is not a folder, that git cannot read, or that lacks one
    of `paths`.
    """
    if not folder.is_dir():
        raise UsageError(f"SRC_{name}: {str(folder)!r} is not a folder", hint="name the folder of your own tree")
    tree = OwnTree(folder.absolute())
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


def _add(tree: OwnTree, path: str, paths: tuple[str, ...]) -> bool:
    """Add a file or symlink if it is in `paths`; return whether it exists. Devices, sockets and pipes are skipped."""
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
    tree: OwnTree, prefix: str, paths: tuple[str, ...], env: Mapping[str, str]
) -> tuple[str | None, bool]:
    """Add the files of the work tree at `prefix` and of those inside it; return its HEAD and whether it differs."""
    git = read_work_tree(tree.folder / prefix, env)
    dirty, links = git.is_changed, git.submodules
    for name in sorted({*git.tracked, *git.untracked}):
        # An untracked repository is listed as a folder.
        path = f"{prefix}{name}".rstrip("/")
        if (tree.folder / path / ".git").exists() and not is_behind_link(tree.folder, f"{path}/.git"):
            if leads_to(path, paths):  # submodules are read one by one
                head, is_changed = _add_repository(tree, f"{path}/", paths, env)
                dirty = dirty or is_changed or head != links.get(name, head)
        elif name not in links and not _add(tree, path, paths) and name in git.tracked and is_inside(path, paths):
            tree.missing.append(Missing(path, Why.ABSENT))
    tree.missing += _unchecked(tree, prefix, links, paths)
    return git.head, dirty


def _unchecked(tree: OwnTree, prefix: str, links: Iterable[str], paths: tuple[str, ...]) -> list[Missing]:
    """Return the submodules of the index (`links`) and of .gitmodules that have no files."""
    modules = tree.folder / prefix / ".gitmodules"
    named = MODULE_PATH.findall(modules.read_text(errors="surrogateescape")) if modules.is_file() else []
    found = []
    for path in (f"{prefix}{name}" for name in sorted({*links, *named}) if not is_bad_path(name)):
        place = tree.folder / path
        # A submodule outside `paths` is not read, since this user may not be allowed to.
        if leads_to(path, paths) and not (place.is_file() or (place.is_dir() and any(place.iterdir()))):
            found.append(Missing(path, Why.UNCHECKED))
    return found
