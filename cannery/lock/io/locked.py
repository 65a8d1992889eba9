"""The lock of what uv chose: for each package the one file that will be installed, its hash, size and index."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, NetworkError
from cannery.lock.io.index_checks import remote_size
from cannery.lock.io.released import released_files
from cannery.lock.lock import PROFILE_VIA, Lock, LockedPackage
from cannery.lock.uv_input import direct_names
from cannery.lock.wheel_tags import best_wheel, uv_platform
from cannery.util.io.http import HostSession
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.lock.io.bound import Source
    from cannery.lock.io.uv import Job
    from cannery.lock.uv_output import Resolved, ResolvedFile


def locked(job: Job, resolved: Sequence[tuple[Resolved, tuple[str, ...]]], sources: Mapping[str, Source]) -> Lock:
    """Return the lock of `resolved` (with who asked); `sources` are the bound packages' by name.

    Raises `FindingsError` for a package without a file for the target, `NetworkError` for one without a hash or size.
    """
    request = job.request
    session = HostSession(job.settings)
    direct = direct_names(request)
    packages = []
    from_git = {source.name for source in request.sources if not source.file}
    released = released_files(job)
    for package, asked in resolved:
        if package.name in from_git:
            continue
        source = None if package.name in released else sources.get(package.name)
        via = asked if package.name in direct else tuple(name for name in asked if name != PROFILE_VIA)
        index = source.index if source else DEFAULT_INDEX
        if source and source.place is None:
            packages.append(LockedPackage(package.name, package.version, "", "", 0, index, via))
            continue
        file = released.get(package.name) or _file(job, package)
        if not file.sha256:
            raise NetworkError(f"{file.file}: its index tells no sha256, so it cannot be locked", where=job.where)
        size = file.size or remote_size(file.url, session, job.settings.timeout)
        packages.append(LockedPackage(package.name, package.version, file.file, file.sha256, size, index, via))
    return Lock(
        request.profile,
        request.python,
        request.arch,
        request.digest,
        request.exclude_newer,
        f"uv {installed_version('uv')}",
        tuple(packages),
    )


def _file(job: Job, package: Resolved) -> ResolvedFile:
    """The one file that will be installed: the best wheel for the target, the sdist only when none fits."""
    wheels = {wheel.file: wheel for wheel in package.wheels}
    best = best_wheel(wheels, job.request.python, job.request.arch)
    file = wheels[best] if best else package.sdist
    if file is None:
        raise FindingsError(
            f"{package.name} {package.version}: no wheel for {uv_platform(job.request.arch)}, and no sdist",
            where=job.where,
            hint=f"it has {', '.join(sorted(wheels)[:6])}",
        )
    return file
