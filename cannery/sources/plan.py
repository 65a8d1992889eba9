"""Sources as values: the tree that a build needs and its hosts, and what is missing in a fetched tree."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.util.links import followed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import PurePath

    from cannery.recipe.recipe import ChosenSource

COMMIT = re.compile(r"[0-9a-f]{40}")
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
# A pointer has three short lines; a longer file is not a pointer.
LFS_LONGEST = 1024


class Kind(StrEnum):
    """The kind of an entry of a tree, as git's mode, which is part of the tree's digest."""

    FILE = "100644"
    EXECUTABLE = "100755"
    LINK = "120000"


class Why(StrEnum):
    """Why a path of a tree is missing in its tar, or only a pointer in it."""

    LFS = "Git LFS pointer, not the file itself"
    SUBMODULE = "a submodule whose commit no component names"
    UNCHECKED = "a submodule that is not checked out (`git submodule update --init --recursive` in that tree)"
    ABSENT = "tracked, but not in the working tree"


@dataclass(frozen=True, order=True)
class Missing:
    """A path that is not in a tree's tar as it should be, and why."""

    path: str
    why: Why

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@dataclass(frozen=True)
class SourceSubmodule:
    """A submodule: `hosts` as in `SourceRequest`, and the commit that the tree must record for it.

    With `added` the tree does not record it.
    """

    hosts: Mapping[str, str]
    commit: str
    added: bool = False


@dataclass(frozen=True)
class SourceRequest:
    """A tree to fetch.

    `hosts` is {host: `owner/name` on it} in the order in which they are tried; `submodules` is {path: submodule}.
    `paths` are the exported files and folders, () for all. `local` is a folder of the user that is used instead of
    `commit`. `epoch` (seconds) becomes every mtime. Raises `UsageError` if neither `commit` nor `local` is given.
    """

    name: str
    commit: str | None
    hosts: Mapping[str, str]
    epoch: int
    submodules: Mapping[str, SourceSubmodule] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    local: PurePath | None = None
    # The release on the package index that may replace the commit; "" if none is known.
    release: str = ""

    def __post_init__(self) -> None:
        if self.local is None and self.commit is None:
            raise UsageError(f"{self.name}: neither a commit nor a local tree is named")


def source_request(
    chosen: ChosenSource, known: Iterable[str], *, epoch: int, local: PurePath | None = None
) -> SourceRequest:
    """Return the request for a source component that is pinned to a commit.

    `known` are the names of images/hosts.yaml. A submodule's entry has no host: its component's hosts are tried first,
    then the others. Raises `UsageError` if the component is not pinned to a commit and `local` is not given.
    """
    own = chosen.component.hosts
    order = [*own, *(host for host in known if host not in own)]
    submodules = chosen.known.submodules if chosen.known is not None and chosen.commit is not None else {}
    revision = chosen.component.revisions.get(chosen.commit or "")
    return SourceRequest(
        name=chosen.name,
        commit=chosen.commit,
        hosts=own,
        epoch=epoch,
        submodules={
            path: SourceSubmodule(dict.fromkeys(order, sub.repository), sub.commit, sub.added)
            for path, sub in submodules.items()
        },
        paths=chosen.component.paths,
        local=local,
        release=(revision.release if revision is not None else None) or "",
    )


def is_inside(path: str, paths: tuple[str, ...]) -> bool:
    """Whether `path` is one of `paths` or below one; always true without `paths`."""
    return not paths or any(path == one or path.startswith(f"{one}/") for one in paths)


def leads_to(path: str, paths: tuple[str, ...]) -> bool:
    """Whether one of `paths` may be in the folder `path`."""
    return is_inside(path, paths) or any(one.startswith(f"{path}/") for one in paths)


def unmatched(paths: tuple[str, ...], found: Iterable[str]) -> tuple[str, ...]:
    """Return those of `paths` that match none of the `found` paths and contain none."""
    names = tuple(found)
    return tuple(one for one in paths if not any(is_inside(name, (one,)) for name in names))


def is_bad_path(path: str) -> bool:
    """Whether a path would be written outside the tree, or into a `.git` folder."""
    return any(part in {"", ".", ".."} or part.lower() == ".git" for part in path.split("/"))


def with_folders(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths and all folders above them, sorted, each folder before its content."""
    found: set[str] = set()
    for path in paths:
        name = path
        while name and name not in found:
            found.add(name)
            name = name.rpartition("/")[0]
    return tuple(sorted(found))


def leads_out(path: str, links: Mapping[str, str]) -> bool:
    """Whether the symlink at `path` leads out of the tree; `links` is {path: target} of all symlinks of the tree.

    A dangling or circular link does not lead out.
    """
    # A name for the tree's folder that cannot be in a link.
    top = "/\0/"
    found = followed(top + path, lambda place: links.get(place.removeprefix(top)) if place.startswith(top) else None)
    return found is not None and not f"{found}/".startswith(top)


def is_lfs_pointer(content: bytes) -> bool:
    """Whether a file is a Git LFS pointer instead of the file itself."""
    return len(content) <= LFS_LONGEST and content.startswith(LFS_POINTER)
