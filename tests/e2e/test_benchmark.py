"""The short set of benchmarks/images.py runs, and its files have each row. Its numbers are no test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from cannery.context import read_context
from cannery.sandbox.io.able import why_not
from tests.e2e.engine_fixtures import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    ("one small pin", "Cannery"),
    ("nothing changed", "Cannery"),
    ("floor", "unzip all wheels"),
    ("floor", "read and sha256 all wheels"),
]


@pytest.fixture(scope="session")
def early() -> None:
    """This test needs no other image: none is begun beside it."""


@pytest.mark.engine
@pytest.mark.quick
def test_the_short_set_runs(tmp_path: Path) -> None:
    if why := why_not(read_context(ROOT).cache):
        pytest.skip(f"no boxes here: {why}")
    found, drawn = tmp_path / "rows.json", tmp_path / "rows.svg"
    command = (sys.executable, "benchmarks/images.py", "--short", "--json", str(found), "--svg", str(drawn))
    before = left()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    value = json.loads(found.read_text())
    assert [(row["case"], row["who"]) for row in value["rows"]] == ROWS
    assert all(row["wall"] > 0 and row["cpu"] > 0 for row in value["rows"])
    pin, nothing = value["rows"][:2]
    assert pin["shipped"] > 0  # the trial is new in this run, though it was made in others
    assert nothing["shipped"] == 0
    bars = ET.parse(drawn).iter("{http://www.w3.org/2000/svg}rect")
    assert len(list(bars)) == len(ROWS)
    assert [line for line in done.stdout.splitlines() if line.startswith("nothing changed")]
    assert not left() - before  # another run's may be there


def left() -> set[str]:
    """Return the folders that runs have made below the cache and not removed."""
    folder = read_context(ROOT).cache / "benchmark"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
