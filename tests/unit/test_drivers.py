"""images/drivers.yaml: its model, and what stands in the file itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cannery.catalog.compatibility import Drivers, series_key
from cannery.catalog.io.read import load_catalog
from cannery.catalog.target import series_of
from cannery.vocab import Chip

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = {"notes": {"what": "the notes", "date": "2026-01-02"}}
ROW = {"cann": "8.3.RC1", "series": ["25.3"], "source": "notes"}


def test_rows_are_found_by_cann_and_by_driver() -> None:
    table = Drivers.model_validate(
        {"sources": SOURCES, "drivers": [ROW, {**ROW, "cann": "8.5.0"}], "pci": {"0xd803": "A3"}}
    )
    assert [row.cann for row in table.of("8.3.rc1")] == ["8.3.rc1"]
    assert table.fitting("25.3") == ("8.3.rc1", "8.5.0")
    assert (table.fitting("25.0"), table.of("9.0.0")) == ((), ())
    assert table.pci == {"0xd803": Chip.A3}


@pytest.mark.parametrize(
    "value",
    [
        {"sources": SOURCES, "drivers": [{**ROW, "source": "other"}]},
        {"sources": SOURCES, "drivers": [{**ROW, "series": []}]},
        {"sources": SOURCES, "drivers": [{**ROW, "series": ["25.3.rc1"]}]},
        {"sources": SOURCES, "drivers": [{**ROW, "cann": "new"}]},
        {"pci": {"d802": "910b"}},
        {"pci": {"0xd802": "h100"}},
        {"chips": {}},
    ],
)
def test_what_is_no_table(value: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Drivers.model_validate(value)


def test_series() -> None:
    assert (series_of("25.0.rc1.1"), series_of("24.1.0")) == ("25.0", "24.1")
    assert max(["25.2", "25.10", "24.1"], key=series_key) == "25.10"


def test_the_file_knows_every_chip_that_the_bus_can_show_and_the_canns_of_the_profiles() -> None:
    catalog = load_catalog(ROOT / "images")
    assert set(catalog.drivers.pci.values()) == {chip for chip in Chip if chip is not Chip.A5}
    assert {profile.target.cann for profile in catalog.profiles.values()} <= {
        row.cann for row in catalog.drivers.drivers
    }
