"""Patch sets written into a folder, all or nothing."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from cannery.errors import UsageError
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
