"""A recipe is a profile bound to one target: which components at which versions, on which base, asking what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cannery.core.errors import FindingsError, UsageError
from cannery.core.lock import LockRequest, StandInRelease
from cannery.core.target import Target, parse_arch, parse_cann, parse_chip, parse_os, parse_python
from cannery.core.words import Arch, BaseKind, ComponentKind, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.core.catalog import BaseLine, BaseTag, Catalog, Component, Pin, Profile

STANDIN = "standin"
TOOLS_PROFILE = "_tools"


@dataclass(frozen=True)
class Options:
    """What a user may say about a target, as texts; None keeps the profile's value. `pins` are `NAME==VERSION`."""

    cann: str | None = None
    chip: str | None = None
    os: str | None = None
    python: str | None = None
    arch: str | None = None
    base: str | None = None
    pins: tuple[str, ...] = ()
    force: bool = False


@dataclass(frozen=True)
class Chosen:
    """A component of a recipe: its name, its catalog entry and the version it is pinned to (None: the resolver's)."""

    name: str
    component: Component
    version: str | None
    extras: tuple[str, ...]
    reason: str

    @property
    def package(self) -> str:
        """The distribution's normalised name."""
        return canonicalize_name(self.component.package or self.name)

    @property
    def requirement(self) -> str:
        """The PEP 508 requirement of a `wheels` component, its local version segment included."""
        extras = sorted({*self.component.extras, *self.extras})
        name = self.package + (f"[{','.join(extras)}]" if extras else "")
        return f"{name}=={self.full_version}" if self.version else name

    @property
    def full_version(self) -> str | None:
        """The pinned version with the local segment that the component's index uses (`2.13.0+cpu`)."""
        if self.version is None or self.component.local is None or "+" in self.version:
            return self.version
        return f"{self.version}+{self.component.local}"


@dataclass(frozen=True)
class Base:
    """What the layers stand on.

    `references` are full image references in the order in which they are tried; the stand-in has none here: its
    reference is worked out with the lock (`cannery.core.plan`).
    """

    kind: BaseKind
    references: tuple[str, ...]
    line: BaseLine
    tag: BaseTag


@dataclass(frozen=True)
class Recipe:
    """A profile bound to one target."""

    name: str
    profile: Profile
    target: Target
    base: Base
    chosen: tuple[Chosen, ...]
    pins: tuple[str, ...]
    force: bool

    @property
    def wheels(self) -> tuple[Chosen, ...]:
        """The components that come as wheels, in the profile's order."""
        return tuple(c for c in self.chosen if c.component.kind is ComponentKind.WHEELS)

    @property
    def is_standard(self) -> bool:
        """Whether the committed lock is meant: nothing pinned by hand, nothing forced."""
        return not self.pins and not self.force


def find_profile(catalog: Catalog, name: str) -> Profile:
    """Return the profile called `name`; raise `UsageError` with the nearest names."""
    profile = catalog.profiles.get(name)
    if profile is None:
        raise UsageError(f"no profile {name!r}", hint=did_you_mean(name, catalog.profiles))
    return profile


def select(catalog: Catalog, name: str, options: Options, host_arch: Arch, locked: Iterable[str] = ()) -> Recipe:
    """Bind profile `name` to the target that `options` describe.

    `host_arch` is used where neither the user nor the profile decides; `locked` are the package names of the
    profile's lock, which a pin may name. Raises `UsageError` for words that mean nothing, `FindingsError` when no
    base exists for the target.
    """
    profile = find_profile(catalog, name)
    target = _target(profile, options, host_arch)
    chosen = tuple(_choose(pin, catalog.components[pin.name]) for pin in profile.components)
    chosen, extra = _pinned(chosen, options.pins, locked)
    return Recipe(
        name=name,
        profile=profile,
        target=target,
        base=_base(catalog, profile, target, options.base),
        chosen=chosen,
        pins=extra,
        force=options.force,
    )


def with_arch(recipe: Recipe, arch: Arch) -> Recipe:
    """Return the same recipe for another CPU architecture."""
    return replace(recipe, target=replace(recipe.target, arch=arch))


def _target(profile: Profile, options: Options, host_arch: Arch) -> Target:
    default = profile.target
    arch = host_arch if host_arch in default.arch else default.arch[0]
    return Target(
        cann=parse_cann(options.cann) if options.cann else default.cann,
        chip=parse_chip(options.chip) if options.chip else default.chip,
        os=parse_os(options.os) if options.os else default.os,
        python=parse_python(options.python) if options.python else default.python,
        arch=parse_arch(options.arch) if options.arch else arch,
    )


def _choose(pin: Pin, component: Component) -> Chosen:
    return Chosen(pin.name, component, pin.version, pin.extras, pin.reason)


def parse_pin(text: str) -> tuple[str, str]:
    """Return (normalised name, version) of `NAME==VERSION`; raise `UsageError` for anything else."""
    try:
        requirement = Requirement(text)
        (specifier,) = requirement.specifier
        version = str(Version(specifier.version))
        if specifier.operator != "==" or requirement.marker or requirement.extras or requirement.url:
            raise ValueError
    except (InvalidRequirement, InvalidVersion, ValueError) as error:
        raise UsageError(f"--pin: {text!r} is not NAME==VERSION", hint="for example --pin ray==2.60.0") from error
    return canonicalize_name(requirement.name), version


def _pinned(
    chosen: tuple[Chosen, ...], pins: tuple[str, ...], locked: Iterable[str]
) -> tuple[tuple[Chosen, ...], tuple[str, ...]]:
    """Apply ad-hoc pins; return the components and all pins in normal form, sorted."""
    wanted: dict[str, str] = {}
    for text in pins:
        name, version = parse_pin(text)
        if wanted.setdefault(name, version) != version:
            raise UsageError(f"--pin: {name} is pinned twice, to {wanted[name]} and {version}")
    names = {c.package for c in chosen if c.component.kind is ComponentKind.WHEELS}
    known = names | {canonicalize_name(n) for n in locked}
    for name in wanted:
        if name not in known:
            raise UsageError(f"--pin: {name} is no package of this profile", hint=did_you_mean(name, known))
    changed = tuple(replace(c, version=wanted[c.package]) if c.package in wanted else c for c in chosen)
    return changed, tuple(sorted(f"{name}=={version}" for name, version in wanted.items()))


def _base(catalog: Catalog, profile: Profile, target: Target, base: str | None) -> Base:
    wanted = base or (STANDIN if profile.base == STANDIN else "cann")
    line = catalog.bases.get(target.cann)
    if line is None:
        known = ", ".join(sorted(catalog.bases))
        raise FindingsError(f"no facts about CANN {target.cann}", where="images/bases", hint=f"known: {known}")
    is_tag = wanted == "cann" or wanted in _all_tags(catalog)
    tag_name = target.base_tag if wanted in {"cann", STANDIN} or not is_tag else wanted
    tag = line.tags.get(tag_name)
    if is_tag and wanted not in {"cann", target.base_tag}:
        raise UsageError(
            f"BASE={wanted} is not a base of target {target.base_tag}",
            hint="say CANN, CHIP, OS and PYTHON instead; the tag follows from them",
        )
    if tag is None:
        raise FindingsError(
            f"no CANN image {tag_name}", where=f"images/bases/{target.cann}.yaml", hint=_tags_hint(line, target)
        )
    if wanted == STANDIN:
        if target.python != catalog.standin.python:
            raise FindingsError(
                f"the stand-in base has only Python {catalog.standin.python}, not {target.python}",
                hint=f"PYTHON={catalog.standin.python} or a real base",
            )
        return Base(BaseKind.STANDIN, (), line, tag)
    if is_tag:
        references = tuple(f"{repository}:{tag_name}" for repository in catalog.registries.repositories)
        return Base(BaseKind.REAL, references, line, tag)
    _check_reference(wanted, catalog)
    return Base(BaseKind.CUSTOM, (wanted,), line, tag)


def _all_tags(catalog: Catalog) -> frozenset[str]:
    return frozenset(tag for line in catalog.bases.values() for tag in line.tags)


def _tags_hint(line: BaseLine, target: Target) -> str:
    near = [t for t in line.tags if f"-{target.chip}-" in t] or list(line.tags)
    return "existing: " + ", ".join(sorted(near)[:8])


def _check_reference(text: str, catalog: Catalog) -> None:
    """A full reference has a registry host, a path or a digest; anything else is a misspelt tag."""
    if "/" not in text and ":" not in text and "@" not in text:
        raise UsageError(f"BASE: {text!r} is not known", hint=did_you_mean(text, {STANDIN, *_all_tags(catalog)}))


def lock_request(recipe: Recipe) -> LockRequest:
    """Return what the resolver is asked for this recipe: pins, what CANN imports, bounds, overrides and bindings."""
    requirements = [c.requirement for c in recipe.wheels]
    names = {c.package for c in recipe.wheels}
    requirements += [r for r in recipe.base.line.python_packages if canonicalize_name(Requirement(r).name) not in names]
    extra = [pin for pin in recipe.pins if parse_pin(pin)[0] not in names]
    overrides = [o.requirement for o in recipe.profile.overrides if not _same_name(o.requirement, recipe.pins)]
    if recipe.force:
        overrides += [c.requirement for c in recipe.wheels if c.version] + extra
    bindings = {
        canonicalize_name(name): c.component.index
        for c in recipe.wheels
        if c.component.index
        for name in (c.package, *c.component.binds)
    }
    return LockRequest(
        profile=recipe.name,
        python=recipe.target.python,
        arch=recipe.target.arch,
        requirements=tuple(sorted({*requirements, *extra})),
        constraints=tuple(sorted(c.requirement for c in recipe.profile.constraints)),
        overrides=tuple(sorted(set(overrides))),
        excludes=tuple(sorted(e.requirement for e in recipe.profile.excludes)),
        exclude_newer=recipe.profile.exclude_newer,
        bindings=tuple(sorted(bindings.items())),
        stand_ins=_stand_ins(recipe),
    )


def _same_name(requirement: str, pins: tuple[str, ...]) -> bool:
    return canonicalize_name(Requirement(requirement).name) in {parse_pin(pin)[0] for pin in pins}


def _stand_ins(recipe: Recipe) -> tuple[StandInRelease, ...]:
    return tuple(
        StandInRelease(c.package, version, metadata.requires)
        for c in recipe.wheels
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
