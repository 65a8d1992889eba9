"""A git work tree as it is: its HEAD, what git tracks, and which files differ from HEAD.

A repository's configuration names programs that git starts: filters, text converters, monitors of files, hooks. No
command that starts one is used here, since a tree may be somebody else's: files are compared by the names of git's
objects, byte by byte. What git would convert (line ends, LFS) therefore differs, as it does in an image.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from cannery.sources.io.git import GitReadError, attempt, read
from cannery.sources.io.tar import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

GITLINK = "160000"
SHA256_DIGITS = 64


@dataclass(frozen=True)
class WorkTree:
    """A work tree that was read. `head` is None where nothing was committed yet.

    `at_head` and `tracked` (the index) are {path: (git's mode, object)}; `untracked` are paths that nothing ignores. Of
    a repository inside it that git does not track the path ends in a slash.
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
        """Whether it differs from HEAD, submodules apart. Raises `OSError` for a file that cannot be read."""
        return bool(self.head is None or self.untracked or self.tracked != self.at_head or self.differing())

    def differing(self) -> tuple[str, ...]:
        """Return the tracked files, sorted, that are not on disk as HEAD has them; submodules apart."""
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
    """Whether a folder above `path`, below `folder`, is a symlink: what is behind it is another tree's."""
    return any((folder / above).is_symlink() for above in list(PurePosixPath(path).parents)[:-1])


def kind_of(folder: Path, path: str) -> Kind | None:
    """Return what is at `path` below `folder`; None for neither file nor symlink, and for what is behind a symlink."""
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

    Raises `GitReadError` for a repository that git cannot read, `UnableError` when there is no git.
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
    """Return {path: (mode, object)} of lines that have the mode first, and the object at `position`."""
    found = {}
    for line in listed.split(b"\0")[:-1]:
        head, _, name = line.partition(b"\t")
        words = head.decode().split(" ")
        found[os.fsdecode(name)] = (words[0], words[position])
    return found


def head_blob(tree: WorkTree, path: str, env: Mapping[str, str]) -> bytes | None:
    """Return the content of a file at HEAD, None where it has none."""
    found = tree.at_head.get(path)
    return read((f"--git-dir={tree.folder.absolute() / '.git'}", "cat-file", "blob", found[1]), env) if found else None


def tree_root(folder: Path) -> Path:
    """Return the root of the work tree that `folder` is in. Raises `GitReadError` when it is in none."""
    if not folder.is_dir():
        raise GitReadError(f"fatal: cannot change to '{folder}': No such file or directory")
    start = folder.resolve()
    found = next((place for place in (start, *start.parents) if (place / ".git").exists()), None)
    if found is None:
        raise GitReadError("fatal: not a git repository (or any of the parent directories): .git")
    return found
