"""The table of breakages for images: every check is broken by a row, and every row can be run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from data.verify_tree import REPOSITORY

from verifying.checks import CHECKS

if TYPE_CHECKING:
    from types import ModuleType


def table() -> ModuleType:
    """The table as a module; it is beside the tests that need an engine."""
    spec = importlib.util.spec_from_file_location("breakages_table", REPOSITORY / "tests/e2e/breakages.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["breakages_table"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["breakages_table"])
    return sys.modules["breakages_table"]


TABLE = table()


def test_every_check_is_broken_by_a_row() -> None:
    broken = {row.check for row in TABLE.BREAKAGES}
    assert set(CHECKS) - broken == set()
    names = ("torch", "torch_npu", "torch-npu-pair", "verl", "ray", "verl.gone")
    assert {f"import.{name}" for name in names} <= broken


def test_rows_have_names_of_their_own() -> None:
    assert len({(row.check, row.name) for row in TABLE.BREAKAGES}) == len(TABLE.BREAKAGES)


@pytest.mark.parametrize("row", TABLE.BREAKAGES, ids=lambda row: f"{row.check}: {row.name}")
def test_a_row_breaks_something_with_a_command_that_the_shell_takes(row: object) -> None:
    assert row.command != "true" or row.env or row.shm_size != "16g" or row.arguments
    subprocess.run(["sh", "-n", "-c", row.command], check=True)
    assert row.explains(row.check)
    assert not row.explains("static.other")
    assert row.options[:2] == ("--level", row.level)
