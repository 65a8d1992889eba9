"""What a fetched tree asks for, compared with what its component lists, from which the lock was made."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.sources.requires import compare, is_requirement_file

if TYPE_CHECKING:
    from collections.abc import Iterator
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
