"""A tree of files as patches see it: what it came with, and what patches have changed so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from cannery.patches.result import EXECUTABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.patches.result import FileChange


class Files(Protocol):
    """The files of a tree, wherever they are."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when there is none."""

    def is_executable(self, path: str) -> bool:
        """Whether a file may be executed."""


@dataclass
class Layered:
    """A tree with changes over it: `changed` has the bytes of files (None: no file), `modes` whether they may run."""

    under: Files
    changed: dict[str, bytes | None] = field(default_factory=dict)
    modes: dict[str, bool] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes as they are now; None for no such file."""
        return self.changed[path] if path in self.changed else self.under.read(path)

    def is_executable(self, path: str) -> bool:
        """Whether a file may be executed as it is now."""
        return self.modes[path] if path in self.modes else self.under.is_executable(path)

    def add(self, changes: Iterable[FileChange]) -> None:
        """Lay changes over the tree."""
        for one in changes:
            self.changed[one.path] = one.after
            if one.new_mode is not None:
                self.modes[one.path] = one.new_mode == EXECUTABLE
