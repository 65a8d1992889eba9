"""The rules of the house hold, and a breach of each is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent
# A module, and a line that breaks one rule there.
BREACHES = {
    "Each folder uses only the folders below it in this list": (
        "cannery/catalog/target.py",
        "from cannery.ship import published",
    ),
    "Each io folder uses only the io folders below it in this list": (
        "cannery/catalog/io/read.py",
        "from cannery.verify.io import run",
    ),
    "Pure code has no effects": ("cannery/plan/__init__.py", "import subprocess"),
    "Only commands and the pipeline take the Context of a run": (
        "cannery/ship/published.py",
        "from cannery.context import Context",
    ),
}
BANNED = (
    "import os\nos.environ",
    "import datetime\ndatetime.datetime.now()",
    "from pathlib import Path",
    "import random",
)


def contracts(root: Path) -> list[str]:
    """Run import-linter on a tree; return the lines with its verdicts."""
    done = subprocess.run(
        (BIN / "lint-imports", "--no-logo", "--no-cache"),
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if " KEPT" in line or " BROKEN" in line]
    assert found, done.stdout + done.stderr
    return found


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The verdicts on a copy of the product that breaks every contract once."""
    root = tmp_path_factory.mktemp("house")
    shutil.copytree(ROOT / "cannery", root / "cannery", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for name, line in BREACHES.values():
        path = root / name
        path.write_text(path.read_text() + f"\n{line}\n")
    return contracts(root)


@pytest.mark.parametrize("contract", BREACHES)
def test_a_breach_of_a_contract_is_found(broken: list[str], contract: str) -> None:
    (verdict,) = [line for line in broken if line.startswith(contract)]
    assert "BROKEN" in verdict


@pytest.mark.parametrize("text", BANNED)
def test_pure_code_reads_no_surroundings(text: str) -> None:
    done = subprocess.run(
        (BIN / "ruff", "check", "--select", "TID251", "--stdin-filename", "cannery/plan/__init__.py", "-"),
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TID251" in done.stdout, done.stdout
