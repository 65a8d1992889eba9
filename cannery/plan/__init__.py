"""A plan: the ordered layers of an image, each with a digest of its inputs, and its tag. It needs no engine.

`cannery.plan.make` decides the content of a layer, and templates/ how it is made. The plan's digest does not depend on
the arch. It covers the locks of all arches of the profile, so all arches of an image share a tag:
`<profile>:<cann>-<chip>-<os>-py<python>-<plan>[-trial][-standin][-forced]`. The moving alias is the same without plan
and `-trial`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from cannery.errors import UsageError
from cannery.plan.sources import is_own_patch
from cannery.recipe.recipe import LeftOut, left_out
from cannery.vocab import Arch, BaseKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import StandIn
    from cannery.catalog.compatibility import Compatibility
    from cannery.lock.lock import Lock
    from cannery.patches.sets import PatchSet
    from cannery.plan.make import Group
    from cannery.plan.sources import LocalTree, NotPatched, PatchedTree, SourceStep
    from cannery.recipe.recipe import Recipe


PLAN_DIGITS = 12
TAG = re.compile(
    r"(?P<cann>\d+\.\d+\.(?:\d+|rc\d+)(?:\.[a-z0-9.]+)?)-(?P<chip>910b|a3|310p|910|950|a5)-(?P<os>[a-z][a-z_]*[\d._]+)"
    r"-py(?P<python>3\.\d+)(?:-(?P<plan>[0-9a-f]{12})(?P<trial>-trial)?)?"
    r"(?P<standin>-standin)?(?P<custom>-custom)?(?P<forced>-forced)?",
    re.ASCII,
)
Family = Literal["apt", "dnf"]


@dataclass(frozen=True)
class ImageTag:
    """The parts of a tag. `plan` is 12 hex digits, or "" for the moving alias. `custom` marks the user's own base.

    `trial` marks a set that is not the profile's, so that the two never have the same tag.
    """

    cann: str
    chip: str
    os: str
    python: str
    plan: str = ""
    trial: bool = False
    standin: bool = False
    custom: bool = False
    forced: bool = False

    def __str__(self) -> str:
        parts = [f"{self.cann}-{self.chip}-{self.os}-py{self.python}"]
        parts += [self.plan] if self.plan else []
        parts += [word for word in ("trial", "standin", "custom", "forced") if getattr(self, word)]
        return "-".join(parts)

    @property
    def alias(self) -> str:
        """The moving tag: the same without plan and `-trial`."""
        return str(replace(self, plan="", trial=False))


def parse_tag(text: str) -> ImageTag:
    """Parse a tag in the form of `str(ImageTag)`. Raises `UsageError` for any other text."""
    match = TAG.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a Cannery tag",
            hint="written like 8.5.0-910b-ubuntu22.04-py3.11-0123456789ab[-trial][-standin][-forced]",
        )
    cann, chip, os, python, plan, *flags = match.groups()
    trial, standin, custom, forced = map(bool, flags)
    return ImageTag(cann, chip, os, python, plan or "", trial=trial, standin=standin, custom=custom, forced=forced)


class LayerKind(StrEnum):
    """How a layer is made. Each kind has a template in templates/stages."""

    SYSTEM = "system"
    VENV = "venv"
    GROUP = "group"
    BUILT = "built"
    LINKS = "links"
    FILES = "files"
    SOURCE = "source"
    TREE = "tree"


@dataclass(frozen=True)
class Layer:
    """One layer: the name of its stage, its kind, the digest of its inputs (12 hex digits), and a summary."""

    name: str
    kind: LayerKind
    digest: str
    summary: str
    packages: int = 0
    wheel_bytes: int = 0


@dataclass(frozen=True)
class Link:
    """A symbolic link in a layer."""

    path: str
    target: str


@dataclass(frozen=True)
class Plan:
    """Everything that an engine or the assembler needs to make one image.

    The image is built on `base_reference`; the stages run in `build_reference` on `build_arch`. `base_source` is the
    mirror from which this machine gets the base, or ""; it does not change the image. `epoch` is the mtime of every
    added file, in seconds. `env` is the complete environment.
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
    # The patched sources, once their trees were read (`cannery.patches.io.patching`).
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
            trial=self.is_trial,
            standin=kind is BaseKind.STANDIN,
            custom=kind is BaseKind.CUSTOM,
            forced=bool(self.forced),
        )

    @property
    def foundation(self) -> tuple[Layer, ...]:
        """The lowest layers, which run commands of the base. A changed pin does not change them."""
        return tuple(one for one in self.layers if one.kind in {LayerKind.SYSTEM, LayerKind.VENV, LayerKind.BUILT})

    @property
    def upper(self) -> tuple[Layer, ...]:
        """The layers above the foundation."""
        return self.layers[len(self.foundation) :]

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The sources that a stand-in image leaves out."""
        return left_out(self.recipe)

    @property
    def reference(self) -> str:
        """`<profile>:<tag>`."""
        return f"{self.recipe.name}:{self.tag}"

    @property
    def folder(self) -> str:
        """The name of the rendered folder: one for each profile, target and kind of base."""
        return f"{self.recipe.name}-{self.tag.alias}-{self.recipe.target.arch}"

    @property
    def alias(self) -> str:
        """The moving alias, `<profile>:<tag without plan>`."""
        return f"{self.recipe.name}:{self.tag.alias}"

    @property
    def references(self) -> tuple[str, ...]:
        """Every tag of the image. A trial does not get the moving alias."""
        return (self.reference,) if self.is_trial else (self.reference, self.alias)

    @property
    def is_trial(self) -> bool:
        """Whether the set is not the profile's own: pins, releases of sources, trees or patches of the user."""
        is_own = any(step.is_local or is_own_patch(step.patched_by) for step in self.sources)
        return self.recipe.is_trial or is_own


@dataclass(frozen=True)
class Inputs:
    """The inputs of a plan besides the recipe.

    They are the locks of all arches, the lock of the build tools, the digest of each file in templates/, the arch of
    the build host, the stand-in's recipe, the compatibility table, the codes of forced errors, the names of the chip in
    native builds, the user's own trees by component, and the patch sets of images/patches and of the user.
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
