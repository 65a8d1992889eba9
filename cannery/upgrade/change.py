"""What one lock has otherwise than another: how many packages, and the bytes that this fetches.

The files of a released version do not change, so where an index is not reached, what an earlier lock has of the same
version from the same index is what that index would answer; of another version nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.lock.lock import Lock, LockedPackage


@dataclass(frozen=True)
class LockChange:
    """How many packages differ, and the bytes of the new lock's files that the old one does not name.

    `unknown` are new packages whose size is not known, since their index was not reached.
    """

    count: int
    fetch: int
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        size = f"{self.fetch / 1e6:.1f} MB to fetch"
        more = f" and {', '.join(self.unknown)}, of unknown size" if self.unknown else ""
        return f"{self.count} package{'' if self.count == 1 else 's'}, {size}{more}"


def lock_change(old: Iterable[LockedPackage], new: Iterable[LockedPackage]) -> LockChange:
    """Compare the packages of two locks for one Python and arch."""
    before, after = ({package.name: package for package in packages} for packages in (old, new))
    held = {package.sha256 for package in before.values() if package.complete}
    added = [package for package in after.values() if package.sha256 not in held]
    stayed = {(package.name, package.version) for package in before.values()}
    versions = [{name: package.version for name, package in packages.items()} for packages in (before, after)]
    return LockChange(
        count=len({name for name, _version in versions[0].items() ^ versions[1].items()}),
        fetch=sum(package.size for package in added),
        unknown=tuple(p.name for p in added if not p.complete and (p.name, p.version) not in stayed),
    )


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
