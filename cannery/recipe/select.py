"""Binds a profile to a target: selects components, versions and base."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cannery.catalog.addresses import REGISTRY_HINT, reference_fault
from cannery.catalog.component import FromSource, Wheels
from cannery.catalog.target import (
    Target,
    parse_arch,
    parse_cann,
    parse_chip,
    parse_os,
    parse_python,
    public_version,
    without_build,
)
from cannery.errors import FindingsError, UsageError
from cannery.recipe.recipe import STANDIN, Base, Chosen, Options, Recipe, package_of
from cannery.util.addresses import parse_reference
from cannery.vocab import Arch, BaseKind, did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cannery.catalog.catalog import Catalog, Pin, Profile
    from cannery.catalog.compatibility import Compatibility
    from cannery.catalog.component import Part

TORCH, TORCH_NPU = "torch", "torch-npu"


def find_profile(catalog: Catalog, name: str) -> Profile:
    """Return the profile `name`.

    Raises `CatalogError` if a file that it uses is broken, `UsageError` with similar names if it does not exist.
    """
    catalog.check_file(f"profiles/{name}.yaml")
    profile = catalog.profiles.get(name)
    if profile is None:
        raise UsageError(f"no profile {name!r}", hint=did_you_mean(name, catalog.profiles))
    return profile


def select(catalog: Catalog, name: str, options: Options, host_arch: Arch, locked: Iterable[str] = ()) -> Recipe:
    """Bind profile `name` to the target that `options` describe.

    `host_arch` is used if neither the user nor the profile decides. `locked` are the package names in the profile's
    lock, which a pin may name. Raises `UsageError` for unknown values, `FindingsError` for a CANN version that is not
    in the catalog. The rules report a target without an image.
    """
    profile = find_profile(catalog, name)
    target = _target(profile, options, host_arch)
    released = _released(catalog, profile, options.sources, options.local)
    chosen = tuple(_choose(pin, catalog.components[pin.name], target.arch, released) for pin in profile.components)
    chosen, extra = _pinned(chosen, options.pins, locked)
    base = _base(catalog, profile, target, options.base)
    _check_os(catalog, base, target.os)
    pinned = {parse_pin(pin)[0] for pin in extra}
    substitutes = tuple(
        one
        for one in (profile.substitutes if base.kind is BaseKind.STANDIN else ())
        if package_of(one.name, catalog.components[one.name]) not in pinned
    )
    versions = {one.name: one.version for one in substitutes}
    chosen = tuple(replace(c, version=versions.get(c.name, c.version)) for c in chosen)
    return Recipe(
        name=name,
        profile=profile,
        target=target,
        base=base,
        chosen=chosen,
        pins=extra,
        force=options.force,
        held=held_bounds(chosen, catalog.compatibility),
        released=released,
        substitutes=substitutes,
    )


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


def _check_os(catalog: Catalog, base: Base, wanted: str) -> None:
    """Raise `UsageError` for a misspelt OS. The rules report a known OS in another release."""
    if base.found is not None:
        return
    known = {tag.split("-")[2] for line in catalog.bases.values() for tag in line.tags}
    near = nearest(wanted, sorted(known))
    if near and wanted.rstrip(".0123456789") not in {one.rstrip(".0123456789") for one in known}:
        raise UsageError(f"OS: {wanted!r} is not known", hint=did_you_mean(wanted, known))


def _released(catalog: Catalog, profile: Profile, text: str | None, local: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sources that use a release instead of a commit. Raises `UsageError` for unknown words."""
    if not text:
        return ()
    word, colon, names = text.partition(":")
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if word != "release" or (colon and not wanted):
        raise UsageError(f"SOURCES: {text!r} is not known", hint="release, or release:NAME,NAME")
    packages = {pin.name: package_of(pin.name, catalog.components[pin.name]) for pin in profile.components}
    own = {name for name, package in packages.items() if {name, package} & {*local}}
    commits = {pin.name: pin.commit for pin in profile.components if pin.commit and pin.name not in own}
    have = {
        name
        for name, commit in commits.items()
        if (revision := catalog.sources[name].revisions.get(commit)) and revision.release
    }
    for name in wanted:
        if name in own:
            raise UsageError(f"SOURCES: {name} is a tree of yours (SRC_{name})", hint="take one of the two")
        if name not in have:
            what = f"SOURCES: {name} is not a source at a commit that a known release can replace"
            raise UsageError(what, hint=did_you_mean(name, have))
    if not have:
        raise UsageError("SOURCES: no source of this profile has a release to take", hint="leave SOURCES out")
    return tuple(sorted(wanted or have))


def _choose(pin: Pin, component: Part, arch: Arch, released: tuple[str, ...]) -> Chosen:
    revision = component.revisions.get(pin.commit) if pin.commit and isinstance(component, FromSource) else None
    if revision is not None and pin.name in released:
        reason = f"release {revision.release} in place of commit {str(pin.commit)[:12]} (SOURCES)"
        return Chosen(pin.name, component, revision.release, reason, arch, None, revision.release)
    version = revision.version if revision else pin.release or pin.version
    # A release that the component does not have is in `Recipe.unknown`.
    release = pin.release if isinstance(component, FromSource) and pin.release in component.releases else None
    return Chosen(pin.name, component, version, pin.reason, arch, pin.commit, release)


def parse_pin(text: str) -> tuple[str, str]:
    """Return (normalised name, version) of `NAME==VERSION`. Raises `UsageError` for any other text."""
    try:
        requirement = Requirement(text)
        (specifier,) = requirement.specifier
        version = str(Version(specifier.version))
        if specifier.operator != "==" or requirement.marker or requirement.extras or requirement.url:
            raise ValueError
    except (InvalidRequirement, InvalidVersion, ValueError) as error:
        hint = "for example --pin ray==2.60.0"
        if "==" in text.partition(",")[2]:
            hint = f"pins are separated by spaces: `{' '.join(f'--pin {one.strip()}' for one in text.split(','))}`"
        raise UsageError(f"--pin: {text!r} is not NAME==VERSION", hint=hint) from error
    return canonicalize_name(requirement.name), version


def _pinned(
    chosen: tuple[Chosen, ...], pins: tuple[str, ...], locked: Iterable[str]
) -> tuple[tuple[Chosen, ...], tuple[str, ...]]:
    """Apply ad-hoc pins. Return the components, and all pins in normal form, sorted."""
    wanted: dict[str, str] = {}
    for text in pins:
        name, version = parse_pin(text)
        if wanted.setdefault(name, version) != version:
            raise UsageError(f"--pin: {name} is pinned twice, to {wanted[name]} and {version}")
    names = {c.package for c in chosen if c.component.kind.is_package}
    known = names | {canonicalize_name(n) for n in locked}
    for name in wanted:
        if name not in known:
            hint = did_you_mean(name, known, "`build.py show` prints its components")
            raise UsageError(f"--pin: {name} is not a package of this profile", hint=hint)
    changed = tuple(_repinned(c, wanted[c.package]) if c.package in wanted else c for c in chosen)
    return changed, tuple(sorted(f"{name}=={version}" for name, version in wanted.items()))


def _repinned(chosen: Chosen, version: str) -> Chosen:
    """Pin a component to another version. A source at an unknown version is in `Recipe.unknown`."""
    component = chosen.component
    if not isinstance(component, FromSource):
        return replace(chosen, version=version)
    commits = [
        commit for commit, revision in component.revisions.items() if Version(revision.version) == Version(version)
    ]
    releases = [release for release in component.releases if Version(release) == Version(version)]
    if commits and (chosen.commit or not releases):
        return replace(chosen, version=version, commit=commits[-1], release=None)
    if releases:
        return replace(chosen, version=version, commit=None, release=releases[0])
    return replace(chosen, version=version, commit=None, release=None)


def _base(catalog: Catalog, profile: Profile, target: Target, base: str | None) -> Base:
    fault = reference_fault(base or "")
    if fault:
        raise UsageError(f"BASE: {fault}", hint=REGISTRY_HINT)
    wanted = base or (STANDIN if profile.base == STANDIN else "cann")
    tags = {tag for one in catalog.bases.values() for tag in one.tags}
    cann = without_build(target.cann)
    catalog.check_file(f"bases/{cann}.yaml")
    line = catalog.bases.get(cann)
    if line is None:
        known = ", ".join(sorted(catalog.bases))
        raise FindingsError(f"no facts about CANN {target.cann}", where="images/bases", hint=f"known: {known}")
    is_tag = wanted == "cann" or wanted in tags
    tag_name = target.base_tag if wanted in {"cann", STANDIN} or not is_tag else wanted
    tag = line.tags.get(tag_name)
    if is_tag and wanted not in {"cann", target.base_tag}:
        raise UsageError(
            f"BASE={wanted} is not a base of target {target.base_tag}",
            hint="set CANN, CHIP, OS and PYTHON instead; the tag follows from them",
        )
    if wanted == STANDIN:
        if target.python != catalog.standin.python:
            raise FindingsError(
                f"the stand-in base has only Python {catalog.standin.python}, not {target.python}",
                hint=f"PYTHON={catalog.standin.python} or a real base",
            )
        return Base(BaseKind.STANDIN, (), line, tag_name, tag)
    if is_tag:
        references = tuple(f"{repository}:{tag_name}" for repository in catalog.registries.of(target.os))
        return Base(BaseKind.REAL, references, line, tag_name, tag)
    if not {*"/:@"} & {*wanted}:  # without host, path or digest: a misspelt tag
        own, words = target.base_tag, {STANDIN, *tags}
        forms = f"{STANDIN}, a tag of images/bases (as {own}), or a full image reference (as HOST/cann:{own})"
        raise UsageError(f"BASE: {wanted!r} is not known", hint=did_you_mean(wanted, words, forms))
    parse_reference(wanted)
    return Base(BaseKind.CUSTOM, (wanted,), line, tag_name, tag)


def held_bounds(chosen: Sequence[Chosen], table: Compatibility) -> tuple[str, ...]:
    """Return PEP 508 constraints: torch from torch_npu's rows if it is not pinned, and distributions that follow torch.

    A release without a row gives no bound: the rules report it as unknown.
    """
    pins = {c.package: c.version for c in chosen if c.version}
    torch, npu = pins.get(TORCH), pins.get(TORCH_NPU)
    found: list[str] = []
    if torch is None and npu is not None:
        torch = next((row.fits[TORCH] for row in table.rows_of(TORCH_NPU, npu) if TORCH in row.fits), None)
        found += [f"{TORCH}=={torch}"] if torch else []
    if torch is not None:
        parts = [c.component for c in chosen if c.package == TORCH]
        binds = {canonicalize_name(name) for part in parts if isinstance(part, Wheels) for name in part.binds}
        for name in binds - {*pins}:
            rows = [row for row in table.by_name.get(name, ()) if takes(row.fits.get(TORCH, ""), torch)]
            versions = sorted({Version(row.version) for row in rows})
            if len(versions) == 1:
                found.append(f"{name}=={versions[0]}")
            elif versions:
                found.append(f"{name}>={versions[0]},<={versions[-1]}")
    return tuple(sorted(found))


@cache
def takes(wanted: str, version: str) -> bool:
    """Whether a cell of a row (a version or a range) includes a version. An empty cell includes none."""
    if wanted and not wanted[0].isdigit():
        return SpecifierSet(wanted).contains(Version(version).public, prereleases=True)
    return same_release(wanted, version)


@cache
def same_release(one: str, other: str) -> bool:
    """Whether two versions are equal without local segments (`2.8.0+cpu` is `2.8.0`). "" equals nothing."""
    return bool(one and other) and public_version(one) == public_version(other)
