"""Unpacks the tar of a layer into a folder for overlay mounts. Whiteouts become those of overlayfs.

GNU tar writes the files, several times faster than Python. It refuses `..`, follows no link out of the folder, and
puts absolute paths below it. The DiffID is computed on the way.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, cast

from cannery.errors import FindingsError, UnableError
from cannery.util.io.namespace import HOW, is_in_namespace, opaque_attribute

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
COMMAND = (
    *("tar", "--extract", "--file=-", "--numeric-owner", "--same-owner", "--same-permissions"),
    *("--delay-directory-restore", "--xattrs", "--xattrs-include=security.capability", "--directory"),
)
# Errors of tar that are the disk's, not the layer's.
_OF_DISK = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)))
# One of a user namespace that does not have the owner of a file.
_OF_IDS = "Cannot change ownership"
_FEW_IDS = "this user has too few ids in /etc/subuid and /etc/subgid: give it 65536"


def unpack(blocks: Iterable[bytes], folder: Path) -> str:
    """Unpack a tar into an empty folder; return the tar's diff id.

    Raises `FindingsError` for a tar with a path or link that leads out of the folder, and for anything but a tar;
    `UnableError` if it cannot be written, and without root.
    """
    if os.geteuid() != 0:
        raise UnableError("unpacking the layers of an image needs root", hint=f"{HOW}; or use an engine")
    env = {name: value for name, value in os.environ.items() if name != "TAR_OPTIONS"} | {"LC_ALL": "C"}
    digest, begun = hashlib.sha256(), time.time() - 1  # a disk's clock may be behind
    with (
        tempfile.TemporaryFile() as words,
        # The umask is for folders that a tar does not list.
        subprocess.Popen((*COMMAND, str(folder)), stdin=subprocess.PIPE, stderr=words, env=env, umask=0o022) as process,
    ):
        into = cast("IO[bytes]", process.stdin)
        try:
            for block in blocks:
                into.write(block)
                digest.update(block)
            into.close()
        except BrokenPipeError:  # tar has ended and printed the reason
            with suppress(BrokenPipeError):
                into.close()
        except BaseException:
            process.kill()
            raise
        if process.wait():
            words.seek(0)
            lines = words.read().decode(errors="replace").strip().splitlines()
            of_disk = [line for line in lines if line.endswith(_OF_DISK)]  # may follow "Wrote only 4096 of 9040 bytes"
            reasons = of_disk or [line for line in lines if "Removing leading" not in line] or ["tar failed"]
            is_of_ids = _OF_IDS in reasons[0] and is_in_namespace()
            kind = UnableError if of_disk or is_of_ids else FindingsError
            hint = _FEW_IDS if is_of_ids else ""
            raise kind(f"a layer cannot be unpacked: {reasons[0]}", where=str(folder), hint=hint)
    try:
        _finish(folder, begun)
    except OSError as error:
        what = f"this disk does not keep what a layer removes: {error.strerror}"
        raise UnableError(what, where=str(folder), hint="let CANNERY_CACHE be on ext4 or xfs") from error
    return f"sha256:{digest.hexdigest()}"


def _finish(folder: Path, begun: float) -> None:
    """Turn whiteouts into those of overlayfs, and remove devices: a sandbox has its own.

    Folders that the tar does not list get the time 0. With the current time, they would look like changes of a step.
    """
    status = folder.stat()
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        path = folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            _finish(path, begun)
        elif entry.name.startswith(WHITEOUT):
            path.unlink()
            _hide(path)
        elif not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
            mode = path.lstat().st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                path.unlink()
    time_of = 0 if status.st_mtime > begun else status.st_mtime_ns
    os.utime(folder, ns=(time_of, time_of))


def _hide(path: Path) -> None:
    """Hide a path of lower layers; `path` is the whiteout."""
    if path.name == OPAQUE:
        os.setxattr(path.parent, opaque_attribute(), b"y")
    elif not path.name.startswith(WHITEOUT * 2):  # or it is aufs's own file
        hidden = path.with_name(path.name.removeprefix(WHITEOUT))
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(hidden.lstat().st_mode):  # this layer has a folder there, which hides the lower one
                os.setxattr(hidden, opaque_attribute(), b"y")
            return
        os.mknod(hidden, stat.S_IFCHR | 0o000, os.makedev(0, 0))
