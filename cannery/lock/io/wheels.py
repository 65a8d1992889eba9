"""The wheel store: the files of locks on this host, by hash: `<cache>/wheels/<sha[:2]>/<sha>/<file name>`.

A file gets that name only after its size and sha256 were checked, so a file of the right size is used without the
network. The libraries for downloads are only imported if a file is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zipfile import BadZipFile

from cannery.util.io.files import sha256_file
from cannery.util.io.waiting import heartbeat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from zipfile import ZipFile

    from cannery.catalog.addresses import Index
    from cannery.lock.lock import LockedPackage
    from cannery.util.io.pip_settings import Downloads


# A download of fewer bytes is only reported if it takes some seconds.
LARGE = 1_000_000
# Seconds between two lines about a download.
BEAT = 5.0


def wheel_metadata(archive: ZipFile) -> str:
    """Return the METADATA of a wheel, and not that of a vendored package. Raises `BadZipFile` if it is missing."""
    for name in archive.namelist():
        if name.endswith(".dist-info/METADATA") and name.count("/") == 1:
            return archive.read(name).decode(errors="replace")
    raise BadZipFile("it has no METADATA")


def store_path(package: LockedPackage, cache: Path) -> Path:
    """Return the path of the file of `package` in the store."""
    return cache / "wheels" / package.sha256[:2] / package.sha256 / package.file


def is_in_store(package: LockedPackage, cache: Path) -> bool:
    """Whether the file is in the store. Only its size is checked (if known): the download checked its hash."""
    try:
        size = store_path(package, cache).stat().st_size
    except OSError:
        return False
    return package.complete and package.size in {0, size}


def missing_bytes(packages: Sequence[LockedPackage], cache: Path) -> int:
    """Return how many bytes of `packages` are not in the store yet."""
    return sum(package.size for package in packages if not is_in_store(package, cache))


def damaged(packages: Sequence[LockedPackage], cache: Path) -> tuple[LockedPackage, ...]:
    """Remove the files of `packages` in the store that do not have the lock's hash, and return their packages.

    It is used after a failed build: `is_in_store` trusts a file of the right size, but a disk can damage its content.
    The next run downloads them again, and replaces their hard links in the rendered folder. It reads every byte, which
    takes seconds for each GB. Raises `OSError` if a file cannot be read or removed.
    """
    found = []
    for package in packages:
        path = store_path(package, cache)
        if package.complete and path.exists() and sha256_file(path) != package.sha256:
            path.unlink()
            found.append(package)
    return tuple(found)


def fetch_wheels(
    downloads: Downloads, indexes: Mapping[str, Index], packages: Sequence[LockedPackage], what: str = "wheels"
) -> Mapping[str, Path]:
    """Return {name: file} of locked packages. Files that are not in the store are downloaded.

    `what` names the files in progress lines. Raises like `cannery.lock.io.wheelhouse.fetch`.
    """
    cache = downloads.cache
    if all(is_in_store(package, cache) for package in packages):
        return {package.name: store_path(package, cache) for package in packages}
    from cannery.lock.io.wheelhouse import fetch  # noqa: PLC0415 - imports network libraries

    total, received = missing_bytes(packages, cache), dict.fromkeys((package.name for package in packages), 0)
    unit, size = ("MB", 1e6) if total >= LARGE else ("kB", 1e3)
    if total >= LARGE:
        downloads.say(f"fetching {what}: {total / size:.0f} {unit}")

    def progress() -> str:
        return f"fetching {what}: {sum(received.values()) / size:.0f} of {total / size:.0f} {unit}"

    with heartbeat(downloads.say, progress, BEAT):
        return fetch(packages, indexes, downloads, lambda package, count: received.update({package.name: count}))
