"""Rewrite requirements.txt (Cannery's dependencies) and requirements-dev.txt (those of tests and linters), with hashes.

.venv/bin/python tools/relock.py [--upgrade]
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).resolve().parent.parent
ENTRY = re.compile(r"^(?=[A-Za-z0-9])", re.MULTILINE)


def main() -> None:
    """Resolve both sets; the second has only packages that the first does not have."""
    upgrade = [word for word in sys.argv[1:] if word == "--upgrade"]
    runtime, dev = ROOT / "requirements.txt", ROOT / "requirements-dev.txt"
    head = "# Made by tools/relock.py from pyproject.toml; `make relock` rewrites it.\n"
    with tempfile.TemporaryDirectory() as folder:
        both = Path(folder, "both.txt")
        resolve(runtime, *upgrade)
        resolve(both, *upgrade, *groups("test", "lint", "docs", "build"), "--constraints", str(runtime))
        known = {entry.split("==")[0] for entry in ENTRY.split(runtime.read_text()) if "==" in entry}
        entries = [e for e in ENTRY.split(both.read_text()) if "==" in e and e.split("==")[0] not in known]
    runtime.write_text(head + runtime.read_text().removeprefix(head))
    dev.write_text(head + "".join(entries))


def groups(*names: str) -> list[str]:
    """Return the options that name dependency groups of pyproject.toml."""
    return [word for name in names for word in ("--group", name)]


def resolve(output: Path, *options: str) -> None:
    """Run uv pip compile for every platform, with hashes and without index URLs."""
    command = (
        find_uv_bin(), "pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.11",
        "--generate-hashes", "--no-header", "--no-emit-index-url", "--quiet", "--output-file", str(output), *options,
    )  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
