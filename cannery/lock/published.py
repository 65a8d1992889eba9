"""Files that a lock knows by a published hash (images/hashes.yaml), where their index was not reached."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from cannery.lock.wheel_tags import best_wheel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.published import Published, PublishedFile
    from cannery.lock.lock import Lock, LockedPackage


def with_published(lock: Lock, published: Mapping[str, Published]) -> Lock:
    """Return `lock` with the published file of each package that has none: the best one for the target.

    `published` is by index name. A size that is not published is 0.
    """
    return replace(lock, packages=tuple(_known(package, lock, published) for package in lock.packages))


def _known(package: LockedPackage, lock: Lock, published: Mapping[str, Published]) -> LockedPackage:
    if package.complete or package.index not in published:
        return package
    files = {one.file: one for one in published[package.index].files if _is_of(one, package)}
    best = best_wheel(files, lock.python, lock.arch)
    return replace(package, file=best, sha256=files[best].sha256, size=files[best].size) if best else package


def _is_of(one: PublishedFile, package: LockedPackage) -> bool:
    name, version = parse_wheel_filename(one.file)[:2]
    return name == package.name and version == Version(package.version)
