"""What was read out of an image: its configuration, and the few of its files that tell what is in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_LINKS = 40  # as the kernel's own


@dataclass(frozen=True)
class Seen:
    """An image as it was read.

    `arch` is Docker's word; `history` are the commands of its layers; `texts` (by path) are the files that were read,
    `links` its symbolic links (path: target), `present` paths that are there, `caches` bytes by folder.
    """

    arch: str
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    history: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    caches: Mapping[str, int] = field(default_factory=dict)

    def real(self, path: str) -> str:
        """Return `path` with the image's links followed; one that leads in a circle stays as it is."""
        todo, here, links = list(PurePosixPath(path).parts[1:]), PurePosixPath("/"), 0
        while todo:
            part = todo.pop(0)
            here = here.parent if part == ".." else here / part
            target = self.links.get(str(here))
            if target is None:
                continue
            links += 1
            if links > MOST_LINKS:
                return path
            parts = PurePosixPath(target).parts
            here = PurePosixPath("/") if target.startswith("/") else here.parent
            todo = [*(parts[1:] if target.startswith("/") else parts), *todo]
        return str(here)

    def text(self, path: str) -> str | None:
        """Return the text of a file, links followed; None where it is not there or was not read."""
        return self.texts.get(self.real(path))

    def has(self, path: str) -> bool:
        """Whether a library that was asked for is there."""
        return self.real(path) in self.present
