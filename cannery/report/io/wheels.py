"""The licences of the wheels that are on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

from cannery.lock.io.wheels import is_there, store_path, wheel_metadata
from cannery.report.licences import licence_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cannery.lock.lock import LockedPackage


def read_licences(packages: Iterable[LockedPackage], cache: Path) -> dict[str, str]:
    """Return {distribution: licence} of packages whose wheel is in `cache`; "" where its METADATA names none.

    Nothing is fetched. A wheel that cannot be read counts as one that is not there.
    """
    found = {}
    for package in packages:
        if package.is_sdist or not is_there(package, cache):
            continue
        try:
            with ZipFile(store_path(package, cache)) as archive:
                found[package.name] = licence_of(wheel_metadata(archive))
        except (OSError, BadZipFile, NotImplementedError):
            continue
    return found
