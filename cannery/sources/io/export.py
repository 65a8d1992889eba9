"""The tree of a commit with its submodules: git's objects byte by byte, whatever attributes and filters there are.

Content that is missing in the repository is an error where it is asked for by name, elsewhere a note.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, NetworkError, UnableError
from cannery.sources.io.git import GitReadError, read
from cannery.sources.io.git_objects import absent_objects
from cannery.sources.io.tar import Kind
from cannery.sources.plan import Missing, Why, is_bad_path, is_inside, leads_to, unmatched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cannery.sources.io.git_mirror import Found
    from cannery.sources.io.git_objects import BlobReader
    from cannery.sources.plan import SourceRequest

    Obtain = Callable[[str, str, Mapping[str, str]], Found]

GITLINK = "160000"
# Names in a message.
SHOWN = 5


class DamagedError(UnableError):
    """A repository of the git cache has lost a part of a commit that had come whole; `where` names it."""


@dataclass(frozen=True)
class Blob:
    """An entry of a commit's tree: what it is, and the object with its content in the repository that has it."""

    kind: Kind
    oid: str
    found: Found


@dataclass
class Tree:
    """A commit's tree while it is gathered: blobs by path, what is missing, submodules that were met."""

    request: SourceRequest
    blobs: dict[str, Blob] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    met: set[str] = field(default_factory=set)


def gather(request: SourceRequest, found: Found, obtain: Obtain, env: Mapping[str, str]) -> Tree:
    """Return the tree of `found`, submodules filled in by `obtain` (what, commit, hosts).

    Content outside the request's paths is looked for and not kept. Raises `FindingsError` for a tree that is not as the
    request says or that would be written outside itself, `NetworkError` for content that is asked for and not there,
    `DamagedError` for content that was there.
    """
    tree = Tree(request)
    _add(tree, found, "", obtain, env)
    for path, beside in request.submodules.items():
        if beside.added:
            if any(is_inside(one, (path,)) for one in (*tree.blobs, *tree.met)):
                raise FindingsError(f"{request.name}: the tree of {found.commit} already has {path}")
            tree.met.add(path)
            _add(tree, obtain(f"{request.name}, {path}", beside.commit, beside.hosts), f"{path}/", obtain, env)
    unused = [path for path in request.submodules if path not in tree.met and leads_to(path, request.paths)]
    absent = unmatched(request.paths, (*tree.blobs, *tree.met))
    if unused or absent:
        what = [f"no submodule at {path}" for path in unused] + [f"no {path}" for path in absent]
        raise FindingsError(f"{request.name}: the tree of {found.commit} has {', '.join(what)}")
    _look(tree, env)
    return tree


def _add(tree: Tree, found: Found, prefix: str, obtain: Obtain, env: Mapping[str, str]) -> None:
    request = tree.request
    for mode, oid, name in _listed(request, found, env):
        path = prefix + name
        if is_bad_path(path):
            raise FindingsError(f"{request.name}: the tree of {found.commit} has {path!r}, which is no path in a tree")
        if mode != GITLINK:
            tree.blobs[path] = Blob(Kind(mode), oid, found)
            continue
        if not leads_to(path, request.paths):
            continue
        wanted = request.submodules.get(path)
        tree.met.add(path)
        if wanted is None:
            tree.missing.append(Missing(path, Why.SUBMODULE))
            continue
        if wanted.commit != oid:
            raise FindingsError(
                f"{request.name}: submodule {path} is at {oid} in the tree of {found.commit}, not at {wanted.commit}",
                where=f"images/components/{request.name}.yaml",
            )
        inner = obtain(f"{request.name}, submodule {path}", wanted.commit, wanted.hosts)
        _add(tree, inner, f"{path}/", obtain, env)


def _listed(request: SourceRequest, found: Found, env: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(mode, object, path) of every entry below the root; modes of old trees (100664) as git checks them out."""
    try:
        text = read((f"--git-dir={found.git_dir}", "ls-tree", "-r", "-z", "--full-tree", found.commit), env)
    except GitReadError as error:
        raise _gap(request, found, f"its folders cannot be listed: {error}") from error
    entries = []
    for line in text.split(b"\0")[:-1]:
        head, _, name = line.partition(b"\t")
        mode, _kind, oid = head.decode().split(" ")
        if mode not in {GITLINK, Kind.LINK}:
            mode = Kind.EXECUTABLE if int(mode, 8) & 0o100 else Kind.FILE
        entries.append((mode, oid, os.fsdecode(name)))
    return entries


def _look(tree: Tree, env: Mapping[str, str]) -> None:
    """Take out the blobs that are not asked for and those that are not there."""
    request = tree.request
    trees = {blob.found for blob in tree.blobs.values()}
    absent = {(found, oid) for found in trees for oid in _absent(request, found, env)}
    gone = sorted(path for path, blob in tree.blobs.items() if (blob.found, blob.oid) in absent)
    asked = [
        path for path in gone if tree.blobs[path].found.is_whole or (request.paths and is_inside(path, request.paths))
    ]
    if asked:
        more = f" and {len(asked) - SHOWN} more" if len(asked) > SHOWN else ""
        raise _gap(request, tree.blobs[asked[0]].found, ", ".join(asked[:SHOWN]) + more)
    tree.missing += [Missing(path, Why.BLOB) for path in gone]
    left = tree.blobs.keys() - gone
    tree.blobs = {path: blob for path, blob in tree.blobs.items() if path in left and is_inside(path, request.paths)}


def _absent(request: SourceRequest, found: Found, env: Mapping[str, str]) -> set[str]:
    try:
        return absent_objects(found.git_dir, found.commit, env)
    except GitReadError as error:
        if found.is_whole:
            raise _gap(request, found, "the commit itself") from error
        raise


def read_blob(tree: Tree, path: str, reader: BlobReader) -> bytes:
    """Return the content of an entry. Raises `DamagedError` when it is damaged in the cache, else `NetworkError`."""
    blob = tree.blobs[path]
    content = reader.read(blob.found.git_dir, blob.oid)
    if content is None:
        raise _gap(tree.request, blob.found, f"{path} is damaged")
    return content


def _gap(request: SourceRequest, found: Found, what: str) -> DamagedError | NetworkError:
    """Return the error of a repository that is missing a part of a commit: damage, if it had all of it."""
    text = f"{request.name}: the repository is missing a part of {found.commit}: {what}"
    if found.is_whole:
        return DamagedError(text, where=str(found.git_dir), hint="delete that folder; the next run fetches it again")
    hint = (
        "it may be a partial clone or a snapshot; take a whole one, or leave GIT_MIRROR (--git-mirror) out to fetch it"
    )
    return NetworkError(text, where=str(found.git_dir), hint=hint)
