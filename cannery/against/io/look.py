"""Print what an image contains, as its own Python sees it.

`cannery.against.io.read` runs this file inside the image. It needs Python 3.8 and only the standard library.
"""

from __future__ import annotations

import glob
import importlib.metadata
import json
import os
import sys

# Every toolkit writes this file, also that of a CANN that the catalog does not have.
TOOLKITS = ("/usr/local/Ascend/*/*/ascend_toolkit_install.info", "/usr/local/Ascend/*/*/*/ascend_toolkit_install.info")
TEXTS = ("/etc/os-release", "/usr/lib/os-release", "/opt/cannery/manifest.json")
MOST_BYTES = 1 << 24


def look(files: list[str], home: str, root: str = "", search: list[str] | None = None) -> dict[str, object]:
    """Return packages and texts, as JSON values.

    `files` hold CANN's versions; each is returned with whether it is below `home`, the folder of the CANN in use.
    Only tests give `root`, the root of the image, and `search`, the folders of packages.
    """
    found = [path[len(root) :] for pattern in TOOLKITS for path in glob.glob(root + pattern)]
    used = os.path.realpath(root + home) + "/"
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "prefix": sys.prefix,
        "packages": list(packages(search)),
        "texts": {path: text for path in TEXTS if (text := read(root + path))},
        "versions": {
            path: [os.path.realpath(root + path).startswith(used), text]
            for path in {*files, *found}
            if (text := read(root + path))
        },
    }


def packages(search: list[str] | None) -> list[list[object]]:
    """Return [name, version, requirements] of each package, in the order of the search path."""
    found: list[list[object]] = []
    for one in importlib.metadata.distributions(path=sys.path if search is None else search):
        try:
            row: list[object] = [one.metadata["Name"], one.version or "", one.requires or []]
        except Exception:  # noqa: BLE001, S112 - a package with broken metadata is skipped
            continue
        found.append(row)
    return found


def read(path: str) -> str:
    """Return the text of a file; "" if it does not exist. Devices and pipes are not opened."""
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        pass
    return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(*json.loads(sys.argv[1]))))
