"""Entry point: `python3 build.py <command>`; `python3 build.py --help` lists them.

Started by a Python outside any virtual environment, it continues in .venv, which it makes where it is missing or stale.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def enter_venv() -> None:
    """Continue as .venv's Python, unless the user has activated a virtual environment."""
    if sys.prefix != sys.base_prefix:
        return
    made = subprocess.run((sys.executable, ROOT / "tools/setup_venv.py"), check=False)
    if made.returncode != 0:
        sys.exit(made.returncode)
    python = ROOT / ".venv/bin/python"
    os.execv(python, (python, str(ROOT / "build.py"), *sys.argv[1:]))  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        from cannery import __version__

        print(f"cannery {__version__}")
        sys.exit(0)
    try:
        enter_venv()
        from cannery.cli import main
    except KeyboardInterrupt:  # from there on it is main's
        sys.exit(130)
    # tools/make_command.py sets it: messages then name make's targets.
    sys.exit(main(sys.argv[1:], ROOT, program=os.environ.pop("CANNERY_PROGRAM", "build.py")))
