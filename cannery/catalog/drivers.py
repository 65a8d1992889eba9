"""images/drivers.yaml: which driver each CANN works with, each row with its source, and how a host shows its chip."""

import re
from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field, model_validator

from cannery.catalog.component import Closed
from cannery.catalog.errors import FaultError
from cannery.catalog.fields import CannText, DateText, Name, SeriesText, Text, parsed
from cannery.catalog.target import parse_chip
from cannery.vocab import Chip, did_you_mean


def _pci_id(text: str, _option: str) -> str:
    if not re.fullmatch(r"0x[0-9a-f]{4}", text):
        raise FaultError(f"{text!r} is no PCI device id", 'written like "0xd802"')
    return text


PciId = Annotated[str, parsed(_pci_id)]
ChipText = Annotated[Chip, parsed(parse_chip)]


class DriverSource(Closed):
    """Where rows were read, and when."""

    what: Text
    date: DateText

    def __str__(self) -> str:
        return f"{self.what}, {self.date}"


class DriverRow(Closed):
    """The drivers that work with a CANN by its makers, by their first two numbers; `whole`: no other does."""

    cann: CannText
    series: tuple[SeriesText, ...] = Field(min_length=1)
    source: Text
    whole: bool = False


class DriverReport(Closed):
    """A pair of CANN and driver that somebody reported not to work."""

    cann: tuple[CannText, ...] = Field(min_length=1)
    series: SeriesText
    what: Text
    source: Text


class Drivers(Closed):
    """The file. A pair that it does not name is unknown, never ok."""

    sources: dict[Name, DriverSource] = Field(default_factory=dict)
    drivers: tuple[DriverRow, ...] = ()
    reports: tuple[DriverReport, ...] = ()
    pci: dict[PciId, ChipText] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sources_exist(self) -> Self:
        for position, row in enumerate(self.drivers):
            if row.source not in self.sources:
                what = f"a source that `sources` has not: {row.source}"
                raise FaultError(what, did_you_mean(row.source, self.sources), ("drivers", position, "source"))
        return self

    def of(self, cann: str) -> tuple[DriverRow, ...]:
        """Return the rows of a CANN (without its build)."""
        return tuple(row for row in self.drivers if row.cann == cann)

    def fitting(self, series: str) -> tuple[str, ...]:
        """Return the CANNs that work with a driver of `series` by their makers, in the file's order."""
        return tuple(dict.fromkeys(row.cann for row in self.drivers if series in row.series))


def newest(series: Iterable[str]) -> str:
    """Return the newest of some series."""
    return max(series, key=lambda text: [int(part) for part in text.split(".")])
