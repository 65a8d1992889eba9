"""What a fetched tree asks for, compared with what its component lists, from which the lock was made."""

from __future__ import annotations

import ast
import sys
import tarfile
import warnings
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.sources.requires import compare, is_requirement_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from cannery.catalog.component import Known

# Bytes of a file of requirements that are read, and differences that are named.
LARGEST = 1_000_000
SHOWN = 4


def requirement_doubts(tar: Path, known: Known) -> Iterator[str]:
    """Give sentences about where the tree in `tar` asks for other packages than `known` lists; none when it agrees.

    A revision without `requires_from` is not checked. Raises `UnableError` for a tar that cannot be read.
    """
    if not known.requires_from:
        return
    comparison = compare(known.requires, _texts(tar), known.requires_from)
    names = [str(difference) for difference in comparison.differences]
    more = f"; and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    if names:
        yield f"asks for other packages than the lock was made from: {'; '.join(names[:SHOWN])}{more}"
    yield from comparison.unread


def syntax_doubts(tar: Path, modules: Collection[str], python: str) -> Iterator[str]:
    """Give a sentence for the first file of `modules` that Python `python` cannot compile, and how many more there are.

    Nothing is reported where this Python is older than that: it does not know all of the syntax.
    """
    version = tuple(map(int, python.split(".")))
    if sys.version_info < version:
        return
    faults, wanted = [], {*modules}
    with tarfile.open(tar) as archive:
        for member in archive:
            is_module = member.name.endswith(".py") and not wanted.isdisjoint(member.name.split("/")[:-1])
            if is_module and member.isfile() and (content := archive.extractfile(member)):
                fault = _syntax(content.read(), version)
                faults += [f"{member.name}, {fault}"] if fault else []
    if faults:
        more = f" (and {len(faults) - 1} more files)" if len(faults) > 1 else ""
        yield f"Python {python} cannot compile {faults[0]}{more}"


def _syntax(source: bytes, version: tuple[int, ...]) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(source, feature_version=(version[0], version[1]))
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error)
    return ""


def _texts(tar: Path) -> dict[str, str]:
    """Read the files of a tree that may say what it asks for: {path: text}."""
    try:
        with tarfile.open(tar) as archive:
            return {
                member.name: content.read(LARGEST).decode("utf-8", "replace")
                for member in archive
                if member.isfile() and is_requirement_file(member.name) and (content := archive.extractfile(member))
            }
    except (OSError, tarfile.TarError) as error:
        raise UnableError(f"{tar.name} cannot be read: {error}", where=str(tar.parent)) from error
