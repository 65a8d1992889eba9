"""`engine` and `clean`: what Cannery keeps on this host."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING

from cannery.engine.io.find import find_engine
from cannery.engine.own import engine as owned_engine
from cannery.engine.own.shell import shell_text
from cannery.errors import ExitCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.context import Context


def engine(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Start, stop or describe Cannery's own engine; `start` uses the host's own engine where there is one."""
    if arguments.action == "stop":
        stopped = owned_engine.stop(context.cache, context.env, context.say)
        context.say("stopped Cannery's own engine" if stopped else "Cannery's own engine is not running")
        return ExitCode.DONE
    if arguments.action == "env":
        used = find_engine(context.env, context.cache, start=True, say=context.say)
        print(shell_text(used, context.cache, context.env), end="")
        return ExitCode.DONE
    if arguments.action == "start":
        found = find_engine(context.env, context.cache, start=True, say=context.say)
        kind = "Cannery's own" if found.owned else "this host's"
        print(f"{kind} engine {found.server_version} at {found.host}")
        return ExitCode.DONE
    status = owned_engine.status(context.cache)
    if context.is_json:
        print(json.dumps({**asdict(status), "data_root": str(status.data_root), "log": str(status.log)}, indent=2))
        return ExitCode.DONE
    state = f"runs, pid {status.pid}" if status.running else "does not run"
    print(f"own engine: {state}{f', version {status.version}' if status.version else ''}")
    print(f"  socket {status.host}\n  data {status.data_root}\n  log {status.log}")
    return ExitCode.DONE


def clean(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Show what Cannery holds on disk by kind; remove the kinds that are named."""
    places = _places(context)
    for kind in arguments.kinds:
        if kind == "engine":
            owned_engine.remove_data(context.cache, context.env, context.say, packages=True)
        for place in places[kind]:
            shutil.rmtree(place, ignore_errors=False) if place.is_dir() else place.unlink(missing_ok=True)
    sizes = {kind: sum(_size(place) for place in paths) for kind, paths in places.items()}
    if context.is_json:
        print(json.dumps({"bytes": sizes, "removed": arguments.kinds}, indent=2))
        return ExitCode.DONE
    for kind, size in sizes.items():
        note = "removed" if kind in arguments.kinds else ", ".join(str(context.shown(p)) for p in places[kind])
        print(f"{kind:<9} {size / 1e6:>9.1f} MB  {note}")
    return ExitCode.DONE


def _places(context: Context) -> Mapping[str, tuple[Path, ...]]:
    cache = context.cache
    return {
        "wheels": (cache / "wheels", cache / "archives"),
        "engine": (cache / "engine",),
        "rootfs": (cache / "rootfs",),
        "locks": (cache / "locks", cache / "uv"),
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


COMMANDS = {"engine": engine, "clean": clean}
