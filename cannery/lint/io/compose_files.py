"""Compose files, read from disk with those that they name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from cannery.catalog.io.yaml_file import read_yaml
from cannery.errors import UsageError
from cannery.lint.compose_tree import COMPOSE_TAGS, compose_file, extended_paths, included_paths, why_not

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.lint.compose_tree import ComposeFile

# No project has such a chain on purpose.
DEEPEST = 16


def read_compose(path: Path, name: str, above: tuple[Path, ...] = ()) -> ComposeFile:
    """Read a compose file and, from where it stands, what it includes and its services extend; `above` name it.

    `name` is how messages call it. Raises `UsageError` for a file that is no compose file, and for files that name one
    another; a file that is not there, or not on this machine, is among the `unread`.
    """
    if path.resolve() in above or len(above) == DEEPEST:
        raise UsageError("the files name one another in a circle", where=name, hint="leave one `include` out")
    document = read_yaml(path, name, COMPOSE_TAGS)
    found = compose_file(document.value, name, document.tags)
    entries = included_paths(document.value, name)
    extended = extended_paths(found.services.values())
    read, unread = dict[str, "ComposeFile"](), []
    itself = frozenset(one for one in extended if (path.parent / one).resolve() == path.resolve())
    for named in dict.fromkeys((*(one for entry in entries for one in entry), *extended)):
        is_base = not any(named in entry for entry in entries)
        reason = why_not(named) or _missing(path.parent / named, above if is_base else ())
        if named in itself and is_base:
            continue
        if reason:
            unread.append(f"{named}: {reason}")
        else:
            read[named] = _named(path, name, named, above)
    included = tuple(tuple(read[one] for one in entry if one in read) for entry in entries)
    return replace(
        found,
        included=tuple(entry for entry in included if entry),
        extended={one: read[one] for one in extended if one in read},
        itself=itself,
        unread=(*unread, *(line for file in read.values() for line in file.unread)),
    )


def _missing(path: Path, above: tuple[Path, ...]) -> str:
    """Say why a file is not read, "" for one that is: of two files that extend one another, the second is not."""
    if not path.is_file():
        return "there is no such file"
    return "it extends the file that it is named by" if path.resolve() in above else ""


def _named(path: Path, name: str, named: str, above: tuple[Path, ...]) -> ComposeFile:
    return read_compose(path.parent / named, str(PurePath(name).parent / named), (*above, path.resolve()))
