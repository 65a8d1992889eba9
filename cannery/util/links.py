"""Follows symbolic links of a tree as the kernel does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# The kernel's limit. A longer chain is an error.
MOST_LINKS = 40


def followed(path: str, link: Callable[[str], str | None]) -> str | None:
    """Return the target of an absolute path; None for a cycle, or too long a chain of links.

    `link` returns the target of a symbolic link, None for any other path. The parent of `/` is `/`.
    """
    todo, here, links = path.split("/")[::-1], "", 0
    while todo:
        part = todo.pop()
        if part == "..":
            here = here.rpartition("/")[0]
        elif part not in {"", "."}:
            target = link(f"{here}/{part}")
            if target is None:
                here = f"{here}/{part}"
                continue
            links += 1
            if links > MOST_LINKS:
                return None
            todo += target.split("/")[::-1]
            here = "" if target.startswith("/") else here
    return here or "/"
