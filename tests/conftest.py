"""What all tests share: the builders of tests/unit/factories.py are importable everywhere, and goldens are rewritten on
purpose only.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from cannery.catalog.io import read as catalog_read

if TYPE_CHECKING:
    from collections.abc import Iterator

# A busy machine is no failure: pytest's own time-out ends a test that hangs.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Where a person waits, a property is tried with fewer examples than in CI.
settings.register_profile("waited for", settings.get_profile("any machine"), max_examples=40)
settings.load_profile("any machine" if os.environ.get("CI", "").lower() == "true" else "waited for")

ROOT = Path(__file__).resolve().parent.parent
# Seconds that one test of an engine may take, with the fixtures that it is the first to ask for.
ENGINE_SECONDS = 2400
# A file of a catalog is parsed once: thousands of tests read the same sixty. Nothing writes to what is parsed;
# `cannery.catalog.documents` itself, which its tests call, is as it was.
catalog_read.parse_yaml = lru_cache(maxsize=1024)(catalog_read.parse_yaml)
# `--import-mode=importlib` leaves sys.path alone: the folders whose builders and fakes tests share by name.
sys.path[:0] = [str(ROOT / "tests/unit"), str(ROOT / "tests/edge")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-goldens", action="store_true", help="rewrite tests/golden/files from what is rendered")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--rewrite-goldens") and os.environ.get("CI", "").lower() == "true":
        raise pytest.UsageError("--rewrite-goldens is refused where CI=true: a golden is rewritten by a person")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of an engine a time limit of their own: a build with a cold cache takes long."""
    for item in items:
        if item.get_closest_marker("engine") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(ENGINE_SECONDS))


# What a run in the background (nohup, some CI) ignores, and so would every process that a test starts.
ENDING = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL}


@pytest.fixture(scope="session", autouse=True)
def heeds_signals() -> Iterator[None]:
    """Let tests and their child processes get the signals that end a run."""
    ignored = [number for number in ENDING if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, ENDING[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def no_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let no test read the settings of this machine's user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-settings"))
        for name in [name for name in os.environ if name.startswith("CANNERY_") and name != "CANNERY_CACHE"]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT
