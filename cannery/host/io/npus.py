"""Reads from this host what `run` and `verify` give to a container: NPUs, driver, HCCL's files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cannery.host.facts import INSTALL_INFO, RANKTABLE, install_folder, is_in_place
from cannery.host.io.host_tree import look, read_text
from cannery.host.npus import HostNpus, place_of

if TYPE_CHECKING:
    from pathlib import Path


def read_host(paths: tuple[str, ...], root: Path) -> HostNpus:
    """Return which of `paths` this host has (below `root`), the group of the device nodes, the ranktable's version.

    The driver's paths are looked for where it is installed. What the caller cannot read is `HostNpus.hidden`.
    """
    install = install_folder(read_text(root, INSTALL_INFO, set()) or "")
    present, hidden, groups = set(), set(), set()
    for path in paths:
        closed: set[str] = set()
        about = look(root, place_of(path, install), closed)
        if about is not None and is_in_place(path, about.st_mode):
            present.add(path)
            groups |= {about.st_gid} if path.startswith("/dev/") else set()
        elif closed:
            hidden.add(path)
    nodes = frozenset(path for path in present if path.startswith("/dev/"))
    ranktable = _ranktable_version(read_text(root, RANKTABLE, set())) if RANKTABLE in present else ""
    group = min(groups - {0}, default=min(groups, default=None))
    return HostNpus(nodes, frozenset(present) - nodes, group, ranktable, frozenset(hidden), install)


def _ranktable_version(text: str | None) -> str:
    """Return the version that a ranktable states; "" where it states none or cannot be read."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return ""
    found = value.get("version") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
