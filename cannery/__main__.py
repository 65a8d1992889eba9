"""`cannery` and `python -m cannery`: the program without its checkout's build.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cannery import __version__

PACKAGE = Path(__file__).resolve().parent


def console() -> int:
    """Run one command and return its exit code.

    In a checkout, also one that is installed as editable, its images/ and templates/ are used, and locks and out/ are
    written there. Otherwise the package's own data are used, and the working folder is written to.
    """
    if sys.argv[1:] == ["--version"]:  # without the parser's libraries
        print(f"cannery {__version__}")
        return 0
    from cannery.cli import main  # noqa: PLC0415

    checkout = PACKAGE.parent
    if (checkout / "images").is_dir() and (checkout / "templates").is_dir():
        return main(sys.argv[1:], checkout, program="cannery")
    try:
        work = Path.cwd()
    except FileNotFoundError:
        print("error: the working folder was removed\n  → change to another folder", file=sys.stderr)
        os._exit(2)
    return main(sys.argv[1:], PACKAGE / "_data", program="cannery", work=work)


if __name__ == "__main__":
    sys.exit(console())
