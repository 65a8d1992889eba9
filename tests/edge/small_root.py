"""A root file system of a few programs of this host, for boxes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

PROGRAMS = (
    "sh",
    "cat",
    "cp",
    "echo",
    "env",
    "ln",
    "ls",
    "mkdir",
    "mv",
    "rm",
    "sleep",
    "touch",
    "chmod",
    "chown",
    "find",
)


def small_root(folder: Path) -> Path:
    """Make a root with `PROGRAMS` and their libraries; return its folder."""
    (folder / "bin").mkdir(parents=True)
    (folder / "tmp").mkdir()
    (folder / "usr").mkdir()
    (folder / "usr/bin").symlink_to("../bin")
    for name in PROGRAMS:
        program = Path(shutil.which(name) or "")
        shutil.copy2(program.resolve(), folder / "bin" / name)
        listed = subprocess.run(("ldd", program), capture_output=True, text=True, check=True).stdout
        for library in map(Path, re.findall(r"(/\S+) \(0x", listed)):
            copy = folder / library.relative_to("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists():
                shutil.copy2(library.resolve(), copy)
    return folder
