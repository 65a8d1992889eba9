"""Where the wheelhouse keeps a locked file. Apart from `wheelhouse`, whose network libraries a full store spares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.util.io.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cannery.lock.lock import LockedPackage


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


def damaged(packages: Sequence[LockedPackage], cache: Path) -> tuple[LockedPackage, ...]:
    """Hash the files of `packages` that are in the store, remove those that are not the lock's, and return them.

    For after a failed build: `is_there` trusts a file of the right size, and a disk can change one. The next run
    fetches what was removed; its hard link in a rendered folder is replaced when that folder is written again. Every
    byte is read: seconds for each GB. A file that cannot be read counts as damaged; one that cannot be removed raises
    `OSError`.
    """
    return tuple(p for p in packages if p.complete and drop_damaged(store_path(p, cache), p.sha256))


def drop_damaged(path: Path, sha256: str) -> bool:
    """Remove a stored file that has not its hash, or cannot be read; return whether there was one."""
    if not path.exists() or _is_whole(path, sha256):
        return False
    path.unlink(missing_ok=True)
    return True


def _is_whole(path: Path, sha256: str) -> bool:
    try:
        return sha256_file(path) == sha256
    except OSError:
        return False
