"""What the Python of an image sees of it: standard library only, Python 3.8 or later.

This file's text runs inside the image (`cannery.against.io.read`): it imports nothing of Cannery, and no package.
"""

from __future__ import annotations

import glob
import importlib.metadata
import json
import os
import sys

# A toolkit's own note, also of a CANN that no base line knows.
TOOLKITS = ("/usr/local/Ascend/*/*/ascend_toolkit_install.info", "/usr/local/Ascend/*/*/*/ascend_toolkit_install.info")
TEXTS = ("/etc/os-release", "/usr/lib/os-release", "/opt/cannery/manifest.json")
MOST_BYTES = 1 << 24


def look(files: list[str], home: str, root: str = "", search: list[str] | None = None) -> dict[str, object]:
    """Return packages and texts, as JSON values.

    `files` have CANN's versions, each with whether it is below `home`, the folder of the CANN in use. `root` is where
    the image is, `search` the folders of packages: given by tests alone.
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
    """Return [name, version, requirements] of each package, in the order in which they are found."""
    found: list[list[object]] = []
    for one in importlib.metadata.distributions(path=sys.path if search is None else search):
        try:
            row: list[object] = [one.metadata["Name"], one.version or "", one.requires or []]
        except Exception:  # noqa: BLE001, S112 - whatever is wrong with the metadata of one
            continue
        found.append(row)
    return found


def read(path: str) -> str:
    """Return the text of a file; "" for none. A device or a pipe is never opened."""
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        pass
    return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(*json.loads(sys.argv[1]))))
