"""User namespaces, in which a user who is not root makes layers, as in podman and buildah."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path

from cannery.errors import CanneryError
from cannery.util.io.process import run

# Starts a command as root of a new user namespace. Its other users are the user's ids from /etc/subuid and subgid.
AS_ROOT = ("unshare", "--user", "--map-root-user", "--map-auto", "--")
HOW = (
    "run the same command with sudo; or install uidmap and util-linux 2.38 or newer, and give this user ids: "
    "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER"
)
# Seconds. It usually takes hundredths of a second.
_LONGEST = 30
# The number of ids outside of a user namespace.
_ALL = 2**32 - 1


def can_be_root() -> bool:
    """Return whether this process is not root, but can become root of a user namespace."""
    if sys.platform != "linux" or os.geteuid() == 0 or shutil.which("newuidmap") is None:
        return False
    try:
        run((*AS_ROOT, "true"), timeout=_LONGEST)
    except (OSError, CanneryError):
        return False
    return True


@cache
def is_in_namespace(uid_map: Path = Path("/proc/self/uid_map")) -> bool:
    """Return whether this process is in a user namespace other than the host's."""
    try:
        lines = uid_map.read_text().splitlines()
    except OSError:
        return False
    return [line.split() for line in lines] != [["0", "0", str(_ALL)]]


def opaque_attribute() -> str:
    """Return the extended attribute that makes a folder of an overlay opaque. A namespace may only set user attributes.

    Source: the kernel's Documentation/filesystems/overlayfs.rst, "User xattr".
    """
    return f"{'user' if is_in_namespace() else 'trusted'}.overlay.opaque"
