"""What a host must have for an engine of Cannery's own: looked at before anything is fetched or started."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.standin.io.apt import host_release

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INSTALL_ENGINE = "install Docker Engine with its buildx plugin, or set DOCKER_HOST to an engine you can reach"
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"  # root's PATH may lack these after `su`
# What the start and the stop call, and the package of Debian and Ubuntu that has it. The smallest images (containers,
# chroots) leave out `mount`; the others are essential, but an image stripped by hand may lack any.
PROGRAMS = {
    "setsid": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "umount": "mount",
    "sh": "dash",
    "grep": "grep",
    "mkdir": "coreutils",
}
# A colon parts PATH; dockerd reads a percent sign of its data root as a format, and the kernel's overlay options end at
# a comma and lose a backslash (seen with dockerd 26.1: it fails, or falls back to a store without layers).
UNFIT = ":%,\\\n"


def refuse_unless_possible(env: Mapping[str, str], root: Path) -> None:
    """Raise `UnableError`, saying what to change, where Cannery cannot run an engine of its own below `root`."""
    if os.geteuid() != 0:
        raise UnableError(
            "no Docker engine answers, and starting Cannery's own needs root", hint=f"run as root, or {INSTALL_ENGINE}"
        )
    try:
        host_release()
    except UnableError as error:
        raise UnableError(
            f"no Docker engine answers, and Cannery's own: {error.what}", where=error.where, hint=INSTALL_ENGINE
        ) from error
    if unfit := sorted(set(str(root)) & set(UNFIT)):
        raise UnableError(
            f"Docker cannot store in a folder whose path holds {' '.join(map(repr, unfit))}",
            where=str(root),
            hint="set CANNERY_CACHE to a path without",
        )
    missing = [name for name in PROGRAMS if shutil.which(name, path=search_path(env)) is None]
    if missing:
        named = ", ".join(f"{name} (package {PROGRAMS[name]})" for name in missing)
        packages = " ".join(dict.fromkeys(PROGRAMS[name] for name in missing))
        raise UnableError(
            f"Cannery's own engine needs programs that this host lacks: {named}", hint=f"apt-get install {packages}"
        )


def search_path(env: Mapping[str, str]) -> str:
    """Folders in which the engine's host programs are looked for: the caller's, then the system's."""
    return f"{env.get('PATH', os.defpath)}:{SYSTEM_PATH}"
