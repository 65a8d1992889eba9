"""What is asked of the resolver: a recipe's requirements, bounds and bindings, and those of the build tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cannery.catalog.versions import package_name
from cannery.lock.lock import KnownRelease, LockRequest
from cannery.recipe.recipe import STANDIN
from cannery.recipe.select import parse_pin

if TYPE_CHECKING:
    from cannery.catalog.catalog import Catalog
    from cannery.recipe.recipe import Recipe
    from cannery.vocab import Arch

TOOLS_PROFILE = "_tools"


def lock_request(recipe: Recipe) -> LockRequest:
    """Return what the resolver is asked for this recipe.

    The pins, what sources ask for at their commit, what CANN imports, bounds, overrides and bindings.
    Raises `UsageError` for a source of which that is not known.
    """
    recipe.check_known()
    sources = _sources(recipe)
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
        canonicalize_name(name): c.index for c in recipe.wheels if c.index for name in (c.package, *c.component.binds)
    }
    profile = recipe.profile
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
        stand_ins=_stand_ins(recipe),
        sources=sources,
        variant=STANDIN if substituted else "",
        package_dates=tuple(
            sorted((canonicalize_name(name), later.date) for name, later in profile.exclude_newer_packages.items())
        ),
    )


def set_aside(override: str, pins: tuple[str, ...]) -> bool:
    """Whether an ad-hoc pin (`NAME==VERSION`) contradicts an override, and so takes its place."""
    wanted = Requirement(override)
    name = canonicalize_name(wanted.name)
    versions = [version for pinned, version in map(parse_pin, pins) if pinned == name]
    return any(not wanted.specifier.contains(version, prereleases=True) for version in versions)


def _sources(recipe: Recipe) -> tuple[KnownRelease, ...]:
    return tuple(
        KnownRelease(c.package, c.version, known.requires, known.requires_python or "", c.file)
        for c in sorted(recipe.sources, key=lambda c: c.package)
        if c.version and (known := c.known)
    )


def _stand_ins(recipe: Recipe) -> tuple[KnownRelease, ...]:
    return tuple(
        KnownRelease(c.package, version, metadata.requires)
        for c in recipe.wheels
        if c.index
        for version, metadata in sorted(c.component.metadata.items())
        if version == c.version
    )


def tools_request(catalog: Catalog, python: str, arch: Arch) -> LockRequest:
    """Return the request for the build tools of the stages (images/tools.yaml), for the build host's arch."""
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
