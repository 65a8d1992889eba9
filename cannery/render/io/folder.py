"""Write a rendered folder: text files and hard links to the locked wheels. Other files are removed."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, UsageError
from cannery.render.lint import lint
from cannery.render.render import DOCKERFILE, patched_files, render
from cannery.util.io.files import unwritable, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cannery.catalog.compatibility import Compatibility
    from cannery.plan import Plan

LOG_FOLDER = "log"
# Errors of a hard link across file systems, or on one without hard links or with too many.
NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})


# At the top of every rendered Dockerfile (templates/Dockerfile.j2), which is the first file written.
RENDERED_MARK = "# Rendered by Cannery."


def write_folder(
    plan: Plan,
    templates: Mapping[str, str],
    compatibility: Compatibility,
    folder: Path,
    fetch: Callable[[], Mapping[str, Path]],
) -> str:
    """Write the rendered folder of `plan`; return a sentence about what changed. Logs in it are kept.

    `fetch` returns the files that do not come from templates: {path in the folder: file on this host}. It is called
    after the folder is checked.

    Raises `UsageError` for a folder with files that are not Cannery's, because files that are not in the plan are
    removed. Raises `FindingsError` for a Dockerfile with errors of `cannery.render.lint`.
    """
    texts = render(plan, templates, compatibility)
    if wrong := lint(texts[DOCKERFILE], plan.recipe.target.arch):
        listed = "\n".join(map(str, wrong))
        raise FindingsError(f"the templates make a Dockerfile that is refused\n{listed}", where="templates/")
    _refuse_foreign(folder)
    written: dict[str, str | bytes] = {**texts, **patched_files(plan)}
    changed = sum(write_atomic(folder / name, content) for name, content in written.items())
    files = fetch()
    linked = sum(_link(file, folder / name) for name, file in files.items())
    (folder / "sources").mkdir(exist_ok=True)
    removed = _remove_others(folder, {*written, *files})
    total = len(written) + len(files)
    return f"{changed} files written, {linked} files linked, {removed} removed, {total} in all"


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError("is not a folder", where=str(folder), hint="name another one with --output")
    early = (LOG_FOLDER, ".dockerignore", ".Dockerfile.")  # what an interrupted first run may have left
    others = [p.name for p in folder.iterdir() if not p.name.startswith(early)] if folder.exists() else []
    dockerfile = folder / DOCKERFILE
    if others and not (
        dockerfile.is_file() and RENDERED_MARK in dockerfile.read_text(encoding="utf-8", errors="replace")
    ):
        hint = "name an empty or a new folder with --output: what does not belong to the image is removed from it"
        raise UsageError("the folder holds something that Cannery has not rendered", where=str(folder), hint=hint)


def _link(source: Path, path: Path) -> bool:
    """Make `path` a hard link to `source`, or a copy on another file system; return whether it changed.

    A file on another file system with the same size and time is the copy of an earlier run.
    """
    if path.exists():
        ours, theirs = source.stat(), path.stat()
        is_equal = (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)
        if path.samefile(source) or (is_equal and ours.st_dev != theirs.st_dev):
            return False
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        _copy(source, path)
    return True


def _copy(source: Path, path: Path) -> None:
    """Copy a file, completely or not at all. Raises `UnableError` with the path of the copy, whose disk may be full."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        shutil.copy2(source, temporary)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise unwritable(error, path) from error


def _remove_others(folder: Path, wanted: set[str]) -> int:
    """Remove the files of an earlier plan, except `log/`; return how many."""
    removed = 0
    for path in sorted(folder.rglob("*"), reverse=True):
        name = str(path.relative_to(folder))
        if name.split("/", 1)[0] == LOG_FOLDER:
            continue
        if path.is_dir() and not path.is_symlink():
            if name != "sources" and not any(path.iterdir()):
                path.rmdir()
        elif name not in wanted:
            path.unlink()
            removed += 1
    return removed
