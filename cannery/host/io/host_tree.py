"""Reads paths of a host: the running one, or a tree of files that was copied from one or made up.

Below a tree nothing of the real host is read: symbolic links are followed within it, as the host itself would.
"""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

MOST_LINKS = 40  # as the kernel's own
MOST_BYTES = 1 << 20


def below(root: Path, path: str) -> Path | None:
    """Return where the host's `path` is in the tree at `root`, with symbolic links followed within the tree.

    None where a link leads nowhere or in a circle; a path that is not there is returned as it would be.
    Raises `OSError` for one that the caller cannot read, or that no file system can have.
    """
    todo, here, links = list(PurePosixPath(path).parts[1:]), PurePosixPath("/"), 0
    while todo:
        part = todo.pop(0)
        here = here.parent if part == ".." else here / part
        real = root / str(here).lstrip("/")
        if not _is_link(real):
            continue
        links += 1
        if links > MOST_LINKS:
            return None
        target = PurePosixPath(real.readlink())
        here = PurePosixPath("/") if target.is_absolute() else here.parent
        todo = [*(target.parts[1:] if target.is_absolute() else target.parts), *todo]
    return root / str(here).lstrip("/")


def _is_link(path: Path) -> bool:
    # Not `is_symlink`, which is False in newer Pythons for what the caller cannot read.
    try:
        return stat.S_ISLNK(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def look(root: Path, path: str, closed: set[str]) -> os.stat_result | None:
    """Return the status of a path, None where nothing is there; a path that cannot be read is added to `closed`."""
    found = _found(root, path, closed)
    return None if found is None else found[1]


def read_text(root: Path, path: str, closed: set[str]) -> str | None:
    """Return the text of a file, None where there is none that can be read; `closed` as of `look`."""
    found = _found(root, path, closed)
    if found is None or not stat.S_ISREG(found[1].st_mode):
        return None
    try:
        with found[0].open("rb") as file:
            return file.read(MOST_BYTES).decode(errors="replace")
    except PermissionError:
        closed.add(path)
    except OSError:
        pass
    return None


def _found(root: Path, path: str, closed: set[str]) -> tuple[Path, os.stat_result] | None:
    """Return where a path of the host leads, and its status; `closed` as of `look`."""
    try:
        real = below(root, path)
        return None if real is None else (real, real.stat())
    except PermissionError:
        closed.add(path)
    except OSError:
        pass
    return None
