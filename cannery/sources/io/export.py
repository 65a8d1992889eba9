"""Read the tree of a commit with its submodules, write a tree as a reproducible tar, and read such a tar.

Git's objects are copied byte by byte: attributes and filters are ignored. A tar is sorted, with owner 0, one mtime, and
the modes 0644 and 0755.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, NetworkError, UnableError
from cannery.sources.io.git import GitReadError, read
from cannery.sources.plan import (
    Kind,
    Missing,
    Why,
    is_bad_path,
    is_inside,
    is_lfs_pointer,
    leads_out,
    leads_to,
    unmatched,
    with_folders,
)
from cannery.sources.requires import is_requirement_file
from cannery.util.io.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cannery.sources.io.git import BlobReader
    from cannery.sources.io.git_cache import Found
    from cannery.sources.plan import SourceRequest

    Obtain = Callable[[str, str, Mapping[str, str]], Found]

GITLINK = "160000"


class DamagedError(UnableError):
    """A repository of the git cache lost a part of a commit that was complete; `where` names it."""


@dataclass(frozen=True)
class Blob:
    """An entry of a commit's tree: its kind, and the object with its content in a repository."""

    kind: Kind
    oid: str
    found: Found


@dataclass
class Tree:
    """A commit's tree while it is read: blobs by path, missing paths, and paths of submodules (`met`)."""

    request: SourceRequest
    blobs: dict[str, Blob] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    met: set[str] = field(default_factory=set)


def gather(request: SourceRequest, found: Found, obtain: Obtain, env: Mapping[str, str]) -> Tree:
    """Return the tree of `found`; `obtain` (what, commit, hosts) gets its submodules. File contents are not read.

    Raises `FindingsError` for a tree that differs from the request or has paths outside itself, `NetworkError` for
    folders that a mirror does not have, `DamagedError` for folders that the cache lost.
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
    tree.blobs = {path: blob for path, blob in tree.blobs.items() if is_inside(path, request.paths)}
    return tree


def _add(tree: Tree, found: Found, prefix: str, obtain: Obtain, env: Mapping[str, str]) -> None:
    request = tree.request
    for mode, oid, name in _listed(request, found, env):
        path = prefix + name
        if is_bad_path(path):
            raise FindingsError(f"{request.name}: the tree of {found.commit} has the bad path {path!r}")
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
    """Return (mode, object, path) of every entry; modes of old trees (100664) become what git checks out."""
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


def read_blob(tree: Tree, path: str, reader: BlobReader) -> bytes:
    """Return the content of an entry.

    Raises `DamagedError` if it is lost or damaged in the cache, `NetworkError` if a mirror does not have it.
    """
    blob = tree.blobs[path]
    content = reader.read(blob.found.git_dir, blob.oid)
    if content is None:
        raise _gap(tree.request, blob.found, f"{path} is not in it, or is damaged")
    return content


def _gap(request: SourceRequest, found: Found, what: str) -> DamagedError | NetworkError:
    """Return the error for a missing part of a commit: `DamagedError` if the repository once had all of it."""
    text = f"{request.name}: the repository is missing a part of {found.commit}: {what}"
    if found.is_whole:
        return DamagedError(text, where=str(found.git_dir), hint="delete that folder; the next run fetches it again")
    hint = (
        "it may be a partial clone or a snapshot: mirror the repository whole, name what is needed of it as `paths` in "
        f"images/components/{request.name}.yaml, or leave GIT_MIRROR (--git-mirror) out to fetch it"
    )
    return NetworkError(text, where=str(found.git_dir), hint=hint)


@dataclass(frozen=True)
class Written:
    """A tar that was written: its sha256, the digest of its content without times, and its LFS pointers."""

    sha256: str
    tree: str
    pointers: tuple[Missing, ...]


def write_tar(
    target: Path, name: str, entries: Mapping[str, Kind], content: Callable[[str], bytes], epoch: int
) -> Written:
    """Write the `entries` of source `name` to `target`; `content` (of a link: its target) is called once for each.

    Raises `FindingsError` for a symlink that leads out of the tree, and whatever `content` raises.
    """
    links = {path: content(path) for path, kind in entries.items() if kind is Kind.LINK}
    targets = {path: os.fsdecode(link) for path, link in links.items()}
    for path in sorted(links):
        if leads_out(path, targets):
            raise FindingsError(
                f"{name}: the symlink {path!r} leads out of the tree, to {targets[path]!r}",
                hint="an image has nothing there; leave it out of the tree, or let git ignore it",
            )
    tree = hashlib.sha256()
    pointers: list[Missing] = []
    # GNU's format keeps the bytes of any name, and every tar program reads it.
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for path in with_folders(entries):
            kind = entries.get(path)
            info = _info(path, kind, epoch)
            if kind is None:
                archive.addfile(info)
                continue
            data = links[path] if kind is Kind.LINK else content(path)
            tree.update(f"{kind} {hashlib.sha256(data).hexdigest()} ".encode() + os.fsencode(path) + b"\0")
            if kind is Kind.LINK:
                info.linkname = targets[path]
                archive.addfile(info)
                continue
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
            if is_lfs_pointer(data):
                pointers.append(Missing(path, Why.LFS))
    return Written(sha256_file(target), tree.hexdigest(), tuple(pointers))


def _info(path: str, kind: Kind | None, epoch: int) -> tarfile.TarInfo:
    """Return the header of an entry; `kind` None is a folder."""
    info = tarfile.TarInfo(path)
    info.mtime = epoch
    info.mode = 0o644 if kind is Kind.FILE else 0o755
    if kind is None:
        info.type = tarfile.DIRTYPE
    elif kind is Kind.LINK:
        info.type, info.mode = tarfile.SYMTYPE, 0o777
    return info


# What tarfile and gzip raise for a truncated or damaged archive.
_UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError)


class TreeReader:
    """The regular files of one archive by their path in the tree, without the top folder of a source distribution.

    Raises `UnableError` for an archive that cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._archive = tarfile.open(file)  # noqa: SIM115 - close() does
            names = [member.name for member in self._archive if member.isreg()]
            links = [member.name for member in self._archive if member.issym() or member.islnk()]
        except _UNREADABLE as error:
            raise UnableError(f"{file.name} cannot be read: {error}", where=str(file.parent)) from error
        # As templates/tools/common/hook.py unpacks it: only a compressed archive is a source distribution.
        is_sdist = file.suffix != ".tar" and len({name.split("/")[0] for name in names}) == 1
        self._names = {name.partition("/")[2] if is_sdist else name: name for name in names}
        self.links = frozenset(name.partition("/")[2] if is_sdist else name for name in links)

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files."""
        return tuple(self._names)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        member = self._names.get(path)
        if member is None:
            return None
        try:
            stream = self._archive.extractfile(member)
            return stream.read() if stream else None
        except _UNREADABLE as error:
            raise UnableError(f"{self._file.name} cannot be read: {error}", where=str(self._file.parent)) from error

    def is_executable(self, path: str) -> bool:
        """Whether a file is executable; False if it does not exist."""
        member = self._names.get(path)
        return member is not None and bool(self._archive.getmember(member).mode & 0o100)

    def trouble(self, path: str) -> str:
        """Return why a file cannot be written at `path`, or "": a symlink on the way, or a file or folder of that name.

        Writing through a symlink would change another file.
        """
        parts = path.split("/")
        ways = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        link = next((way for way in ways if way in self.links), None)
        if link is not None:
            return f"{link} is a symlink in the tree"
        file = next((way for way in ways[:-1] if way in self._names), None)
        if file is not None:
            return f"{file} is a file in the tree, and no folder"
        return f"{path} is a folder in the tree" if any(name.startswith(f"{path}/") for name in self._names) else ""


def requirement_texts(tree: TreeReader) -> dict[str, str]:
    """Return the files of a tree that may list requirements: {path: text}."""
    wanted = [path for path in tree.paths if is_requirement_file(path)]
    return {path: (tree.read(path) or b"").decode("utf-8", "replace") for path in wanted}
