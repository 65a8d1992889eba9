"""The image that is looked at: its files by their paths there, and the process that looks."""

import glob
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

MANIFEST = "/opt/cannery/manifest.json"
VENV = "/opt/venv"
OVERLAY = "/opt/user"  # of an image with a user: where pip installs
T = TypeVar("T")


class Entry(NamedTuple):
    """One name of a tree, not followed when it is a link."""

    path: str
    mode: int
    size: int


@dataclass(frozen=True)
class Options:
    """What the command line asked for. `timeout` is the longest silence of a child, in seconds.

    `scratch` is where the level train writes; "" is a folder that is removed when the checks are done.
    """

    timeout: float = 300.0
    no_device: bool = False
    require_npu: bool = False
    scratch: str = ""


@dataclass(frozen=True)
class Image:
    """The manifest, and the file system and process it is compared with. `root` is "/" but for tests."""

    manifest: Mapping[str, Any]
    root: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    options: Options = Options()
    manifest_path: str = MANIFEST
    memory: dict[str, Any] = field(default_factory=dict)  # values that several checks need, computed once

    def path(self, path: str) -> str:
        """Where an absolute path of the image is on this machine."""
        return path if self.root == "/" else self.root + path

    def shown(self, path: str) -> str:
        """The reverse of `path`, for messages."""
        return path if self.root == "/" or not path.startswith(self.root + "/") else path[len(self.root) :]

    def exists(self, path: str) -> bool:
        """Whether an absolute path of the image exists, links followed."""
        return os.path.exists(self.path(path))

    def text(self, path: str) -> str:
        """A file of the image as text, with odd bytes replaced; "" when it cannot be read."""
        return read_text(self.path(path))

    def find(self, pattern: str) -> list[str]:
        """The absolute paths of the image that match a glob pattern, sorted."""
        return sorted(self.shown(path) for path in glob.glob(self.path(pattern), recursive=True))

    def first(self, paths: Iterable[str]) -> str:
        """The first of some absolute paths of the image that exists; "" when none does."""
        return next(filter(self.exists, paths), "")

    def remember(self, key: str, make: Callable[[], T]) -> T:
        """The value of `make()`, computed once."""
        if key not in self.memory:
            self.memory[key] = make()
        value: T = self.memory[key]
        return value

    @property
    def python(self) -> str:
        """The interpreter that users of the image get."""
        return self.path(f"{VENV}/bin/python")

    @property
    def site(self) -> str:
        """The site-packages folder of the venv, on this machine."""

        def look() -> str:
            found = self.find(f"{VENV}/lib/python3*/site-packages")
            if not found:
                raise LookupError(f"{VENV}/lib/python3*/site-packages does not exist")
            return self.path(found[0])

        return self.remember("site", look)  # asked for once a file of the manifest's distributions

    def tree(self, path: str) -> list[Entry]:
        """All names below an absolute path of the image, links not followed; walked once.

        Files that appeared since `began` are no part of the image.
        """
        until = self.memory.get("began", float("inf"))
        return self.remember(f"tree {path}", lambda: walk(self.path(path), until))

    def begin(self) -> None:
        """Notes that from now on imports run, which could leave files in the image."""
        self.memory["began"] = time.time()


def walk(folder: str, until: float = float("inf")) -> list[Entry]:
    """All names below a folder, but for files that were made or changed after `until`, in seconds since the epoch.

    Folders that cannot be read are left out (static.readable finds them by their mode).
    """
    found: list[Entry] = []
    folders = [folder]
    for place in folders:  # which grows
        with suppress(OSError), os.scandir(place) as names:
            for name in names:
                try:
                    about = name.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(about.st_mode):
                    folders.append(name.path)
                elif about.st_ctime > until:
                    continue
                found.append(Entry(name.path, about.st_mode, about.st_size))
    return found


def read_text(path: str) -> str:
    """A file as text, with odd bytes replaced; "" when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def digest_of(path: str) -> str:
    """SHA-256 of a file, as hex."""
    result = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            result.update(block)
    return result.hexdigest()


def below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path lies in one of the folders, links followed."""
    real = os.path.realpath(path)
    return any(real.startswith(os.path.realpath(folder) + os.sep) for folder in folders)


def within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it, links followed."""
    return os.path.realpath(path) == os.path.realpath(folder) or below(path, [folder])
