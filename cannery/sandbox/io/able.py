"""Whether this host can make boxes: one is made, and runs `true`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from cannery.errors import CanneryError, UnableError
from cannery.sandbox.box import PROGRAMS, Box, Mount, box_command
from cannery.util.io.files import write_atomic
from cannery.util.io.locks import own_folder
from cannery.util.io.namespace import HOW
from cannery.util.io.process import run

# The folders of a host's programs and their libraries. A link among them leads into another one.
HOST_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
# Seconds that a box may take here: a slow machine needs one.
_LONGEST = 30
_ENGINE = "or start a Docker engine, which does not need this"


def host_binds() -> tuple[Mount, ...]:
    """Return what gives a box the programs of this host."""
    return tuple(Mount(path, path, read_only=True) for path in HOST_FOLDERS if Path(path).is_dir())


@cache
def why_not(folder: Path) -> str:
    """Return why this host cannot make boxes, and what to do about it; "" if it can.

    `folder` is the cache, which has the layers and the changes of boxes. A success is recorded there, because a box
    takes 0.3 s.
    """
    if missing := _missing():
        return missing
    note, now = folder / "boxes.able", _situation(folder)
    with suppress(OSError):
        if now and note.read_text() == now:
            return ""
    try:
        reason = _try_box(folder, in_memory=False)
        # A box whose changes are in memory shows whether the folder is the reason.
        is_folders = bool(reason) and not _try_box(folder, in_memory=True)
    except UnableError as error:
        return str(error)
    if is_folders:
        where = "set CANNERY_CACHE to a folder on a disk's own file system (ext4, xfs)"
        return f"the file system of {folder} cannot be used for overlay mounts: {where}, {_ENGINE}"
    if reason:
        return f"this host allows no namespaces or mounts ({reason}): a container needs --privileged for it, {_ENGINE}"
    with suppress(OSError):  # a full or read-only disk: it is tried again
        write_atomic(note, now)
    return ""


def _situation(folder: Path) -> str:
    """Return what decides whether boxes are made: the boot, this process's namespaces and rights, the file system.

    "" if that is not known. If something else has changed (a sysctl), the box itself fails. Each run has a new user
    namespace, so the map of its user ids counts instead.
    """
    try:
        namespaces = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("mnt", "pid", "net")]
        namespaces.append(Path("/proc/self/uid_map").read_text())
        rights = re.findall(r"^(?:Cap|Seccomp|NoNewPrivs).*", Path("/proc/self/status").read_text(), re.MULTILINE)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return "\n".join([boot, *namespaces, *rights, str(folder.stat().st_dev)])
    except OSError:
        return ""


def _missing() -> str:
    """Return what a box needs and this host does not have, and what to do about it; "" for nothing."""
    if sys.platform != "linux":
        return f"images without an engine need Linux, and this is {sys.platform}: start a Docker engine"
    if os.geteuid() != 0:
        return f"a user who is not root cannot put layers together without an engine: {HOW}; {_ENGINE}"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"not found: {', '.join(missing)}: install util-linux and coreutils, {_ENGINE}" if missing else ""


def _try_box(folder: Path, *, in_memory: bool) -> str:
    """Make a box that runs `true`; return what went wrong, in the words of the program that failed."""
    with own_folder(folder / "boxes") as scratch:
        for name in ("layer", "mounts"):
            (scratch / name).mkdir()
        upper = None if in_memory else scratch / "changes"
        box = Box((scratch / "layer",), ("true",), upper=upper, binds=host_binds())
        try:
            done = run(box_command(box, scratch / "mounts"), timeout=_LONGEST, check=False)
        except (OSError, CanneryError) as error:
            return str(error)
    lines = [line for line in done.stderr.splitlines() if "dmesg(1)" not in line]
    return "" if done.returncode == 0 else lines[-1] if lines else f"exit code {done.returncode}"
