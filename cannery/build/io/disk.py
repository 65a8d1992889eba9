"""Check the free disk before the first step, so that no build fails for it after half an hour."""

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
# Debian packages, the system made of them and its tar: 360 MB at the end, up to three times that in between.
STANDIN_BYTES = 1_100_000_000
# gzip makes a third of a layer of libraries (seen: 2.7 GB, 870 MB), and of none of our images less than this.
PACKED = 0.25
HINT = "free some (`build.py clean` shows what Cannery holds), or set CANNERY_CACHE to another disk"


def check_output_space(path: Path, size: int) -> None:
    """Raise `UnableError` if a bundle of an image of `size` bytes cannot fit at `path`.

    Only the smallest possible size is required, so that nothing is refused that would fit. A file that is at `path`
    stays until the new one is complete.
    """
    hint = "free some, or name a file on another disk with --output"
    _need(path.parent, int(size * PACKED), path.name, hint)


def check_cache_space(cache: Path, plan: Plan) -> None:
    """Raise `UnableError` if the cache cannot hold what is still to be fetched."""
    needed = missing_bytes(plan.lock.packages, cache)
    if plan.recipe.base.kind is BaseKind.STANDIN and not any((cache / "rootfs").glob("*.tar")):
        needed += STANDIN_BYTES
    _need(cache, needed, "the files to fetch")


def check_engine_space(engine: Engine, plan: Plan) -> None:
    """Raise `UnableError` if the engine's data root cannot hold what the build adds.

    Nobody knows before the build which layers the engine already has. So half of the estimate is required, with the
    smallest size of a base.
    """
    if engine.data_root is not None:
        _need(engine.data_root, (layers_bytes(plan.lock) + BASE_BYTES) // 2, "layers")


def check_store_space(folder: Path, plan: Plan) -> None:
    """Raise `UnableError` if the disk of the image store cannot hold the layers.

    They are kept as gzip, about as large as their wheels, and unpacked. Half of the estimate is required, as above.
    """
    _need(folder, layers_bytes(plan.lock) // 4, "layers")


def layers_bytes(lock: Lock) -> int:
    """Return about how many bytes the engine's disk needs to build the layers of a lock's wheels."""
    return sum(package.size for package in lock.packages) * ENGINE_FACTOR


def _need(place: Path, needed: int, what: str, hint: str = HINT) -> None:
    free = _free(place)
    if free < needed:
        words = f"not enough disk for {what}: {needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} MB free"
        raise UnableError(words, where=str(place), hint=hint)


def _free(path: Path) -> int:
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
