"""Writes a folder of this host as a layer, with the owners, permissions and times on disk.

In the upper folder of an overlay mount, a device 0:0 hides a path of lower layers, and a folder marked as opaque hides
everything below it. In a layer, both become whiteouts (OCI image specification).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.assemble.io.layer import write_entries
from cannery.assemble.io.sink import BLOCK
from cannery.assemble.tar import Entry, Kind, order
from cannery.assemble.trial import OPAQUE, whiteout
from cannery.errors import UnableError
from cannery.util.io.namespace import opaque_attribute

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from cannery.assemble.content import Made
    from cannery.assemble.io.sink import TarSink
    from cannery.assemble.io.tree import Leaf


def write_changes(upper: Path, lowers: Collection[Path], left_out: Collection[str], sink: TarSink) -> Made:
    """Write the upper folder of an overlay on `lowers` as the tar of a layer.

    The paths in `left_out`, and everything below them, are left out. Raises `UnableError` for a device or a pipe.
    """
    found = {path: source for path, source in _walked(upper) if not _is_below(path, left_out)}
    hidden = [whiteout(path) for path, source in found.items() if _is_gone(source)]
    # The kernel marks every new folder, even if it hides nothing in a lower layer.
    opaque = [path for path, source in found.items() if _is_opaque(source)]
    hidden += [f"{path}/{OPAQUE}" for path in opaque if any(os.path.lexists(f"{lower}{path}") for lower in lowers)]
    leaves = _leaves({path: source for path, source in found.items() if not _is_gone(source)})
    # A whiteout needs no time.
    leaves |= {path: (Entry(path, Kind.FILE, 0o600, mtime=0), tuple) for path in hidden}
    return _written(leaves, sink)


def write_folder(folder: Path, sink: TarSink) -> Made:
    """Write a folder as the tar of a layer; the folder becomes `/`. Raises like `write_changes`."""
    return _written(_leaves(dict(_walked(folder))), sink)


def _walked(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (path in the layer, path on disk) of everything below a folder, parents first."""
    for parent, folders, files in os.walk(folder):
        inner = "" if parent == str(folder) else f"/{os.path.relpath(parent, folder)}"
        for name in (*folders, *files):
            yield f"{inner}/{name}", Path(parent, name)


def _is_below(path: str, folders: Collection[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _is_gone(source: Path) -> bool:
    info = source.lstat()
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def _is_opaque(source: Path) -> bool:
    return source.is_dir() and not source.is_symlink() and _attribute(source, opaque_attribute()) == b"y"


def _attribute(source: Path, name: str) -> bytes:
    with suppress(OSError):
        return os.getxattr(source, name, follow_symlinks=False)
    return b""


def _leaves(found: Mapping[str, Path]) -> dict[str, Leaf]:
    """Return {path: entry and content}. The second and later names of one file are hard links to the first."""
    leaves: dict[str, Leaf] = {}
    first: dict[tuple[int, int], str] = {}
    for path in sorted(found, key=order):
        entry = _entry(path, found[path])
        if entry is not None and entry.kind is Kind.FILE:
            info = found[path].lstat()
            name = first.setdefault((info.st_dev, info.st_ino), path)
            entry = entry if name == path else entry._replace(kind=Kind.HARD_LINK, size=0, link=name.lstrip("/"))
        if entry is not None:
            leaves[path] = entry, partial(_blocks, found[path])
    return leaves


def _entry(path: str, source: Path) -> Entry | None:
    """Return the entry of a file, folder or link; None for a socket, which layers leave out."""
    info = source.lstat()
    kinds = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.FOLDER, stat.S_IFLNK: Kind.LINK}
    kind = kinds.get(stat.S_IFMT(info.st_mode))
    if kind is None and stat.S_ISSOCK(info.st_mode):
        return None
    if kind is None:
        raise UnableError(f"{path} is a device or a pipe: no layer of ours has one")
    return Entry(
        path,
        kind,
        stat.S_IMODE(info.st_mode),
        size=info.st_size if kind is Kind.FILE else 0,
        link=str(source.readlink()) if kind is Kind.LINK else "",
        owner=(info.st_uid, info.st_gid),
        mtime=info.st_mtime_ns // 10**9,
        capability=_attribute(source, "security.capability") if kind is Kind.FILE else b"",
    )


def _blocks(source: Path) -> Iterator[bytes]:
    with source.open("rb") as stream:
        while block := stream.read(BLOCK):
            yield block


def _written(leaves: Mapping[str, Leaf], sink: TarSink) -> Made:
    entries = [leaves[path][0] for path in sorted(leaves, key=order)]
    contents = {path: blocks for path, (entry, blocks) in leaves.items() if entry.kind is Kind.FILE}
    return write_entries(entries, contents, 0, sink)
