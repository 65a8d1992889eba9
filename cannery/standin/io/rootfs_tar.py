"""A folder that holds a fresh Debian system, as a tar that is the same for the same packages.

Logs, caches, lists, backups, and the host's name and resolver are left out; times and the date in
/etc/shadow are fixed; the mirror's address is gone.
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
import stat
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cannery.catalog.catalog import StandIn

# Folders that come in empty, with the folders below them; debconf needs its answers when more packages come.
EMPTIED = ("dev", "proc", "run", "sys", "tmp", "var/cache", "var/lib/apt/lists", "var/log", "var/tmp")
NOT_EMPTIED = re.compile(r"var/cache/debconf/(?:config|passwords|templates)\.dat")
# Of these not even the folders below come in.
BARE = ("dev", "proc", "run", "sys", "tmp", "var/tmp")
DROPPED = re.compile(
    r"etc/(?:hostname|resolv\.conf|machine-id|\.pwd\.lock|(?:passwd|group|shadow|gshadow|subuid|subgid)-)"
    r"|var/lib/dpkg/(?:.*-old|(?:lock|triggers/Lock).*)|debootstrap(?:/.*)?|root/\.cache(?:/.*)?"
)
SOURCES = "# Emptied: the stand-in base names no mirror. Builds bring the host's own sources.\n"
DAY = 86400


def write_tar(tree: Path, target: Path, data: StandIn) -> None:
    """Write `tree` to `target` as an uncompressed tar: sorted, numeric owners, one mtime, hard links kept."""
    seen: dict[tuple[int, int], str] = {}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in _walk(tree):
            if _left_out(name, data):
                continue
            status = path.lstat()
            info = _info(name, status, data.epoch)
            if info is None:
                continue
            if stat.S_ISLNK(status.st_mode):
                info.linkname = str(path.readlink())
            first = seen.setdefault((status.st_dev, status.st_ino), name)
            if info.isreg() and first != name:
                info.type, info.linkname = tarfile.LNKTYPE, first
            if not info.isreg():
                archive.addfile(info)
                continue
            changed = _changed(name, path, data.epoch)
            if changed is not None:
                info.size = len(changed)
                archive.addfile(info, io.BytesIO(changed))
                continue
            info.size = status.st_size
            with path.open("rb") as stream:
                archive.addfile(info, stream)
    with target.open("rb") as written:
        os.fsync(written.fileno())  # it is renamed next, and must be whole then


def _walk(tree: Path) -> Iterator[tuple[str, Path]]:
    """Every file and folder below `tree` with its relative name, sorted, a folder before what is in it."""
    with os.scandir(tree) as found:
        children = sorted(found, key=lambda child: child.name)
    for child in children:
        path = tree / child.name
        yield child.name, path
        if child.is_dir(follow_symlinks=False):
            yield from ((f"{child.name}/{name}", below) for name, below in _walk(path))


def _left_out(name: str, data: StandIn) -> bool:
    return _is_dropped(name) or (_matches(name, data.leave_out) and not _leads_to_kept(name, data.keep))


def _is_dropped(name: str) -> bool:
    return bool(DROPPED.fullmatch(name)) or any(name.startswith(f"{folder}/") for folder in BARE)


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(f"/{name}", glob) for glob in globs)


def _leads_to_kept(name: str, keep: tuple[str, ...]) -> bool:
    """Whether `name` is kept, or a folder in which something kept may be: a glob's first parts match it."""
    parts = f"/{name}".split("/")
    return any(fnmatch.fnmatchcase("/".join(parts), "/".join(glob.split("/")[: len(parts)])) for glob in keep)


def _info(name: str, status: os.stat_result, epoch: int) -> tarfile.TarInfo | None:
    """Header of one entry, or None for what an image does not have (sockets, devices, contents of emptied folders)."""
    info = tarfile.TarInfo(name)
    info.mtime, info.uid, info.gid = epoch, status.st_uid, status.st_gid
    info.mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
        return info
    if any(name.startswith(f"{folder}/") for folder in EMPTIED) and not NOT_EMPTIED.fullmatch(name):
        return None
    if stat.S_ISLNK(status.st_mode):
        info.type = tarfile.SYMTYPE
        return info
    return info if stat.S_ISREG(status.st_mode) else None


def _changed(name: str, path: Path, epoch: int) -> bytes | None:
    if name == "etc/apt/sources.list":
        return SOURCES.encode()
    if name == "etc/shadow":
        return "".join(f"{_dated(line, epoch)}\n" for line in path.read_text().splitlines()).encode()
    return None


def _dated(line: str, epoch: int) -> str:
    """A line of shadow(5) with the day of the last password change fixed."""
    fields = line.split(":")
    if len(fields) > 2 and fields[2]:
        fields[2] = str(epoch // DAY)
    return ":".join(fields)
