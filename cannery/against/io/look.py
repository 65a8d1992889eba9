"""Which files of an image show what is in it, and the walk that reads them: standard library only, Python 3.7 or later.

This file's text also runs inside the image, by whatever Python is there (`cannery.against.io.read`): it imports nothing
of Cannery.
"""

from __future__ import annotations

import json
import os
import re
import sys

# Other file systems, and folders of many files that show nothing.
PRUNED = re.compile(r"^/(proc|sys|dev)$|/(__pycache__|node_modules|\.git)$")
# Files whose text is wanted.
READ = re.compile(
    r"""\.dist-info/(METADATA|direct_url\.json)$
    |\.egg-info(/PKG-INFO)?$|\.egg/EGG-INFO/PKG-INFO$|\.egg-link$|/pyvenv\.cfg$
    |^/(etc|usr/lib)/os-release$|^/opt/cannery/manifest\.json$
    |^/usr/local/Ascend/.*(\.info|version\.cfg)$""",
    re.VERBOSE,
)
# Links that lead to such files or to libraries: CANN's `latest`, /lib.
LINKS = re.compile(r"^/[^/]+$|^/usr/local/Ascend/|^/etc/os-release$|\.so(\.\d+)*$")
MOST_BYTES = 1 << 20


class Look:
    """What was found: `texts` and `links` by path, and the paths of `libraries` (names without `.so...`)."""

    def __init__(self, libraries: list[str]) -> None:
        self.libraries = frozenset(libraries)
        self.texts: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.present: list[str] = []

    def wants(self, path: str) -> bool:
        """Note a library at `path`; return whether the text of the file is wanted."""
        if ".so" in path and path.rpartition("/")[2].split(".so")[0] in self.libraries:
            self.present.append(path)
        return bool(READ.search(path))

    def keep(self, path: str, data: bytes) -> None:
        """Note the text of a file; of a package's metadata only the fields, without the description below them."""
        text = data.decode("utf-8", "replace")
        is_metadata = path.endswith(("METADATA", "PKG-INFO", ".egg-info"))
        self.texts[path] = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0] if is_metadata else text

    def link(self, path: str, target: str) -> None:
        """Note a symbolic link."""
        if LINKS.search(path):
            self.links[path] = target

    def value(self) -> dict[str, object]:
        """Return all of it as JSON values."""
        return {"texts": self.texts, "links": self.links, "present": sorted(self.present)}


def walk(look: Look, root: str = "") -> None:
    """Look at every file below `root` ("" is the whole system); files that cannot be read are skipped."""
    for folder, folders, files in os.walk(root or "/"):
        inside = folder[len(root) :].rstrip("/")
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if name not in links and not PRUNED.search(inside + "/" + name)]
        for name in links + files:
            path, real = inside + "/" + name, os.path.join(folder, name)
            try:
                if os.path.islink(real):
                    look.link(path, os.readlink(real))
                elif look.wants(path) and os.path.isfile(real):  # a device or a pipe is never opened
                    with open(real, "rb") as file:
                        look.keep(path, file.read(MOST_BYTES))
            except OSError:
                continue


if __name__ == "__main__":
    found = Look(json.loads(sys.argv[1]))
    walk(found)
    sys.stdout.write(json.dumps(found.value()))
