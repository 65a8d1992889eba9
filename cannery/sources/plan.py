"""Sources as values: which tree a build wants and from where, and what is missing in a tree that was fetched."""

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
# A pointer is three short lines; what is longer is a file that talks about one.
LFS_LONGEST = 1024


class Kind(StrEnum):
    """What an entry of a tree is, in git's own words, which are part of the tree's digest."""

    FILE = "100644"
    EXECUTABLE = "100755"
    LINK = "120000"


class Why(StrEnum):
    """Why a path of a tree is missing in its tar, or is only a pointer there."""

    LFS = "Git LFS pointer, not the file itself"
    SUBMODULE = "a submodule whose commit no component names"
    UNCHECKED = "a submodule that is not checked out (`git submodule update --init --recursive` in that tree)"
    ABSENT = "tracked, but not in the working tree"


@dataclass(frozen=True, order=True)
class Missing:
    """A path of a tree, and why it is not in the tar as it should be."""

    path: str
    why: Why

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@dataclass(frozen=True)
class SourceSubmodule:
    """A submodule: `hosts` as in `SourceRequest`, and the commit that its place in the tree must name.

    `added`: there is no such place in the tree.
    """

    hosts: Mapping[str, str]
    commit: str
    added: bool = False


@dataclass(frozen=True)
class SourceRequest:
    """A tree to fetch.

    `hosts` is {host: `owner/name` there} in the order of trying; `submodules` is {path in the tree: submodule}. `paths`
    are the files and folders that are exported, () for all. `local` is a folder of the user's that is used instead of
    the `commit`. `epoch` (seconds) becomes the mtime of everything. Raises `UsageError` for a request that names
    neither. The catalog's models hold commits and repositories to their form.
    """

    name: str
    commit: str | None
    hosts: Mapping[str, str]
    epoch: int
    submodules: Mapping[str, SourceSubmodule] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    local: PurePath | None = None
    # The release on the package index that may be taken in the commit's place, "" where none is known.
    release: str = ""

    def __post_init__(self) -> None:
        if self.local is None and self.commit is None:
            raise UsageError(f"{self.name}: neither a commit nor a local tree is named")


def source_request(
    chosen: ChosenSource, known: Iterable[str], *, epoch: int, local: PurePath | None = None
) -> SourceRequest:
    """Return the request for a source component that is pinned to a commit.

    `known` are the names of images/hosts.yaml: a submodule's entry names no host, so those of its component are tried
    first and then the rest. Raises `UsageError` where the component is not pinned to a commit and no `local` is given.
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
    """Whether something of `paths` may be below the folder `path`."""
    return is_inside(path, paths) or any(one.startswith(f"{path}/") for one in paths)


def unmatched(paths: tuple[str, ...], found: Iterable[str]) -> tuple[str, ...]:
    """Return those of `paths` that none of the `found` paths is or is below."""
    names = tuple(found)
    return tuple(one for one in paths if not any(is_inside(name, (one,)) for name in names))


def is_bad_path(path: str) -> bool:
    """Whether a path of a tree would be written outside it, or over a repository's own files."""
    return any(part in {"", ".", ".."} or part.lower() == ".git" for part in path.split("/"))


def with_folders(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths and all folders above them, sorted, each folder before what is in it."""
    found: set[str] = set()
    for path in paths:
        name = path
        while name and name not in found:
            found.add(name)
            name = name.rpartition("/")[0]
    return tuple(sorted(found))


def leads_out(path: str, links: Mapping[str, str]) -> bool:
    """Whether the symlink at `path` leads out of the tree; `links` is {path: target} of every symlink of the tree.

    One that leads nowhere, or in a circle, does not lead out.
    """
    # The tree is in a folder whose name no link of it has.
    top = "/\0/"
    found = followed(top + path, lambda place: links.get(place.removeprefix(top)) if place.startswith(top) else None)
    return found is not None and not f"{found}/".startswith(top)


def is_lfs_pointer(content: bytes) -> bool:
    """Whether a file is what Git LFS puts into a repository in place of the file itself."""
    return len(content) <= LFS_LONGEST and content.startswith(LFS_POINTER)
