"""`python -m cannery`."""

import sys

from cannery.cli.installed import console

if __name__ == "__main__":
    sys.exit(console())
