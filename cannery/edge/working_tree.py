"""A developer's working tree, as `build.py patches` reads it: its commit, and what differs from that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cannery.core.errors import FindingsError, UsageError
from cannery.edge.git_run import GitReadError, read

if TYPE_CHECKING:
    from cannery.edge.context import Context

FATAL = "fatal: "
# What git says of a repository of another user, and of one in which nothing was committed.
DISTRUSTED = "dubious ownership"
NO_COMMIT = "Needed a single revision"


def working_commit(context: Context, folder: Path) -> str:
    """Return HEAD of the working tree whose root is `folder`.

    Raises `UsageError` for another folder: a repository somewhere above it says nothing of what is in it.
    """
    head, top = _root(context, folder)
    if top.resolve() != folder.resolve():
        raise UsageError(f"--tree: {str(folder)!r} is a folder inside a working tree", hint=f"name its root, {top}")
    return head


def working_diff(context: Context, folder: Path) -> tuple[str, dict[str, bytes], tuple[str, ...]]:
    """Return HEAD of a working tree, {path: its diff from HEAD} of what is changed, and files that git does not track.

    Raises `UsageError` for a folder that is no working tree, `FindingsError` for one without changes.
    """
    head, top = _root(context, folder)
    plain = (
        "-c",
        "core.quotePath=true",
        "-C",
        top,
        "diff",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--no-renames",
    )
    try:
        names = read((*plain, "--name-only", "-z", "HEAD"), context.env).decode(errors="surrogateescape")
        changed = [name for name in names.split("\0") if name]
        diffs = {
            name: read((*plain, "--full-index", "HEAD", "--", f":(literal){name}"), context.env) for name in changed
        }
        others = read(("-C", top, "ls-files", "--others", "--exclude-standard", "-z"), context.env)
    except GitReadError as error:
        raise _unread(folder, error) from error
    untracked = tuple(name for name in others.decode(errors="replace").split("\0") if name)
    if not diffs:
        new = f"; git does not track {', '.join(untracked[:3])}: `git add -N` it" if untracked else ""
        raise FindingsError(f"nothing differs from HEAD{new}", where=str(folder), hint="change what is to be patched")
    return head, diffs, untracked


def _root(context: Context, folder: Path) -> tuple[str, Path]:
    """Return HEAD and the root of the working tree that `folder` is in."""
    try:
        top = read(("-C", folder, "rev-parse", "--show-toplevel"), context.env).decode(errors="surrogateescape")
        head = read(("-C", folder, "rev-parse", "--verify", "HEAD^{commit}"), context.env).decode()
    except GitReadError as error:
        raise _unread(folder, error) from error
    return head.strip(), Path(top.rstrip("\n"))


def _unread(folder: Path, error: GitReadError) -> UsageError:
    """Return the error to raise where git refuses `folder`. The reason is git's first line, advice its last."""
    reason = next((line.removeprefix(FATAL) for line in error.lines if line.startswith(FATAL)), str(error))
    if NO_COMMIT in reason:
        hint = "patches are for a commit: commit the state that they change"
        return UsageError(f"--tree: nothing was committed yet in {str(folder)!r}", hint=hint)
    hint = "name the working tree that you develop in"
    if DISTRUSTED in reason:
        hint = f"it is another user's; if you trust it: {str(error).strip()}"
    return UsageError(f"--tree: git cannot read {str(folder)!r}: {reason}", hint=hint)
