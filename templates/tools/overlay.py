"""Lays files that were patched before the build over a source's tree, and looks whether a wheel of it has them.

`step["patched"]` of a step's file: `path`, `before` and `after` (hex SHA-256, null for a file that is not there),
`executable`, and `installed`: its place below site-packages where a wheel brings it, or null. The content of each
stands in the folder /run/cannery/patched, named by its hash.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

PATCHED = Path("/run/cannery/patched")


def lay_over(step: dict[str, Any], home: Path) -> None:
    """Write the patched files of a step below `home`. Ends the stage when the tree is not the one that was patched."""
    for file in step.get("patched", ()):
        path = home / file["path"]
        if digest(path) != file["before"]:
            sys.exit(f"{step['name']}: {file['path']} is not the file that was patched: render the folder anew")
        if file["after"] is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((PATCHED / file["after"]).read_bytes())
        path.chmod(0o755 if file["executable"] else 0o644)


def check_installed(step: dict[str, Any], site: Path) -> None:
    """End the stage unless each patched file that a wheel brings stands in `site` (site-packages) as patched."""
    for file in step.get("patched", ()):
        if file["installed"] is not None and digest(site / file["installed"]) != file["after"]:
            sys.exit(f"{step['name']}: {file['installed']} is not as patched once it is installed")


def digest(path: Path) -> str | None:
    """Return the hex SHA-256 of a file; None when there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else None
