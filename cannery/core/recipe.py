"""A recipe is a profile bound to one target: which components at which versions, on which base, asking what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cannery.core.address_fields import REGISTRY_HINT, reference_fault
from cannery.core.errors import FindingsError, UsageError
from cannery.core.held import held_bounds
from cannery.core.image_reference import parse_reference
from cannery.core.target import Target, parse_arch, parse_cann, parse_chip, parse_os, parse_python
from cannery.core.versions import without_build
from cannery.core.words import Arch, BaseKind, ComponentKind, Install, did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.core.catalog import BaseLine, BaseTag, Catalog, Pin, Profile
    from cannery.core.component import Archive, Component, Known, OnStandIn

STANDIN = "standin"


@dataclass(frozen=True)
class Options:
    """What a user may say about a target, as texts; None keeps the profile's value. `pins` are `NAME==VERSION`.

    `sources` is `release`, or `release:NAME,NAME`: releases in the place of commits, of all sources that have one or of
    those that are named. `as_documented` takes the versions that the profile's guide names. `local` are the sources
    whose tree is the user's own, by component or distribution: no release takes their place.
    """

    cann: str | None = None
    chip: str | None = None
    os: str | None = None
    python: str | None = None
    arch: str | None = None
    base: str | None = None
    pins: tuple[str, ...] = ()
    force: bool = False
    sources: str | None = None
    as_documented: bool = False
    local: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """A component of a recipe: its name, its catalog entry and the version it is pinned to (None: the resolver's).

    `arch` is the recipe's: the index and the build of a version may depend on it. A source is pinned to a `commit`, or
    to the `release` on the package index that is taken in its place; `version` is then what it calls itself.
    """

    name: str
    component: Component
    version: str | None
    extras: tuple[str, ...]
    reason: str
    arch: Arch
    commit: str | None = None
    release: str | None = None

    @property
    def known(self) -> Known | None:
        """What is known of a source at its pin without fetching it; None for other kinds."""
        if self.commit is not None:
            return self.component.revisions.get(self.commit)
        return self.component.releases.get(self.release) if self.release is not None else None

    @property
    def archive(self) -> Archive | None:
        """The tarball of an archive; None for other kinds."""
        return self.component.archives.get(self.version or "")

    @property
    def file(self) -> Literal["", "sdist", "wheel"]:
        """What a lock has of a source: nothing of a commit, and of a release one file."""
        if self.release is None:
            return ""
        return "sdist" if self.component.releases[self.release].sdist else "wheel"

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
    def index(self) -> str | None:
        """The only index that it may come from; None is the host's default index."""
        return self.component.index_on(self.arch, self.version)

    @property
    def full_version(self) -> str | None:
        """The pinned version with the local segment that the component's index uses (`2.13.0+cpu`)."""
        if self.version is None or self.component.local is None or "+" in self.version:
            return self.version
        if self.index != self.component.index:
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
    # The target's tag, and what the line knows of it; None when there is no such image.
    tag_name: str
    found: BaseTag | None

    @property
    def tag(self) -> BaseTag:
        """What is known of the target's tag. Raises `FindingsError` when no such image exists."""
        if self.found is None:
            raise FindingsError(f"no CANN image {self.tag_name}", where=f"images/bases/{self.line.cann}.yaml")
        return self.found


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
    # Bounds that follow from the compatibility table: torch's by torch_npu's row, and those of what follows torch.
    held: tuple[str, ...] = ()
    # Sources whose release is taken in the place of a commit (`Options.sources`), and `Options.as_documented`.
    released: tuple[str, ...] = ()
    as_documented: bool = False

    @property
    def file(self) -> str:
        """The profile's file, for messages."""
        return f"images/profiles/{self.name}.yaml"

    @property
    def wheels(self) -> tuple[Chosen, ...]:
        """The components that come as wheels, in the profile's order."""
        return tuple(c for c in self.chosen if c.component.kind is ComponentKind.WHEELS)

    @property
    def sources(self) -> tuple[Chosen, ...]:
        """The components that come from a git repository or a release made from one, in the profile's order."""
        return tuple(c for c in self.chosen if c.component.kind.is_source)

    @property
    def archives(self) -> tuple[Chosen, ...]:
        """The components that are built from a tarball, in the profile's order."""
        return tuple(c for c in self.chosen if c.component.kind is ComponentKind.ARCHIVE)

    def standin_of(self, chosen: Chosen) -> OnStandIn | None:
        """Return how a source is had on a stand-in, where it says so; None on any other base."""
        return chosen.component.standin if self.base.kind is BaseKind.STANDIN else None

    def install_of(self, chosen: Chosen) -> Install:
        """Return what becomes of a source that is built; a stand-in may have a way of its own."""
        standin = self.standin_of(chosen)
        return (standin.install if standin else None) or chosen.component.install or Install.WHEEL

    @property
    def is_standard(self) -> bool:
        """Whether the committed lock is meant: the profile's own CANN and versions, nothing forced.

        What CANN imports differs by its version, and so does the lock.
        """
        return not self.is_trial and not self.force and self.target.cann == self.profile.target.cann

    @property
    def is_trial(self) -> bool:
        """Whether versions are other ones than the profile's, by the user's word."""
        return bool(self.pins or self.released or self.as_documented)

    @property
    def changes(self) -> str:
        """What the user asked for beside the profile's own set, in words; "" when nothing."""
        words = [*self.pins]
        words += [f"releases of {', '.join(self.released)}"] if self.released else []
        words += ["the guide's own versions"] if self.as_documented else []
        return ", ".join(words)


def find_profile(catalog: Catalog, name: str) -> Profile:
    """Return the profile called `name`; raise `UsageError` with the nearest names."""
    profile = catalog.profiles.get(name)
    if profile is None:
        raise UsageError(f"no profile {name!r}", hint=did_you_mean(name, catalog.profiles))
    return profile


def select(catalog: Catalog, name: str, options: Options, host_arch: Arch, locked: Iterable[str] = ()) -> Recipe:
    """Bind profile `name` to the target that `options` describe.

    `host_arch` is used where neither the user nor the profile decides; `locked` are the package names of the
    profile's lock, which a pin may name. Raises `UsageError` for words that mean nothing, `FindingsError` for a CANN
    line without facts. That there is no image for the target is left to the rules.
    """
    profile = find_profile(catalog, name)
    target = _target(profile, options, host_arch)
    released = _released(catalog, profile, options.sources, options.local)
    if options.as_documented and not any(pin.documented for pin in profile.components):
        what = "DOCUMENTED: the guide names no version that is another than the profile's and could exist"
        raise UsageError(what, where=f"profile {name}", hint="leave it out")
    chosen = tuple(
        _choose(pin, catalog.components[pin.name], target.arch, released, as_documented=options.as_documented)
        for pin in profile.components
    )
    chosen, extra = _pinned(chosen, options.pins, locked)
    return Recipe(
        name=name,
        profile=profile,
        target=target,
        base=_base(catalog, profile, target, options.base),
        chosen=chosen,
        pins=extra,
        force=options.force,
        held=held_bounds(chosen, catalog.compatibility),
        released=released,
        as_documented=options.as_documented,
    )


def with_arch(recipe: Recipe, arch: Arch) -> Recipe:
    """Return the same recipe for another CPU architecture."""
    chosen = tuple(replace(one, arch=arch) for one in recipe.chosen)
    return replace(recipe, target=replace(recipe.target, arch=arch), chosen=chosen)


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


def _released(catalog: Catalog, profile: Profile, text: str | None, local: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sources whose release takes the place of a commit. Raises `UsageError` for words that mean nothing."""
    if not text:
        return ()
    word, colon, names = text.partition(":")
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if word != "release" or (colon and not wanted):
        raise UsageError(f"SOURCES: {text!r} is not known", hint="release, or release:NAME,NAME")
    own = {pin.name for pin in profile.components if {pin.name, catalog.components[pin.name].package} & {*local}}
    commits = {pin.name: pin.commit for pin in profile.components if pin.commit and pin.name not in own}
    releases = {pin.name: pin.release for pin in profile.components if pin.release}
    have = {
        name
        for name, commit in commits.items()
        if (revision := catalog.components[name].revisions.get(commit)) and revision.release
    }
    for name in wanted:
        if name in own:
            raise UsageError(f"SOURCES: {name} is a tree of yours (SRC_{name})", hint="take one of the two")
        if name in releases:
            what = f"SOURCES: {name} is release {releases[name]} in this profile already"
            raise UsageError(what, hint="leave it out")
        if name not in commits:
            raise UsageError(f"SOURCES: {name} is no source at a commit here", hint=did_you_mean(name, commits))
        if name not in have:
            what = f"SOURCES: no release is known that stands in for {name} at {commits[name][:12]}"
            raise UsageError(what, hint=f"those that have one: {', '.join(sorted(have)) or 'none'}")
    if not have:
        raise UsageError("SOURCES: no source of this profile has a release to take", hint="leave SOURCES out")
    return tuple(sorted(wanted or have))


def _choose(pin: Pin, component: Component, arch: Arch, released: tuple[str, ...], *, as_documented: bool) -> Chosen:
    revision = component.revisions.get(pin.commit) if pin.commit else None
    if revision is not None and pin.name in released:
        reason = f"release {revision.release} in place of commit {str(pin.commit)[:12]} (SOURCES)"
        return Chosen(pin.name, component, revision.release, pin.extras, reason, arch, None, revision.release)
    version = revision.version if revision else pin.release or pin.version
    if as_documented and pin.documented is not None:
        return Chosen(pin.name, component, pin.documented, pin.extras, "the guide's own version", arch)
    return Chosen(pin.name, component, version, pin.extras, pin.reason, arch, pin.commit, pin.release)


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
    names = {c.package for c in chosen if c.component.kind.is_package}
    known = names | {canonicalize_name(n) for n in locked}
    for name in wanted:
        if name not in known:
            near = did_you_mean(name, known) if nearest(name, known) else "`make show` prints its components"
            raise UsageError(f"--pin: {name} is no package of this profile", hint=near)
    changed = tuple(_repinned(c, wanted[c.package]) if c.package in wanted else c for c in chosen)
    return changed, tuple(sorted(f"{name}=={version}" for name, version in wanted.items()))


def _repinned(chosen: Chosen, version: str) -> Chosen:
    """Pin a component to another version; of a source, one whose requirements are known."""
    component = chosen.component
    if not component.kind.is_source:
        return replace(chosen, version=version)
    commits = [
        commit for commit, revision in component.revisions.items() if Version(revision.version) == Version(version)
    ]
    releases = [release for release in component.releases if Version(release) == Version(version)]
    if commits and (chosen.commit or not releases):
        return replace(chosen, version=version, commit=commits[-1], release=None)
    if releases:
        return replace(chosen, version=version, commit=None, release=releases[0])
    versions = sorted({*component.releases, *(r.version for r in component.revisions.values())}, key=Version)
    raise UsageError(
        f"--pin: nothing is known of {chosen.name} {version}",
        hint=f"known: {', '.join(versions)}; add what it asks for to images/components/{chosen.name}.yaml",
    )


def _base(catalog: Catalog, profile: Profile, target: Target, base: str | None) -> Base:
    fault = reference_fault(base or "")
    if fault:
        raise UsageError(f"BASE: {fault}", hint=REGISTRY_HINT)
    wanted = base or (STANDIN if profile.base == STANDIN else "cann")
    line = catalog.bases.get(without_build(target.cann))
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
    _check_reference(wanted, catalog)
    parse_reference(wanted)
    return Base(BaseKind.CUSTOM, (wanted,), line, tag_name, tag)


def _all_tags(catalog: Catalog) -> frozenset[str]:
    return frozenset(tag for line in catalog.bases.values() for tag in line.tags)


def _check_reference(text: str, catalog: Catalog) -> None:
    """A full reference has a registry host, a path or a digest; anything else is a misspelt tag."""
    if "/" not in text and ":" not in text and "@" not in text:
        raise UsageError(f"BASE: {text!r} is not known", hint=did_you_mean(text, {STANDIN, *_all_tags(catalog)}))
