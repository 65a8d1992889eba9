"""What all tests share: the builders of tests/unit/factories.py are importable everywhere, and goldens are rewritten on
purpose only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# `--import-mode=importlib` leaves sys.path alone: the folders whose builders and fakes tests share by name.
sys.path[:0] = [str(ROOT / "tests/unit"), str(ROOT / "tests/edge")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-goldens", action="store_true", help="rewrite tests/golden/files from what is rendered")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--rewrite-goldens") and os.environ.get("CI", "").lower() == "true":
        raise pytest.UsageError("--rewrite-goldens is refused where CI=true: a golden is rewritten by a person")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT
