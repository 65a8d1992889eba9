"""Files that a lock is missing: of an earlier lock, with a published hash; and where makers publish the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.catalog.versions import parsed_version
from cannery.lock.wheel_tags import best_wheel, parsed_wheel

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cannery.catalog.addresses import Index, Published, PublishedFile
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
    name, version = parsed_wheel(one.file)[:2]
    return name == package.name and version == parsed_version(package.version)


def with_known_files(new: Lock, old: Lock | None) -> Lock:
    """Return `new` with what `old` has of packages whose index was not reached: file, hash and size.

    Only of the same version, from the same index, for the same Python and arch, and up to no later a day: that is what
    the index would have answered. Who asks for the package is `new`'s own. It
    is taken before a published hash (of which `size` is 0), since the index itself gave it.
    """
    if old is None or (old.python, old.arch) != (new.python, new.arch) or old.exclude_newer > new.exclude_newer:
        return new
    known = {(p.name, p.version, p.index): p for p in old.packages if p.size}
    packages = tuple(
        replace(found, via=package.via)
        if not package.size and (found := known.get((package.name, package.version, package.index)))
        else package
        for package in new.packages
    )
    return replace(new, packages=packages)


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
