"""The files that an incomplete lock is missing, taken from their indexes for a build.

Versions never change here, and no file of images/locks does: only `lock` writes those. What was found is kept in the
cache, so that verify and push, which come later, know the same files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.errors import FindingsError, UsageError
from cannery.lock.files import best_wheel, missing_packages, names_of, public_mirrors, published_at, with_published
from cannery.lock.lock import format_lock, parse_lock
from cannery.util.io.files import local_sha256, sha256_bytes, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cannery.catalog.catalog import Catalog
    from cannery.lock.io.indexes import Answer
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.util.io.pip_settings import PipSettings


def with_kept_files(lock: Lock, catalog: Catalog, cache: Path) -> Lock:
    """Return `lock` with what is known without the network: published hashes, and what an earlier build has found."""
    if lock.complete:
        return lock
    path = _kept(lock, cache)
    try:
        return parse_lock(path.read_text(encoding="utf-8"), path.name)
    except (OSError, ValueError, UsageError):  # none, or damaged: as if there were none
        return with_published(lock, catalog.hashes)


def with_found_files(
    lock: Lock, catalog: Catalog, settings: Callable[[], PipSettings], cache: Path, say: Callable[[str], None]
) -> Lock:
    """Return `lock` with the files of its indexes and of the user's own folders, as far as they answer; report them.

    `lock` is what `with_kept_files` returned.
    """
    missing = missing_packages(lock)
    if not missing:
        return lock
    from cannery.lock.io.indexes import ask_all, places_of  # noqa: PLC0415 - network libraries
    from cannery.lock.io.uv import PROBE  # noqa: PLC0415

    pip = settings()
    asked = [(place, p.name) for p in missing for place in places_of(p.index, catalog.indexes, pip)]
    answers = ask_all(asked, pip, PROBE)
    found = {p.name: one for p in missing if (one := _found(p, lock, answers, cache))}
    for one in found.values():
        say(f"{one.name} {one.version}: {one.file}, sha256:{one.sha256}, taken {published_at(one, catalog.indexes)}")
    whole = replace(lock, packages=tuple(found.get(package.name, package) for package in lock.packages))
    if found:
        say("these hashes count for this build; `lock` writes them into images/locks")
        write_atomic(_kept(lock, cache), format_lock(whole))
    return whole


def incomplete_error(lock: Lock, catalog: Catalog, *, locked: bool) -> FindingsError:
    """Return the error of a build that needs hashes which are not known. With `locked` no index was asked."""
    missing = missing_packages(lock)
    lines = [f"{p.name} {p.version} is published {published_at(p, catalog.indexes)}" for p in missing]
    mirrors = public_mirrors({package.index for package in missing}, catalog.indexes)
    asked = "leave --locked out where that index can be reached, or" if locked else "on a host that reaches it,"
    return FindingsError(
        "\n  ".join([f"the lock for {lock.arch} has no hash of {names_of(missing)}", *lines]),
        where=f"profile {lock.profile}, Python {lock.python}, {lock.arch}",
        hint="; ".join(filter(None, (f"{asked} run make lock PROFILE={lock.profile}", mirrors))),
    )


def _kept(lock: Lock, cache: Path) -> Path:
    """The name is made from the lock with its gaps: another lock has other ones."""
    names = [[p.name, p.version, p.index] for p in missing_packages(lock)]
    digest = sha256_bytes(f"{lock.inputs} {lock.python} {lock.arch} {names}".encode())
    return cache / "locks" / "complete" / f"{lock.profile}-{digest[:16]}.txt"


def _found(package: LockedPackage, lock: Lock, answers: Sequence[Answer], cache: Path) -> LockedPackage | None:
    """Return the package with the best file of the first place that has one with a hash; None without any."""
    for answer in (answer for answer in answers if answer.project == package.name):
        files = [file for file in answer.files if Version(file.version) == Version(package.version)]
        file, folder = best_wheel(files, lock.python, lock.arch), answer.place.folder
        if file is not None:
            path = folder / file.file if folder else None
            sha256 = file.sha256 or (local_sha256(path, cache) if path and path.is_file() else "")
            if sha256:
                return replace(package, file=file.file, sha256=sha256, size=file.size)
    return None
