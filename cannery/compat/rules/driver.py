"""The driver is the host's, and no check of a set can see it: one note reports which driver the set needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.catalog.compatibility import DRIVER
from cannery.catalog.versions import order
from cannery.compat.findings import Finding, note
from cannery.compat.table import cited, departure, judging, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.catalog.compatibility import Row
    from cannery.catalog.versions import Key
    from cannery.compat.subject import Subject


def driver(subject: Subject) -> Iterator[Finding]:
    """Name the oldest driver that every release of the set works with, by the rows that the set is in."""
    deciding = asking(subject)
    if deciding:
        cell = deciding[0].fits[DRIVER]
        wanted = f"{cell} or newer" if cell[0].isdigit() else cell
        yield note(
            "driver",
            f"the host needs driver {wanted}: {who(deciding)} asks for it",
            cited(subject.table, deciding),
        )


def who(rows: Sequence[Row]) -> str:
    """Return the releases of rows, in words."""
    return listed(f"{row.name} {row.version}" for row in rows)


def asking(subject: Subject) -> list[Row]:
    """Return the rows, of those that the set is in, that ask for the newest driver; empty when none asks for any."""
    rows = [
        row
        for name in subject.with_rows(DRIVER)
        for row in judging(subject, name)
        if DRIVER in row.fits and not departure(subject, row)
    ]
    newest = max((row.fits[DRIVER] for row in rows), key=_oldest, default="")
    return [row for row in rows if row.fits[DRIVER] == newest]


def _oldest(cell: str) -> Key:
    """Return the order of a cell's lower bound among drivers; of a range it is the first one."""
    return order(cell.partition(",")[0].lstrip(">=< "))
