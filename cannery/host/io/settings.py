"""Reads the settings of this machine: variables, `cannery.toml` of the working folder, the user's own file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.host.settings import Setting, Settings, merged, of_environment, of_file
from cannery.util.io.files import OF_FOLDER, user_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def read_settings(env: Mapping[str, str], folder: Path) -> Settings:
    """Return what is set. A variable goes before `cannery.toml` in `folder`, and that before the user's own file.

    Raises `UsageError` for a file that cannot be read, and as `of_file` and `of_environment`.
    """
    return merged((of_environment(env), _read(folder / OF_FOLDER, OF_FOLDER), _read(user_file(env), "")))


def _read(path: Path, shown: str) -> dict[str, Setting]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"the settings cannot be read: {reason}", where=str(path)) from error
    return of_file(text, shown or str(path), lambda named: _placed(named, path.parent))


def _placed(named: str, folder: Path) -> str:
    """Return the folder that a file names: a relative one is beside the file."""
    return named if named.startswith("~") else str(folder.absolute() / named)
