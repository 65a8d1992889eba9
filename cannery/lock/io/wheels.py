"""The files of locked packages, downloaded where the wheelhouse lacks them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cannery.lock.io.wheel_store import is_there, missing_bytes, store_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.lock.lock import LockedPackage


def fetch_wheels(
    context: Context,
    catalog: Catalog,
    packages: Sequence[LockedPackage],
    what: str = "wheels",
) -> Mapping[str, Path]:
    """Return {name: file} of locked packages, downloaded where the wheelhouse lacks them."""
    if all(is_there(package, context.cache) for package in packages):
        return {package.name: store_path(package, context.cache) for package in packages}
    from cannery.lock.io.wheelhouse import fetch  # noqa: PLC0415 - brings network libraries

    progress = Download(context.say, missing_bytes(packages, context.cache), what)
    return fetch(packages, catalog.indexes, context.pip, context.cache, progress)


class Download:
    """Says how far a download is: once at its start, then at most every five seconds."""

    def __init__(self, say: Callable[[str], None], total: int, what: str) -> None:
        self.say = say
        self.what = what
        self.total = total
        self.received: dict[str, int] = {}
        self.spoken = time.monotonic()
        if total:
            say(f"fetching {self.what}: {total / 1e6:.0f} MB")

    def __call__(self, package: LockedPackage, received: int, size: int) -> None:  # noqa: ARG002 - Progress
        """Count bytes of one file."""
        self.received[package.name] = received
        now = time.monotonic()
        if now - self.spoken >= 5:
            self.spoken = now
            self.say(f"fetching {self.what}: {sum(self.received.values()) / 1e6:.0f} of {self.total / 1e6:.0f} MB")
