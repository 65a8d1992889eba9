"""A layer's tar becomes a folder that overlay mounts take: whiteouts are what the kernel takes for them.

GNU tar writes the files, which is several times faster than Python; it refuses `..` and absolute paths itself. This
process reads the headers on their way, names what is refused, and holds the bytes against the layer's digest.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
import subprocess
import tarfile
import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, cast

from cannery.errors import FindingsError, UnableError
from cannery.store.io.packed import check_size

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
COMMAND = (
    *("tar", "--extract", "--file=-", "--numeric-owner", "--same-owner", "--same-permissions"),
    *("--delay-directory-restore", "--xattrs", "--xattrs-include=security.capability", "--directory"),
)


def unpack(blocks: Iterable[bytes], folder: Path) -> str:
    """Unpack a tar into an empty folder; return the tar's diff id.

    Raises `FindingsError` for a tar with a path or link that leads out of the folder, and for what is no tar;
    `UnableError` where it cannot be written, and without root.
    """
    if os.geteuid() != 0:
        raise UnableError("unpacking the layers of an image needs root", hint="run it as root, or use an engine")
    env = {name: value for name, value in os.environ.items() if name != "TAR_OPTIONS"} | {"LC_ALL": "C"}
    with (
        tempfile.TemporaryFile() as words,
        # Folders that a tar does not list are made by the umask.
        subprocess.Popen((*COMMAND, str(folder)), stdin=subprocess.PIPE, stderr=words, env=env, umask=0o022) as process,
    ):
        tee = _Tee(blocks, cast("IO[bytes]", process.stdin))
        try:
            seen = _checked(tee)
            tee.close()
        except BrokenPipeError:
            pass  # tar has ended, and has written why
        except tarfile.TarError as error:
            process.kill()
            raise FindingsError(f"a layer is no tar: {error}") from error
        except BaseException:
            process.kill()
            raise
        if process.wait():
            words.seek(0)
            why = words.read().decode(errors="replace").strip().splitlines()
            raise UnableError(f"a layer cannot be unpacked: {why[0] if why else 'tar failed'}", where=str(folder))
    try:
        seen.finish(folder)
    except OSError as error:
        what = f"this disk does not keep what a layer removes: {error.strerror}"
        raise UnableError(what, where=str(folder), hint="let CANNERY_CACHE be on ext4 or xfs") from error
    return f"sha256:{tee.digest.hexdigest()}"


class _Tee:
    """Bytes on their way to tar: whoever reads them here passes them on."""

    def __init__(self, blocks: Iterable[bytes], into: IO[bytes]) -> None:
        self._blocks, self._into = iter(blocks), into
        self.digest = hashlib.sha256()

    def read(self, _size: int = -1) -> bytes:
        """Return the next block that is not empty, b"" at the end."""
        block = next(filter(None, self._blocks), b"")
        self._into.write(block)
        self.digest.update(block)
        return block

    def close(self) -> None:
        """Pass on what is left."""
        while self.read():
            pass
        self._into.close()


class _Seen:
    """What was seen of a tar that has to be done after tar has run: links, whiteouts, devices, times of folders."""

    def __init__(self) -> None:
        self._links: set[str] = set()
        self._whiteouts: list[str] = []
        self._devices: list[str] = []
        self._folders: dict[str, float] = {}

    def take(self, member: tarfile.TarInfo) -> None:
        """Note a member. Raises `FindingsError` where it would be written outside the folder."""
        name = self._inside(member.name, "a path")
        is_link = member.issym()
        if member.islnk():
            is_link = self._inside(member.linkname, f"{member.name}: a hard link to a path") in self._links
        (self._links.add if is_link else self._links.discard)(name)
        if posixpath.basename(name).startswith(WHITEOUT):
            self._whiteouts.append(name)
        if member.ischr() or member.isblk():
            self._devices.append(name)
        above = posixpath.dirname(name)
        while above and above not in self._folders:
            self._folders[above] = 0.0
            above = posixpath.dirname(above)
        if member.isdir():
            self._folders[name] = member.mtime
        else:
            self._folders.pop(name, None)  # in place of a folder

    def _inside(self, name: str, what: str) -> str:
        parts = [part for part in name.split("/") if part not in {"", "."}]
        if name.startswith("/") or ".." in parts:
            raise FindingsError(f"a layer has {what} outside of the image: {name[:200]!r}")
        for count in range(1, len(parts)):
            if (link := "/".join(parts[:count])) in self._links:
                raise FindingsError(f"a layer has {what} through its own link {link[:200]!r}: {name[:200]!r}")
        return "/".join(parts)

    def finish(self, folder: Path) -> None:
        """Turn whiteouts into the kernel's; remove devices, since a box has its own.

        A folder that the tar does not list has no time of today: a step takes what is new for its own.
        """
        for name in self._devices:
            (folder / name).unlink(missing_ok=True)
        for name in self._whiteouts:
            path = folder / name
            path.unlink(missing_ok=True)
            if path.name == OPAQUE:
                os.setxattr(path.parent, "trusted.overlay.opaque", b"y")
            elif not path.name.startswith(WHITEOUT * 2):  # else it is of aufs
                _whiteout(path.with_name(path.name.removeprefix(WHITEOUT)))
        for name, time in self._folders.items():
            os.utime(folder / name, (time, time), follow_symlinks=False)


def _whiteout(path: Path) -> None:
    """Hide what lower layers have at `path`. Where this layer has something itself, a folder hides theirs."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            os.setxattr(path, "trusted.overlay.opaque", b"y")
        return
    os.mknod(path, stat.S_IFCHR | 0o000, os.makedev(0, 0))


def _checked(tee: _Tee) -> _Seen:
    seen = _Seen()
    tar: Any
    with tarfile.open(fileobj=cast("IO[bytes]", tee), mode="r|", bufsize=1 << 18) as tar:
        while (member := tar.next()) is not None:
            check_size(member)
            tar.members.clear()  # or every header stays in memory
            seen.take(member)
    return seen
