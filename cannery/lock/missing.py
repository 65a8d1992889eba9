"""What an incomplete lock is missing, and where the makers of the missing files publish them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cannery.catalog.catalog import Index
    from cannery.lock.lock import Lock, LockedPackage


def missing_packages(lock: Lock) -> tuple[LockedPackage, ...]:
    """Return the packages whose file is not known."""
    return tuple(package for package in lock.packages if not package.complete)


def names_of(packages: Sequence[LockedPackage]) -> str:
    """Return packages as text: `torch 2.8.0+cpu, torchvision 0.23.0+cpu`."""
    return ", ".join(f"{package.name} {package.version}" for package in packages)


def published_at(package: LockedPackage, indexes: Mapping[str, Index]) -> str:
    """Return where the makers of a package publish its wheels; of wheels of the user's own, how to give them."""
    index = indexes.get(package.index)
    if index is not None and not index.urls:
        return "in a folder of yours, named by WHEELHOUSE (it is on no index)"
    pages = [f"{url.rstrip('/')}/{package.name}/" for url in index.urls] if index else []
    return f"on index {package.index}" + (f" ({' or '.join(pages)})" if pages else "")


def public_mirrors(names: Collection[str], indexes: Mapping[str, Index]) -> str:
    """Return the public mirrors of indexes that are not used yet, and how to use them; "" for none."""
    found = [
        f"{' or '.join(index.public_pages)} is a mirror of {name}, to be named in [mirrors.pages] of cannery.toml"
        for name, index in sorted(indexes.items())
        if name in names and index.public_pages and not index.pages
    ]
    return "; ".join(found)
