"""YAML files, read from disk; `cannery.catalog.yaml_text` makes values with positions of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.catalog.yaml_text import YamlDocument, parse_yaml
from cannery.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

# The largest file has 35 kB: whoever meets this bound has another kind of file.
MOST_BYTES = 1 << 20


def read_yaml(path: Path, name: str) -> YamlDocument:
    """Read one YAML file; `name` is how messages call it.

    Raises `UsageError` with file:line for what `parse_yaml` refuses, and for a file that is too large, no text or
    cannot be read; never anything else.
    """
    return parse_yaml(read_yaml_text(path, name), name)


def read_yaml_text(path: Path, name: str) -> str:
    """Return the text of a YAML file. Raises `UsageError` for one that is too large, no text or cannot be read."""
    try:
        # Not before it is known to be a file: a pipe or a device would be waited for, or read without end.
        if path.exists() and not path.is_file():
            raise UsageError("is no regular file", where=name, hint="put a file of that name there, or remove it")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UsageError(
                f"is larger than {MOST_BYTES >> 20} MiB", where=name, hint="no file here is: is it another?"
            )
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError("is not UTF-8 text", where=f"{name}:{line}", hint="save the file as UTF-8") from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise UsageError(
            f"cannot be read: {error}", where=name, hint="the file has to be there and readable"
        ) from error
