"""Files that start containers, read from disk."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.catalog.io.yaml_file import read_yaml_text
from cannery.catalog.yaml_text import YamlDocument, parse_yaml
from cannery.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 1 << 20  # longer than any script that starts a container
_NEXT = re.compile(r"^---(?=\s|$)", re.MULTILINE)
# A line that is no part of a document's value.
_EMPTY = re.compile(r"\s*(?:#.*|%.*|---\s*(?:#.*)?|\.\.\.)?")


def read_script(path: Path) -> str:
    """Return the text of a shell script, by its name or its first line; "" for another file, or one without text.

    Raises `UsageError` for a page of text, which is neither a script nor YAML.
    """
    if path.suffix.lower() in {".md", ".markdown", ".rst"}:
        hint = "give its command alone: build.py lint-run 'docker run …'"
        raise UsageError("a page of text is not read", where=str(path), hint=hint)
    if not path.is_file():  # a pipe would be waited for
        return ""
    try:
        with path.open("rb") as file:
            head = file.read(MOST_BYTES)
    except OSError:
        return ""
    is_script = path.suffix in {".sh", ".bash"} or head.startswith(b"#!")
    return head.decode("utf-8", "replace") if is_script else ""


def read_documents(path: Path, name: str) -> tuple[YamlDocument, ...]:
    """Return the YAML documents of a file, of which a manifest may have several; `name` is how messages call it.

    Raises `UsageError` with file:line for a file that cannot be read as YAML, or has no document.
    """
    text = read_yaml_text(path, name)
    found, at = [], 0
    for end in (*(match.start() for match in _NEXT.finditer(text)), len(text)):
        part = text[at:end]
        if not all(map(_EMPTY.fullmatch, part.splitlines())):
            # Its lines are counted from the first one of the file.
            found.append(parse_yaml("\n" * text[:at].count("\n") + part, name))
        at = end
    return tuple(found) or (parse_yaml(text, name),)
