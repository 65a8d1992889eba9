"""Which files of an image tell what is in it, and the walk that reads them: standard library only, Python 3.7 at least.

This file's text also runs inside the image, by whatever Python is there (`cannery.against.io.inventory`): it stands
alone. Files are read up to a limit; of those that may hold secrets only the path is noted.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What tells nothing: other file systems, and what is many files.
PRUNED = re.compile(r"^/(proc|sys|dev)$|/(__pycache__|node_modules)$|/\.git/(objects|logs|hooks)$")
# Files whose text is wanted.
READ = re.compile(
    r"""\.dist-info/(METADATA|direct_url\.json)$
    |\.egg-info(/PKG-INFO)?$|\.egg/EGG-INFO/PKG-INFO$|\.egg-link$|/pyvenv\.cfg$
    |/\.git$|/\.git/(modules/.+/)?(HEAD|packed-refs|config|refs/heads/.+)$
    |^/(etc|usr/lib)/os-release$|^/opt/cannery/manifest\.json$
    |^/etc/pip\.conf$|/\.(config/)?pip/pip\.conf$
    |^/usr/local/Ascend/.*(\.info|version\.cfg)$""",
    re.VERBOSE,
)
# Links that lead to such files, whatever they are called: CANN's `latest`, /lib, libraries.
LINKS = re.compile(r"^/[^/]+$|^/usr/local/Ascend/|^/etc/os-release$|\.so(\.\d+)*$")
# Files that say too much: the path is noted, the content is not looked at.
PRIVATE = re.compile(
    r"/\.(netrc|git-credentials|pypirc|bash_history|python_history)$|/\.docker/config\.json$|/\.ssh/id_[^./]+$"
    r"|/\.cache/huggingface/token$"
)
# Folders that only cost place, with the bytes in them.
CACHES = re.compile(
    r"^(.*/\.cache/(?:pip|uv|huggingface|modelscope|torch)|/var/cache/(?:apt|dnf|yum)|/var/lib/apt/lists)(/|$)"
)
MOST_BYTES = 1 << 20
# Name and version stand at the top, above a description of many pages.
HEAD_BYTES = 4096


class Look:
    """What was found: texts and links by path, paths that are there, bytes of caches by folder.

    `suffixes` are ends of paths whose text is wanted too, `folders` (parts of paths) whose patches are noted, `exists`
    libraries that are asked for: those of their names are noted wherever they stand, since a link may lead there.
    """

    def __init__(self, suffixes: Iterable[str] = (), folders: Iterable[str] = (), exists: Iterable[str] = ()) -> None:
        self.suffixes = tuple("/" + suffix for suffix in suffixes)
        self.folders = tuple("/" + folder + "/" for folder in folders)
        self.libraries = frozenset(_library(path) for path in exists)
        self.texts: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.present: list[str] = []
        self.caches: dict[str, int] = {}

    def wants(self, path: str) -> bool:
        """Note a file at `path` where its being there says something; return whether its text is wanted."""
        is_patch = path.endswith(".patch") and any(folder in path for folder in self.folders)
        is_library = ".so" in path and _library(path) in self.libraries
        if is_patch or is_library or PRIVATE.search(path):
            self.present.append(path)
        return bool(READ.search(path)) or path.endswith(self.suffixes or ("\0",))

    def keep(self, path: str, data: bytes) -> None:
        """Note the text of a file."""
        most = HEAD_BYTES if path.endswith(("METADATA", "PKG-INFO", ".egg-info")) else MOST_BYTES
        self.texts[path] = data[:most].decode("utf-8", "replace")

    def link(self, path: str, target: str) -> None:
        """Note a symbolic link."""
        if LINKS.search(path):
            self.links[path] = target

    def cached(self, path: str, size: int) -> None:
        """Count a file's bytes where it stands in a cache."""
        match = CACHES.search(path)
        if match:
            self.caches[match.group(1)] = self.caches.get(match.group(1), 0) + size

    def value(self) -> dict[str, object]:
        """Return all of it as JSON values."""
        return {"texts": self.texts, "links": self.links, "present": sorted(self.present), "caches": self.caches}


def _library(path: str) -> str:
    return path.rpartition("/")[2].split(".so")[0]


def walk(look: Look, root: str = "") -> None:
    """Look at every file below `root` ("" is the whole system); what cannot be read is passed over."""
    for folder, folders, files in os.walk(root or "/"):
        inside = folder[len(root) :].rstrip("/")
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if name not in links and not PRUNED.search(inside + "/" + name)]
        in_cache = CACHES.search(inside) is not None
        for name in links + files:
            try:
                _visit(look, inside + "/" + name, os.path.join(folder, name), in_cache=in_cache)
            except OSError:
                continue


def _visit(look: Look, path: str, real: str, *, in_cache: bool) -> None:
    if os.path.islink(real):
        look.link(path, os.readlink(real))
        return
    if in_cache:
        look.cached(path, os.lstat(real).st_size)
    # A device or a pipe is never opened.
    if look.wants(path) and os.path.isfile(real):
        with open(real, "rb") as file:
            look.keep(path, file.read(MOST_BYTES))


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    found = Look(asked["suffixes"], asked["folders"], asked["exists"])
    walk(found)
    sys.stdout.write(json.dumps(found.value()))
