"""A source as a tar that is the same for the same content: sorted, owner 0, one mtime, modes 0644 and 0755."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.errors import FindingsError
from cannery.sources.plan import Missing, Why, is_lfs_pointer, leads_out, with_folders
from cannery.util.io.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Kind(StrEnum):
    """What an entry of a tree is, in git's own words, which are part of the tree's digest."""

    FILE = "100644"
    EXECUTABLE = "100755"
    LINK = "120000"


@dataclass(frozen=True)
class Written:
    """A tar that was written: its sha256, the digest of its content apart from times, and what are LFS pointers."""

    sha256: str
    tree: str
    pointers: tuple[Missing, ...]


def write_tar(
    target: Path, name: str, entries: Mapping[str, Kind], content: Callable[[str], bytes], epoch: int
) -> Written:
    """Write the `entries` of source `name` with their `content` (of a link: its target), each read once, to `target`.

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
    # GNU's format keeps the bytes of any name, and every tar reads it.
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
    """The header of an entry; `kind` None is a folder."""
    info = tarfile.TarInfo(path)
    info.mtime = epoch
    info.mode = 0o644 if kind is Kind.FILE else 0o755
    if kind is None:
        info.type = tarfile.DIRTYPE
    elif kind is Kind.LINK:
        info.type, info.mode = tarfile.SYMTYPE, 0o777
    return info
