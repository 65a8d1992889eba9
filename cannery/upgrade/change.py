"""What one lock has otherwise than another: packages that moved, came and went, and the bytes that this fetches.

Also what a lock loses where an index is not reached. The files of a released version do not change, so what an earlier
lock has of the same version from the same index is what that index would answer; of another version nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cannery.errors import NetworkError

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

    `unknown` are new packages whose size is not known, since their index was not reached; `lost` are those of the new
    lock that have no hash for that reason, where the old one had it, or lacked none.
    """

    moved: tuple[Moved, ...]
    fetch: int
    unknown: tuple[str, ...]
    lost: tuple[LockedPackage, ...] = ()

    def __str__(self) -> str:
        count = len(self.moved)
        size = f"{self.fetch / 1e6:.1f} MB to fetch"
        more = f" and {', '.join(self.unknown)}, of unknown size" if self.unknown else ""
        less = f"; now without hashes: {', '.join(map(_bare, self.lost))}" if self.lost else ""
        return f"{count} package{'' if count == 1 else 's'}, {size}{more}{less}"


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
        lost=tuple(_lost(before, after)),
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


def refuse_losses(pairs: Iterable[tuple[Lock | None, Lock]]) -> None:
    """Raise `NetworkError` when a new lock has no hash where the old one, beside it in its pair, had all of them."""
    found = [(new, lost) for old, new in pairs if old and (lost := lock_change(old.packages, new.packages).lost)]
    if not found:
        return
    lines = [f"Python {new.python}, {new.arch}: {', '.join(map(_bare, lost))}" for new, lost in found]
    indexes = dict.fromkeys(package.index for _new, lost in found for package in lost)
    raise NetworkError(
        "\n  ".join(["the locks would lose hashes that they have now", *lines]),
        hint=f"run the same command on a host that reaches index {', '.join(indexes)}",
    )


def _bare(package: LockedPackage) -> str:
    return f"{package.name} {package.version} (index {package.index} not reached)"


def _lost(before: dict[str, LockedPackage], after: dict[str, LockedPackage]) -> Iterator[LockedPackage]:
    lacking = {package.name for package in before.values() if not package.complete}
    for package in after.values():
        is_new_gap = package.name in before or not lacking
        if before and not package.complete and package.name not in lacking and is_new_gap:
            yield package


def _moved(before: dict[str, LockedPackage], after: dict[str, LockedPackage]) -> Iterator[Moved]:
    for name in sorted({*before, *after}):
        old = before[name].version if name in before else ""
        new = after[name].version if name in after else ""
        if old != new:
            yield Moved(name, old, new)
