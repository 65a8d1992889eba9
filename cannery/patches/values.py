"""What a patch says of files, as values: one file's part, and all that stand in a patch file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cannery.patches.patch_hunk import Hunk


class Change(StrEnum):
    """What a patch does to a file."""

    MODIFIED = "modified"
    ADDED = "added"
    DELETED = "deleted"
    RENAMED = "renamed"
    COPIED = "copied"


@dataclass(frozen=True)
class FilePatch:
    """One file's part of a patch. Paths are below the root of the tree; modes are git's ("100755") where it gives them.

    `crlf`: the patch's own header lines end in CRLF, so that nobody can tell a file's CRLF from the patch file's.
    """

    change: Change
    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...]
    old_mode: str | None = None
    new_mode: str | None = None
    crlf: bool = False

    @property
    def path(self) -> str:
        """The file's path after the patch; of a deleted one, before it."""
        return self.new_path or self.old_path or ""


@dataclass(frozen=True)
class PatchFile:
    """A patch file: its name without `.patch`, sha256 of its bytes, and what was repaired in reading it."""

    name: str
    files: tuple[FilePatch, ...]
    digest: str
    notes: tuple[str, ...] = ()
