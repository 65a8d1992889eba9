"""Where the wheelhouse keeps a locked file. Apart from `wheelhouse`, whose network libraries a full store spares."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cannery.core.lock import LockedPackage


def store_path(package: LockedPackage, cache: Path) -> Path:
    """Return where the file of `package` lies once it is there."""
    return cache / "wheels" / package.sha256[:2] / package.sha256 / package.file


def is_there(package: LockedPackage, cache: Path) -> bool:
    """Whether the file is in the store. It got there by its hash, so only its size is looked at."""
    try:
        return package.complete and store_path(package, cache).stat().st_size == package.size
    except OSError:
        return False


def missing_bytes(packages: Sequence[LockedPackage], cache: Path) -> int:
    """Return how many bytes of `packages` are not in the store yet."""
    return sum(package.size for package in packages if not is_there(package, cache))
