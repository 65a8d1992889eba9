"""Reading the compatibility table: the rows of a release, and whether a set holds what a row wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cannery.core.compatibility import Rank
from cannery.core.held import same_release

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.core.compatibility import Compatibility, Row
    from cannery.core.rules.subject import Subject

CANN, PYTHON, DRIVER = "cann", "python", "driver"
WORDS = {CANN: "CANN", PYTHON: "Python", DRIVER: "driver"}
WEIGHT = {rank: number for number, rank in enumerate(Rank)}


def rows_of(table: Compatibility, name: str, version: str) -> tuple[Row, ...]:
    """Return the rows of one release, the weightiest source first."""
    found = [row for row in table.rows if row.name == name and same_release(row.version, version)]
    return tuple(sorted(found, key=lambda row: WEIGHT[table.sources[row.source].rank]))


def here(subject: Subject, key: str) -> str | None:
    """Return what stands in the set for a key of a row: a version, the CANN, the Python; None when it is not there."""
    target = subject.recipe.target
    return {CANN: target.cann, PYTHON: target.python}.get(key) or subject.versions.get(key)


def holds(key: str, wanted: str, version: str) -> bool:
    """Whether `version` is what a row wants for `key`."""
    if not wanted[0].isdigit():
        return SpecifierSet(wanted).contains(Version(version).public, prereleases=True)
    return wanted == version if key in {CANN, PYTHON} else same_release(wanted, version)


def said(key: str, wanted: str) -> str:
    """Return a cell of a row in words: `torch 2.7.1`, `Python >=3.9,<3.12`, `CANN 8.5.0`."""
    return f"{WORDS.get(key, key)} {wanted}"


def cited(table: Compatibility, rows: Iterable[Row]) -> str:
    """Return the sources of rows with their dates, each once."""
    return "; ".join(dict.fromkeys(str(table.sources[row.source]) for row in rows))
