"""`engine` and `clean`: what Cannery keeps on this host."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING

from cannery.engine.io.find import docker_client, find_engine, own_engine
from cannery.engine.io.inspect import build_cache_bytes, remove_build_cache
from cannery.engine.own import engine as owned_engine
from cannery.engine.own.shell import shell_text
from cannery.errors import CanneryError, ExitCode
from cannery.store.io.store import Store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    import docker

    from cannery.context import Context
    from cannery.engine.io.find import Engine


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
    chosen, problem = _used(context)
    if context.is_json:
        own = {**asdict(status), "data_root": str(status.data_root), "log": str(status.log)}
        host = {"host": chosen.host, "version": chosen.server_version, "owned": chosen.owned} if chosen else None
        print(json.dumps({**own, "used": host, "problem": problem}, indent=2))
        return ExitCode.DONE
    print(f"used: {chosen.origin}, Docker {chosen.server_version}" if chosen else f"used: none: {problem}")
    state = f"runs, pid {status.pid}" if status.running else "does not run"
    print(f"own engine: {state}{f', version {status.version}' if status.version else ''}")
    print(f"  socket {status.host}\n  data {status.data_root}\n  log {status.log}")
    if status.cache_limit:
        print(f"  build cache of at most {status.cache_limit / 1e9:.1f} GB")
    return ExitCode.DONE


def _used(context: Context) -> tuple[Engine | None, str]:
    """Return the engine that a build would use, as docker's own settings (DOCKER_HOST, DOCKER_CONTEXT) name it."""
    try:
        return find_engine(context.env, context.cache, start=False, say=context.say), ""
    except CanneryError as error:
        return None, " at ".join(part for part in (error.what, error.where) if part)


def clean(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Show what Cannery holds on disk by kind; remove the kinds that are named."""
    places = _places(context)
    builds = _own_builds(context)
    for kind in arguments.kinds:
        if kind == "builds":
            Store(context.cache / "images").prune()
        if kind == "builds" and builds is not None:
            remove_build_cache(builds)
        if kind == "engine":
            owned_engine.remove_data(context.cache, context.env, context.say, packages=True)
        for place in places[kind]:
            shutil.rmtree(place, ignore_errors=False) if place.is_dir() else place.unlink(missing_ok=True)
    sizes = {kind: sum(_size(place) for place in paths) for kind, paths in places.items()}
    sizes["builds"] = build_cache_bytes(builds) if builds is not None and "engine" not in arguments.kinds else 0
    if context.is_json:
        print(json.dumps({"bytes": sizes, "removed": arguments.kinds}, indent=2))
        return ExitCode.DONE
    for kind, size in sizes.items():
        where = ", ".join(str(context.shown(p)) for p in places[kind]) or _builds_note(context, builds)
        note = "removed" if kind in arguments.kinds and (places[kind] or builds is not None) else where
        print(f"{kind:<9} {size / 1e6:>9.1f} MB  {note}")
    return ExitCode.DONE


def _places(context: Context) -> Mapping[str, tuple[Path, ...]]:
    cache = context.cache
    return {
        "wheels": (cache / "wheels", cache / "archives"),  # tarballs that 0.1.0 kept
        "layers": (cache / "layers",),
        "images": (cache / "images",),
        "engine": (cache / "engine",),
        "builds": (),  # in the engine's folder, and known to it alone
        "rootfs": (cache / "rootfs",),
        "locks": (cache / "locks", cache / "uv", cache / "catalog", cache / "pip"),
        "verified": (cache / "verified", cache / "log"),
        "out": (context.out,),
    }


def _own_builds(context: Context) -> docker.DockerClient | None:
    """Return a client of the own engine, for its build cache; None where it does not run."""
    own = owned_engine.running(context.cache)
    if own is None:
        return None
    return docker_client(own_engine(own))


def _builds_note(context: Context, builds: docker.DockerClient | None) -> str:
    """Return what is shown of the own engine's build cache beside its size."""
    limit = owned_engine.cache_limit(context.cache)
    if builds is None:
        return "known while Cannery's own engine runs (`build.py engine start`)"
    return f"the own engine's build cache, a part of the engine; of at most {limit / 1e9:.1f} GB"


def _size(place: Path) -> int:
    """Return bytes below `place`, each file once however many hard links it has."""
    seen: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(place):
        for name in names:
            found = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - many files
            seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


COMMANDS = {"engine": engine, "clean": clean}
