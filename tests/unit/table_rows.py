"""Whether the rows of a compatibility table contradict each other: a test holds images/compatibility.yaml to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cannery.catalog.compatibility import CANN, DRIVER, Rank
from cannery.catalog.errors import FaultError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.compatibility import Compatibility, Row


def contradictions(table: Compatibility) -> Iterator[FaultError]:
    """Give a fault for each row that another one of its source contradicts or repeats.

    Rows of one source about one release are sets to choose from when each is of another CANN, and so are those of a
    document, which shows sets in use. Everything else in a release's metadata or its makers' table about a release
    holds at once.
    """
    known: dict[tuple[str, str, Version], list[tuple[int, Row]]] = {}
    for position, row in enumerate(table.rows):
        before = known.setdefault((row.source, row.name, Version(row.version)), [])
        for number, other in before:
            what = _against(row, other, is_choice=table.sources[row.source].rank is Rank.DOCUMENT)
            if what:
                hint = f"remove one of rows.{number} and rows.{position}, or correct it"
                yield FaultError(f"{row.of} of {row.source}: {what}", hint, ("rows", position))
                break
        before.append((position, row))


def _against(row: Row, other: Row, *, is_choice: bool) -> str:
    if row.fits == other.fits:
        return "this row is given twice"
    shared = [key for key in row.fits if key in other.fits and not _agree(key, row.fits[key], other.fits[key])]
    if is_choice or not shared or CANN in shared:
        return ""
    return f"{shared[0]} is {row.fits[shared[0]]} here and {other.fits[shared[0]]} in another row"


def _agree(key: str, one: str, other: str) -> bool:
    """Whether two cells can both be so: equal, or a version and a range that holds it; of two ranges, equal ones."""
    if one == other or key == DRIVER:  # a driver's versions are not PEP 440's
        return one == other
    exact = [cell for cell in (one, other) if cell[0].isdigit()]
    ranges = [cell for cell in (one, other) if not cell[0].isdigit()]
    if len(ranges) == 1:
        return SpecifierSet(ranges[0]).contains(exact[0], prereleases=True)
    return not exact and SpecifierSet(one) == SpecifierSet(other)
