"""Entry point: `python build.py <command>`; `python build.py --help` lists them."""

from __future__ import annotations

import sys
from pathlib import Path

from cannery.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent))
