"""Free disk, checked before the first step, so that no build fails for it after half an hour."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.lock.io.wheels import missing_bytes
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.engine.io.find import Engine
    from cannery.lock.lock import Lock
    from cannery.plan import Plan

# Bytes on the engine's disk per byte of wheel: unpacked with .pyc about 3.4 (seen: 420 MB of wheels, 1.4 GB), once in
# the stage and once in the image, and the build context's copy of the wheels.
ENGINE_FACTOR = 8
# The stand-in as a base, with room to spare: the least that any base takes. A CANN base is many times that.
BASE_BYTES = 1_500_000_000
# Debian packages, the system that is made of them and its tar: 360 MB at the end, about three times that between.
STANDIN_BYTES = 1_100_000_000
# Of a layer of libraries gzip leaves a third (seen: 2.7 GB, 870 MB); less than this it leaves of no image of ours.
PACKED = 0.25
HINT = "free some (`build.py clean` shows what Cannery holds), or set CANNERY_CACHE to another disk"


def check_output_space(path: Path, size: int) -> None:
    """Raise `UnableError` with numbers where a bundle of an image of `size` bytes cannot fit at `path`.

    The least that it can take is needed, so that nothing is refused that would fit. A file
    at `path` keeps its room until the new one is whole.
    """
    hint = "free some, or name a file on another disk with --output"
    _need(path.parent, _free(path.parent), int(size * PACKED), path.name, hint)


def check_cache_space(cache: Path, plan: Plan) -> None:
    """Raise `UnableError` with numbers when the cache cannot hold what is still to be fetched: before anything is."""
    needed = missing_bytes(plan.lock.packages, cache)
    if plan.recipe.base.kind is BaseKind.STANDIN and not any((cache / "rootfs").glob("*.tar")):
        needed += STANDIN_BYTES
    _need(cache, _free(cache), needed, "what is to be fetched")


def check_engine_space(engine: Engine, plan: Plan) -> None:
    """Raise `UnableError` with numbers when the engine's data root cannot hold what the build adds.

    What the engine already has of the layers and the base is not known before the build, so a rebuild needs the same
    room: half of the estimate, with the least that any base takes, is enough.
    """
    if engine.data_root is not None:
        needed = (layers_bytes(plan.lock) + BASE_BYTES) // 2
        _need(engine.data_root, _free(engine.data_root), needed, "layers")


def check_store_space(folder: Path, plan: Plan) -> None:
    """Raise `UnableError` with numbers where the disk of the image store cannot hold what is made there.

    That is layers as gzip, about as many bytes as their wheels, and unpacked; half of the estimate as for an engine.
    """
    _need(folder, _free(folder), layers_bytes(plan.lock) // 4, "layers")


def layers_bytes(lock: Lock) -> int:
    """Return the bytes that building the layers of a lock's wheels takes on the engine's disk, about."""
    return sum(package.size for package in lock.packages) * ENGINE_FACTOR


def _need(place: Path, free: int, needed: int, what: str, hint: str = HINT) -> None:
    if free < needed:
        words = f"not enough disk for {what}: {needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} MB free"
        raise UnableError(words, where=str(place), hint=hint)


def _free(path: Path) -> int:
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
