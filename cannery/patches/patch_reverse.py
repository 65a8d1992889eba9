"""The files as they would be without a patch that a tree has already."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.patches.apply import apply_file
from cannery.patches.patch_hunk import HunkLine
from cannery.patches.values import Change

if TYPE_CHECKING:
    from collections.abc import Callable

    from cannery.patches.patch_hunk import Hunk
    from cannery.patches.values import PatchFile

_OTHER = {"+": "-", "-": "+", " ": " "}


def without_patch(patch: PatchFile, read: Callable[[str], bytes | None], *, fuzz: int = 0) -> dict[str, bytes | None]:
    """Return {path: bytes} of the files that `patch` makes or changes, as they are without it; None is no file.

    `read` gives the files of the tree that has it. A file in which it cannot be undone is returned as it is.
    """
    found: dict[str, bytes | None] = {}
    for part in reversed(patch.files):
        if part.change is Change.DELETED:
            continue
        if part.change is not Change.MODIFIED:
            found[part.path] = None
            continue
        content = found[part.path] if part.path in found else read(part.path)
        undone = apply_file(replace(part, hunks=tuple(map(_reversed, part.hunks))), content, fuzz=fuzz)
        found[part.path] = undone.after if undone.ok else content
    return found


def _reversed(hunk: Hunk) -> Hunk:
    return replace(
        hunk,
        old_start=hunk.new_start,
        old_count=hunk.new_count,
        new_start=hunk.old_start,
        new_count=hunk.old_count,
        lines=tuple(HunkLine(_OTHER[line.sign], line.text) for line in hunk.lines),
    )
