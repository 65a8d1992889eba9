"""A recipe: a profile bound to one target, with components, versions, base, and the options of the user."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, cast

from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.component import FromSource, Native, Part, System, Wheels
from cannery.errors import FindingsError, UsageError
from cannery.vocab import Arch, BaseKind, Install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.catalog import BaseLine, BaseTag, Profile, Substitute
    from cannery.catalog.component import Known, OnStandIn
    from cannery.catalog.target import Target

STANDIN = "standin"
C_co = TypeVar("C_co", bound=Part, covariant=True)
M = TypeVar("M", bound=Part)
# The folder of source trees in the image.
SOURCES_HOME = "/opt/src"


@dataclass(frozen=True)
class Options:
    """The options of a user, as texts; None keeps the profile's value. `pins` are `NAME==VERSION`.

    `sources` is `release` or `release:NAME,NAME`: all sources with a release, or the named ones, use the release
    instead of a commit. `local` are the sources with a tree of the user, by component or distribution. They keep it.
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
    local: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice(Generic[C_co]):
    """A component of a recipe: its name, catalog entry and pinned version (None: the resolver chooses).

    `arch` is that of the recipe: the index and the build of a version may depend on it. A source is pinned to a
    `commit`, or to a `release` on the package index; `version` is its version there.
    """

    name: str
    component: C_co
    version: str | None
    reason: str
    arch: Arch
    commit: str | None = None
    release: str | None = None

    @cached_property
    def known(self) -> Known | None:
        """The catalog's facts about a source at its pin; None if there are none, and for other kinds."""
        if not isinstance(self.component, FromSource):
            return None
        if self.commit is not None:
            return self.component.revisions.get(self.commit)
        return self.component.releases.get(self.release) if self.release is not None else None

    @property
    def file(self) -> Literal["", "sdist", "wheel"]:
        """The kind of a source's file in a lock: "" for a commit, one file for a release."""
        if self.release is None or not isinstance(self.component, FromSource):
            return ""
        return "sdist" if self.component.releases[self.release].sdist else "wheel"

    @cached_property
    def package(self) -> str:
        """The normalised name of the distribution."""
        return package_of(self.name, self.component)

    @property
    def requirement(self) -> str:
        """The PEP 508 requirement of a `wheels` component, with its local version segment."""
        own = self.component.extras if isinstance(self.component, Wheels) else ()
        name = self.package + (f"[{','.join(sorted(own))}]" if own else "")
        return f"{name}=={self.full_version}" if self.version else name

    @cached_property
    def index(self) -> str | None:
        """The only index that it may come from; None is the default index."""
        return self.component.index_on(self.arch, self.version) if isinstance(self.component, Wheels) else None

    @cached_property
    def full_version(self) -> str | None:
        """The pinned version with the local segment of the component's index (`2.13.0+cpu`)."""
        if self.version is None or "+" in self.version or not isinstance(self.component, Wheels):
            return self.version
        if self.component.local is None or self.index != self.component.index:
            return self.version
        return f"{self.version}+{self.component.local}"


Chosen = Choice[Part]
ChosenWheels = Choice[Wheels]
ChosenSource = Choice[FromSource]


def package_of(name: str, component: Part | None) -> str:
    """Return the normalised distribution name of a component; `name` is the name of the component."""
    own = component.package if isinstance(component, Wheels | FromSource) else None
    return canonicalize_name(own or name)


@dataclass(frozen=True)
class Base:
    """The base that the layers are built on.

    `references` are full image references, in the order in which they are tried. They are empty for the stand-in, whose
    reference depends on the lock (`cannery.plan.make`).
    """

    kind: BaseKind
    references: tuple[str, ...]
    line: BaseLine
    # The target's tag, and its entry in `line`; None if there is no such image.
    tag_name: str
    found: BaseTag | None

    @property
    def tag(self) -> BaseTag:
        """The entry of the target's tag. Raises `FindingsError` if no such image exists."""
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
    # Bounds from the compatibility table: on torch, from torch_npu's row, and on distributions that follow torch.
    held: tuple[str, ...] = ()
    # Sources that use a release instead of a commit (`Options.sources`).
    released: tuple[str, ...] = ()
    # The other versions on a stand-in. `chosen` already has them.
    substitutes: tuple[Substitute, ...] = ()

    @property
    def file(self) -> str:
        """The profile's file, for messages."""
        return f"images/profiles/{self.name}.yaml"

    @cached_property
    def wheels(self) -> tuple[ChosenWheels, ...]:
        """The components that are installed from wheels, in the profile's order."""
        return tuple(self._of_kind(Wheels))

    @cached_property
    def sources(self) -> tuple[ChosenSource, ...]:
        """The components that are built from a git repository or a release, in the profile's order."""
        return tuple(self._of_kind(FromSource))

    @property
    def unknown(self) -> tuple[ChosenSource, ...]:
        """The sources at an unknown version. The table may have rows for it, but it cannot be locked."""
        return tuple(one for one in self.sources if one.version and one.known is None)

    def check_known(self) -> None:
        """Raise `UsageError` if a source is at a version that its component does not have."""
        for one in self.unknown:
            component = one.component
            versions = {*component.releases, *(known.version for known in component.revisions.values())}
            raise UsageError(
                f"the requirements of {one.name} {one.version} are not known, so it can be checked, but not locked",
                hint=f"known: {', '.join(sorted(versions, key=Version))}; "
                f"`build.py facts {one.name}=={one.version}` adds it to images/components/{one.name}.yaml",
            )

    @cached_property
    def system(self) -> tuple[Choice[System], ...]:
        """The components that are system packages, in the profile's order."""
        return tuple(self._of_kind(System))

    def _of_kind(self, model: type[M]) -> Iterator[Choice[M]]:
        return (cast("Choice[M]", one) for one in self.chosen if isinstance(one.component, model))

    def standin_of(self, chosen: Chosen) -> OnStandIn | None:
        """Return the stand-in entry of a source's component; None if it has none, and on any other base."""
        if self.base.kind is not BaseKind.STANDIN or not isinstance(chosen.component, Native):
            return None
        return chosen.component.standin

    def install_of(self, chosen: ChosenSource) -> Install:
        """Return how a built source is installed. It may differ on a stand-in."""
        standin = self.standin_of(chosen)
        return (standin.install if standin else None) or chosen.component.install

    @property
    def is_standard(self) -> bool:
        """Whether the committed lock applies: the profile's CANN and versions, and not forced.

        The lock depends on CANN, because each CANN version imports other packages.
        """
        return not self.is_trial and not self.force and self.target.cann == self.profile.target.cann

    @property
    def is_trial(self) -> bool:
        """Whether the user has set other versions than the profile's."""
        return bool(self.pins or self.released)

    @property
    def changes(self) -> str:
        """The user's changes to the profile's set, for messages, or ""."""
        return ", ".join([*self.pins, *([f"releases of {', '.join(self.released)}"] if self.released else [])])


def with_arch(recipe: Recipe, arch: Arch) -> Recipe:
    """Return the same recipe for another CPU architecture."""
    if arch is recipe.target.arch:
        return recipe
    chosen = tuple(replace(one, arch=arch) for one in recipe.chosen)
    return replace(recipe, target=replace(recipe.target, arch=arch), chosen=chosen)


@dataclass(frozen=True)
class LeftOut:
    """A distribution (normalised name) that is not in the image, the reason, and its modules."""

    name: str
    reason: str
    modules: tuple[str, ...]


def left_out(recipe: Recipe) -> tuple[LeftOut, ...]:
    """Return the sources that a stand-in leaves out, in the profile's order; empty on any other base."""
    return tuple(
        LeftOut(chosen.package, standin.reason, tuple(dict.fromkeys(item.module for item in chosen.component.imports)))
        for chosen in recipe.sources
        if is_left_out(recipe, chosen) and (standin := recipe.standin_of(chosen))
    )


def unlinked(recipe: Recipe) -> tuple[Chosen, ...]:
    """Return the releases with prebuilt kernels that cannot load on a stand-in, because they link CANN."""
    if recipe.base.kind is not BaseKind.STANDIN:
        return ()
    return tuple(c for c in recipe.sources if c.release is not None and c.known is not None and c.known.chips)


def is_left_out(recipe: Recipe, chosen: Chosen) -> bool:
    """Whether a stand-in leaves out this source. A release with a wheel is included, as it needs no compiler."""
    standin = recipe.standin_of(chosen)
    return standin is not None and standin.leave_out and chosen.file != "wheel"


def python_folders(recipe: Recipe) -> tuple[str, ...]:
    """Return the folders for PYTHONPATH in the profile's order: the sources with `install: tree`."""
    return tuple(
        "/".join(filter(None, (SOURCES_HOME, chosen.name, chosen.component.subdirectory)))
        for chosen in recipe.sources
        if _install(recipe, chosen) is Install.TREE and not is_left_out(recipe, chosen)
    )


def tree_links(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield (path, target) of each link from one tree to another, if both are in the image."""
    standing = {
        chosen.name
        for chosen in recipe.sources
        if _install(recipe, chosen) is not Install.WHEEL and not is_left_out(recipe, chosen)
    }
    for chosen in recipe.sources:
        for name, target in sorted(chosen.component.tree_links.items()):
            if {chosen.name, target.partition("/")[0]} <= standing:
                yield f"{SOURCES_HOME}/{chosen.name}/{name}", f"{SOURCES_HOME}/{target}"


def _install(recipe: Recipe, chosen: ChosenSource) -> Install:
    """Return how a source is installed. A release with a wheel is installed as a package of the lock."""
    return Install.WHEEL if chosen.file == "wheel" else recipe.install_of(chosen)
