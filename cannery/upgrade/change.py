"""What one lock has otherwise than another: packages that moved, came and went, and the bytes that this fetches.

The files of a released version do not change, so where an index is not reached, what an earlier lock has of the same
version from the same index is what that index would answer; of another version nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cannery.lock.lock import Lock, LockedPackage


@dataclass(frozen=True)
class Moved:
    """A package whose version differs; "" is where it is not there."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        if not self.old:
            return f"+ {self.name} {self.new}"
        return f"  {self.name} {self.old} -> {self.new}" if self.new else f"- {self.name} {self.old}"


@dataclass(frozen=True)
class LockChange:
    """The packages that differ, by name, and the bytes of the new lock's files that the old one does not name.

    `unknown` are new packages whose size is not known, since their index was not reached.
    """

    moved: tuple[Moved, ...]
    fetch: int
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        count = len(self.moved)
        size = f"{self.fetch / 1e6:.1f} MB to fetch"
        more = f" and {', '.join(self.unknown)}, of unknown size" if self.unknown else ""
        return f"{count} package{'' if count == 1 else 's'}, {size}{more}"


def lock_change(old: Iterable[LockedPackage], new: Iterable[LockedPackage]) -> LockChange:
    """Compare the packages of two locks for one Python and arch."""
    before, after = ({package.name: package for package in packages} for packages in (old, new))
    held = {package.sha256 for package in before.values() if package.complete}
    added = [package for package in after.values() if package.sha256 not in held]
    stayed = {(package.name, package.version) for package in before.values()}
    return LockChange(
        moved=tuple(_moved(before, after)),
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


def _moved(before: dict[str, LockedPackage], after: dict[str, LockedPackage]) -> Iterator[Moved]:
    for name in sorted({*before, *after}):
        old = before[name].version if name in before else ""
        new = after[name].version if name in after else ""
        if old != new:
            yield Moved(name, old, new)
