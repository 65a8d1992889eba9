"""Whether a lock answers its request. A lock is a text file: a merge, a copy or an editor can change it.

The header has a digest of the request, which a changed lock still has, so the packages too are compared with the
request. Hashes are left to the download, which refuses a file that is not the lock's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
)

from cannery.catalog.versions import live, marker_environment, parsed_version
from cannery.lock.files import parsed_wheel, wheel_rank
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from packaging.requirements import Requirement

    from cannery.lock.lock import Lock, LockedPackage, LockRequest

# What a lock has of a source, in words.
_WORDS = {"": "nothing, since it comes from git", "sdist": "its source distribution", "wheel": "its wheel"}
CHANGED = "the profile, its components or its base have changed since the lock was made"


def lock_problems(lock: Lock, request: LockRequest, indexes: Collection[str]) -> tuple[str, ...]:
    """Return why `lock` does not answer `request`; empty when it does. `indexes` are the catalog's index names.

    Header and packages are compared with the request: target, date bound, digest; requirements, constraints, overrides
    and excludes; file names and their tags; indexes. Hashes, sizes and who asked are not checked.
    """
    return (*_header(lock, request), *_asked(lock, request), *_files(lock, request, indexes))


def file_problem(package: LockedPackage) -> str:
    """Return why the file's name does not fit the package, "" when it does.

    A file of another name or version would be installed in its place.
    """
    file = package.file
    try:
        name, version = parsed_wheel(file)[:2] if file.endswith(".whl") else parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return f"{package.name}: {file!r} is neither a wheel's nor an sdist's name"
    if name != package.name or version != parsed_version(package.version):
        return f"{package.name}=={package.version} does not fit the file {file}"
    return ""


def is_for(lock: Lock, request: LockRequest) -> bool:
    """Whether the lock is for the request's profile, Python and arch, from whatever inputs."""
    return (lock.profile, lock.python, lock.arch) == (request.profile, request.python, request.arch)


def _header(lock: Lock, request: LockRequest) -> Iterator[str]:
    if lock.inputs != request.digest and is_for(lock, request):
        yield CHANGED
    pairs = (
        ("profile", lock.profile, request.profile),
        ("Python", lock.python, request.python),
        ("arch", lock.arch, request.arch),
        ("date bound", lock.exclude_newer, request.exclude_newer),
    )
    yield from (f"{what}: the lock has {has}, {wants} is asked" for what, has, wants in pairs if has != wants)


def _asked(lock: Lock, request: LockRequest) -> Iterator[str]:
    """An override takes the place of every requirement of its package; constraints hold beside it, as for uv."""
    versions = {package.name: parsed_version(package.version) for package in lock.packages}
    overrides = _live(request.overrides, request)
    overridden = {name for name, _wanted in overrides}
    from_git: set[str] = {source.name for source in request.sources if not source.file}
    requirements = [pair for pair in _live(request.requirements, request) if pair[0] not in from_git]
    excluded = {canonicalize_name(text) for text in request.excludes}
    for name, wanted in requirements:
        if name not in versions:
            yield f"{wanted}: {'asked for, and excluded' if name in excluded else 'not in the lock'}"
    bounds = [pair for pair in requirements if pair[0] not in overridden]
    for name, wanted in (*bounds, *overrides, *_live(request.constraints, request)):
        version = versions.get(name)
        if version is not None and not wanted.specifier.contains(version, prereleases=True):
            yield f"{wanted}: the lock has {version}"
    for text in request.excludes:
        if canonicalize_name(text) in versions:
            yield f"{text}: in the lock, and excluded"


def _live(texts: tuple[str, ...], request: LockRequest) -> list[tuple[str, Requirement]]:
    """Return normalised name and requirement of the texts that count on the target."""
    environment = marker_environment(request.python, request.arch)
    return [(canonicalize_name(one.name), one) for one in live(texts, environment)]


def _files(lock: Lock, request: LockRequest, indexes: Collection[str]) -> Iterator[str]:
    bindings: dict[str, str] = {canonicalize_name(name): index for name, index in request.bindings}
    kinds: dict[str, str] = {source.name: source.file for source in request.sources}
    for package in lock.packages:
        index = bindings.get(package.name, DEFAULT_INDEX)
        if package.index != index:
            yield f"{package.name}: from index {package.index} in the lock, it has to come from index {index}"
        elif index != DEFAULT_INDEX and index not in indexes:
            yield f"{package.name}: index {index} is not in the catalog"
        if not package.complete:
            continue
        problem = file_problem(package)
        if not problem and not package.is_sdist and wheel_rank(package.file, request.python, request.arch) is None:
            problem = f"{package.name}: {package.file} does not fit Python {request.python} on {request.arch}"
        wanted = kinds.get(package.name)
        if not problem and wanted is not None and wanted != ("sdist" if package.is_sdist else "wheel"):
            problem = f"{package.name}: {package.file} in the lock, {_WORDS[wanted]} is wanted"
        if problem:
            yield problem
