"""`clean`: what Cannery keeps on this host."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

from cannery.errors import ExitCode
from cannery.store.io.store import Store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.context import Context


def clean(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Show what Cannery holds on disk by kind; remove the kinds that are named."""
    places = _places(context)
    freed = Store(context.cache / "images").prune() if "builds" in arguments.kinds else 0
    for place in (place for kind in arguments.kinds for place in places[kind]):
        shutil.rmtree(place, ignore_errors=False) if place.is_dir() else place.unlink(missing_ok=True)
    sizes = {kind: sum(_size(place) for place in paths) for kind, paths in places.items()}
    if context.is_json:
        print(json.dumps({"bytes": sizes, "removed": arguments.kinds}, indent=2))
        return ExitCode.DONE
    for kind, size in sizes.items():
        where = ", ".join(str(context.shown(p)) for p in places[kind]) or "a part of images: what none of them has"
        note = "removed" if kind in arguments.kinds else where
        note += f": {freed / 1e6:.1f} MB of layers that no image has" if kind == "builds" and freed else ""
        print(f"{kind:<9} {size / 1e6:>9.1f} MB  {note}")
    return ExitCode.DONE


def _places(context: Context) -> Mapping[str, tuple[Path, ...]]:
    cache = context.cache
    return {
        "wheels": (cache / "wheels", cache / "archives"),  # tarballs that 0.1.0 kept
        "layers": (cache / "layers",),
        "images": (cache / "images",),
        "builds": (),  # below images
        "rootfs": (cache / "rootfs",),
        "locks": (cache / "locks", cache / "uv", cache / "catalog", cache / "pip"),
        "verified": (cache / "verified", cache / "log"),
        "out": (context.out,),
    }


def _size(place: Path) -> int:
    """Return bytes below `place`, each file once however many hard links it has."""
    seen: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(place):
        for name in names:
            found = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - many files
            seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


COMMANDS = {"clean": clean}
