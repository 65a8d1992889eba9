"""A plan: the ordered layers of an image, each with a digest of its inputs. It assumes no engine.

What a layer holds is in `cannery.plan.layers`, how it is made in templates/. The plan's own digest does not
depend on the arch: it covers the locks of all arches of the profile, so that the arches of one image share a tag
(CONTRACTS, "Tags").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from cannery.plan.patched import is_own_patch
from cannery.plan.tags import ImageTag
from cannery.recipe.recipe import LeftOut, left_out
from cannery.vocab import Arch, BaseKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import StandIn
    from cannery.catalog.compatibility import Compatibility
    from cannery.lock.lock import Lock
    from cannery.patches.sets import PatchSet
    from cannery.plan.grouping import Group
    from cannery.plan.patched import NotPatched, PatchedTree
    from cannery.plan.source_step import LocalTree, SourceStep
    from cannery.recipe.recipe import Recipe


Family = Literal["apt", "dnf"]


class LayerKind(StrEnum):
    """How a layer is made; each kind has a template in templates/stages."""

    SYSTEM = "system"
    VENV = "venv"
    GROUP = "group"
    BUILT = "built"
    LINKS = "links"
    FILES = "files"
    SOURCE = "source"
    TREE = "tree"


# What needs a system to be made: the lowest layers, which a changed pin leaves as they are.
FOUNDATION = frozenset({LayerKind.SYSTEM, LayerKind.VENV, LayerKind.BUILT})


@dataclass(frozen=True)
class Layer:
    """One layer: its stage's name, its kind, the 12-hex digest of its inputs, and what it brings, in words."""

    name: str
    kind: LayerKind
    digest: str
    summary: str
    packages: int = 0
    wheel_bytes: int = 0


@dataclass(frozen=True)
class Link:
    """A symbolic link that a layer makes."""

    path: str
    target: str


@dataclass(frozen=True)
class Plan:
    """Everything an engine, or later an assembler, needs to make one image.

    `base_reference` is what the image is built on, `build_reference` what the stages run in, on `build_arch`;
    `base_source` is where this machine gets the base, "" where it is under that name: no part of what the image is.
    `epoch` (seconds) is the mtime of every file that the layers add. `env` is the complete environment.
    """

    recipe: Recipe
    lock: Lock
    tools: Lock
    base_reference: str
    build_reference: str
    build_arch: Arch
    groups: tuple[Group, ...]
    sources: tuple[SourceStep, ...]
    layers: tuple[Layer, ...]
    system_packages: tuple[str, ...]
    links: tuple[Link, ...]
    env: Mapping[str, str]
    epoch: int
    digest: str
    forced: tuple[str, ...]
    # What became of the sources' patches, once their trees were read (`cannery.patches.io.patching`).
    patched: tuple[PatchedTree, ...] = ()
    not_patched: tuple[NotPatched, ...] = ()
    base_source: str = ""

    @property
    def tag(self) -> ImageTag:
        """The image's tag."""
        target, kind = self.recipe.target, self.recipe.base.kind
        return ImageTag(
            target.cann,
            target.chip,
            target.os,
            target.python,
            self.digest,
            standin=kind is BaseKind.STANDIN,
            custom=kind is BaseKind.CUSTOM,
            forced=bool(self.forced),
        )

    @property
    def foundation(self) -> tuple[Layer, ...]:
        """The layers that need a system, which are the lowest."""
        return tuple(layer for layer in self.layers if layer.kind in FOUNDATION)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """What is missing in a stand-in image of its profile."""
        return left_out(self.recipe)

    @property
    def reference(self) -> str:
        """`<profile>:<tag>`."""
        return f"{self.recipe.name}:{self.tag}"

    @property
    def folder(self) -> str:
        """The name of the rendered folder: profiles, targets and kinds of base do not write over each other."""
        return f"{self.recipe.name}-{self.tag.alias}-{self.recipe.target.arch}"

    @property
    def alias(self) -> str:
        """The moving alias, `<profile>:<tag without plan>`."""
        return f"{self.recipe.name}:{self.tag.alias}"

    @property
    def references(self) -> tuple[str, ...]:
        """Every tag of the image. A set that is not the profile's own is a trial: it takes no moving alias."""
        is_own = any(step.is_local or is_own_patch(step.patched_by) for step in self.sources)
        is_trial = self.recipe.is_trial or is_own
        return (self.reference,) if is_trial else (self.reference, self.alias)


@dataclass(frozen=True)
class Inputs:
    """What a plan is made from, beside the recipe.

    The locks of all arches, the build tools' lock, the digest of each file below templates/, the build host's arch, the
    stand-in's recipe, the compatibility table, the codes of the errors that a user forced, what native builds call the
    chip, and the user's own trees by component, and the patch sets of images/patches and of the user.
    """

    locks: Mapping[Arch, Lock]
    tools: Lock
    templates: Mapping[str, str]
    build_arch: Arch
    standin: StandIn
    table: Compatibility
    forced: tuple[str, ...] = ()
    socs: tuple[str, ...] = ()
    local: Mapping[str, LocalTree] = field(default_factory=dict)
    patch_sets: tuple[PatchSet, ...] = ()
