"""Patch sets written into a folder, all or nothing, and the patch_summary.yaml beside them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from cannery.errors import UnableError, UsageError
from cannery.util.io.files import write_atomic
from cannery.util.io.held_signals import signals_held
from cannery.util.io.write_errors import BY_OUTPUT, unwritable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_set(folder: Path, texts: Mapping[str, bytes]) -> None:
    """Write {name: content} into a new folder, all or nothing.

    Raises `UsageError` where the folder is not empty, `UnableError` where it cannot be written.
    """
    part = folder.with_name(f".{folder.name}.cannery")
    try:
        if folder.exists() and any(folder.iterdir()):
            hint = "remove it, or name another --output"
            raise UsageError("there is a patch set already", where=str(folder), hint=hint)
        shutil.rmtree(part, ignore_errors=True)  # of a run that was killed
        part.mkdir(parents=True)
        for name, content in texts.items():
            (part / name).write_bytes(content)
        part.replace(folder)
    except OSError as error:
        raise unwritable(error, folder, BY_OUTPUT) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_set_and_summary(folder: Path, texts: Mapping[str, bytes], path: Path, summary: str) -> None:
    """Write a set as `write_set`, and `summary` to the file `path`: both, or neither; signals wait meanwhile.

    Raises as `write_set`.
    """
    with signals_held():
        write_set(folder, texts)
        try:
            write_atomic(path, summary)
        except OSError as error:
            # A set that the summary does not have would block the next try.
            shutil.rmtree(folder, ignore_errors=True)
            raise unwritable(error, path) from error


def read_summary_text(path: Path) -> str:
    """Return the text of a patch_summary.yaml, "" where there is none.

    Raises `UsageError` for what is not text, `UnableError` for what cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        hint = "write it in UTF-8, or write to another folder with --output"
        raise UsageError(f"is not UTF-8, from byte {error.start} on", where=str(path), hint=hint) from error
    except IsADirectoryError as error:
        hint = "move it away, or name another --output"
        raise UsageError(
            "is a folder; the summary of patch sets is a file of this name", where=str(path), hint=hint
        ) from error
    except OSError as error:
        hint = "make it readable for you, or name another --output"
        raise UnableError(f"cannot be read: {error.strerror or error}", where=str(path), hint=hint) from error
