"""The request to the resolver for a recipe or the build tools, and the check that a lock meets it.

A merge or an editor can change the packages of a lock without its header. So the packages are compared with the request
too. Hashes are checked by the download.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from packaging.utils import canonicalize_name

from cannery.catalog.target import live, marker_environment, package_name, parsed_requirement, parsed_version
from cannery.lock.lock import file_problem, wheel_rank
from cannery.recipe.recipe import STANDIN
from cannery.recipe.select import parse_pin
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from cannery.catalog.catalog import Catalog
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Recipe
    from cannery.vocab import Arch


TOOLS_PROFILE = "_tools"


@dataclass(frozen=True)
class KnownRelease:
    """A release whose requirements are known without its index: normalised name, version, requirements, Python range.

    For a source, `file` is the kind of its file in the lock; "" for a commit, which is not in the lock.
    """

    name: str
    version: str
    requires: tuple[str, ...]
    requires_python: str = ""
    file: Literal["", "sdist", "wheel"] = ""


@dataclass(frozen=True)
class LockRequest:
    """The request to the resolver for one (profile, Python, arch). It has everything that can change the result.

    - `requirements`, `constraints` and `overrides` are PEP 508 texts, `excludes` are names that must not be in the set.
    - `bindings` are pairs of a normalised name and an index. The package comes only from that index, and nothing else
      does. `stand_ins` are used if that index is not reached.
    - `exclude_newer` is an ISO date; later uploads are ignored. `package_dates` replace it for single packages. "" is
      no bound: a pin on the command line may be a newer release.
    - `sources` are built. Their known requirements are part of the request; those from git are not in the lock.
    - `variant` is part of the lock's file name: a stand-in with substitutes has another set for the same target.
    """

    profile: str
    python: str
    arch: Arch
    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    overrides: tuple[str, ...]
    excludes: tuple[str, ...]
    exclude_newer: str
    bindings: tuple[tuple[str, str], ...]
    stand_ins: tuple[KnownRelease, ...]
    sources: tuple[KnownRelease, ...] = ()
    package_dates: tuple[tuple[str, str], ...] = ()
    variant: str = ""

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the request. A lock with another digest is stale."""
        asked = {key: value for key, value in asdict(self).items() if key != "variant"}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def lock_request(recipe: Recipe) -> LockRequest:
    """Return the request for a recipe: its pins, sources, packages for CANN, constraints, overrides and bindings.

    Raises `UsageError` for a source whose requirements are not known.
    """
    recipe.check_known()
    sources = tuple(
        KnownRelease(c.package, c.version, known.requires, known.requires_python or "", c.file)
        for c in sorted(recipe.sources, key=lambda c: c.package)
        if c.version and (known := c.known)
    )
    stand_ins = tuple(
        KnownRelease(c.package, c.version, c.component.metadata[c.version].requires)
        for c in recipe.wheels
        if c.index and c.version in c.component.metadata
    )
    substituted = {one.name for one in recipe.substitutes}
    requirements = [c.requirement for c in recipe.wheels] + [f"{s.name}=={s.version}" for s in sources]
    names = {c.package for c in recipe.wheels} | {s.name for s in sources}
    requirements += [r for r in recipe.base.line.python_packages if package_name(r) not in names]
    extra = [pin for pin in recipe.pins if parse_pin(pin)[0] not in names]
    overrides = [o.requirement for o in recipe.profile.overrides if not set_aside(o.requirement, recipe.pins)]
    overrides += [f"{c.package}=={c.full_version}" for c in recipe.wheels if c.name in substituted]
    if recipe.force:
        overrides += [c.requirement for c in recipe.wheels if c.version] + extra
    bindings = {
        canonicalize_name(n): c.index for c in recipe.wheels if c.index for n in (c.package, *c.component.binds)
    }
    profile = recipe.profile
    dates: dict[str, str] = {
        canonicalize_name(name): later.date for name, later in profile.exclude_newer_packages.items()
    }
    dates |= {parse_pin(pin)[0]: "" for pin in recipe.pins}
    return LockRequest(
        profile=recipe.name,
        python=recipe.target.python,
        arch=recipe.target.arch,
        requirements=tuple(sorted({*requirements, *extra})),
        constraints=tuple(sorted({*(c.requirement for c in profile.constraints), *recipe.held})),
        overrides=tuple(sorted(set(overrides))),
        excludes=tuple(sorted(e.requirement for e in profile.excludes)),
        exclude_newer=profile.exclude_newer,
        bindings=tuple(sorted(bindings.items())),
        stand_ins=stand_ins,
        sources=sources,
        variant=STANDIN if substituted else "",
        package_dates=tuple(sorted(dates.items())),
    )


def set_aside(override: str, pins: tuple[str, ...]) -> bool:
    """Whether an ad-hoc pin (`NAME==VERSION`) contradicts an override and so replaces it."""
    requirement = parsed_requirement(override)
    return any(not requirement.allows(version) for name, version in map(parse_pin, pins) if name == requirement.package)


def tools_request(catalog: Catalog, python: str, arch: Arch) -> LockRequest:
    """Return the request for the build tools (images/tools.yaml)."""
    return LockRequest(
        profile=TOOLS_PROFILE,
        python=python,
        arch=arch,
        requirements=tuple(sorted(catalog.tools.requirements)),
        constraints=(),
        overrides=(),
        excludes=(),
        exclude_newer=catalog.tools.exclude_newer,
        bindings=(),
        stand_ins=(),
    )


@lru_cache(maxsize=64)  # images for several chips share one lock and one request
def lock_problems(lock: Lock, request: LockRequest, indexes: frozenset[str]) -> tuple[str, ...]:
    """Return why `lock` does not meet `request`; empty if it does. `indexes` are the catalog's index names.

    This compares target, date bound and digest, requirements, constraints, overrides and excludes, file names with
    their tags, and indexes. It does not check hashes, sizes and `via`.
    """
    return (*_header(lock, request), *_unmet(lock, request), *_files(lock, request, indexes))


def _header(lock: Lock, request: LockRequest) -> Iterator[str]:
    pairs = (
        ("profile", lock.profile, request.profile),
        ("Python", lock.python, request.python),
        ("arch", lock.arch, request.arch),
        ("date bound", lock.exclude_newer, request.exclude_newer),
    )
    found = [f"{what}: the lock has {has}, {wants} is asked" for what, has, wants in pairs if has != wants]
    if not found and lock.inputs != request.digest:
        found = ["the profile, its components or its base have changed since the lock was made"]
    yield from found


def _unmet(lock: Lock, request: LockRequest) -> Iterator[str]:
    """Compare versions. As in uv, an override replaces all requirements of its package, but not constraints."""
    versions = {package.name: parsed_version(package.version) for package in lock.packages}
    environment = marker_environment(request.python, request.arch)
    overrides = [*live(request.overrides, environment)]
    overridden = {one.package for one in overrides}
    from_git: set[str] = {source.name for source in request.sources if not source.file}
    requirements = [one for one in live(request.requirements, environment) if one.package not in from_git]
    excluded = {canonicalize_name(text) for text in request.excludes}
    for one in requirements:
        if one.package not in versions:
            yield f"{one}: {'asked for, and excluded' if one.package in excluded else 'not in the lock'}"
    bounds = [one for one in requirements if one.package not in overridden]
    for one in (*bounds, *overrides, *live(request.constraints, environment)):
        version = versions.get(one.package)
        if version is not None and not one.allows(version):
            yield f"{one}: the lock has {version}"
    for text in request.excludes:
        if canonicalize_name(text) in versions:
            yield f"{text}: in the lock, and excluded"


def _files(lock: Lock, request: LockRequest, indexes: Collection[str]) -> Iterator[str]:
    bindings = dict(request.bindings)
    words = {"": "nothing, since it comes from git", "sdist": "its source distribution", "wheel": "its wheel"}
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
            problem = f"{package.name}: {package.file} in the lock, {words[wanted]} is wanted"
        if problem:
            yield problem
