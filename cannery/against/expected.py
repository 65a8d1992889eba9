"""What a profile puts into an image, as far as the image shows it without being run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.catalog.versions import without_build
from cannery.recipe.environment import ATB_HOME, DEFAULT_PATH, expand_env, image_environment
from cannery.recipe.recipe import is_left_out, package_of
from cannery.vocab import BaseKind, Install

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.compatibility import Compatibility
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Recipe

TOOLKIT_HOME = "ASCEND_TOOLKIT_HOME"


@dataclass(frozen=True)
class Expected:
    """What an image of `recipe` holds.

    `packages` are the versions of the lock and of sources, by normalised name; `named` are those that the profile
    names; `env` has the variables that the profile, its components and CANN's place decide; `parts` are CANN's parts;
    `engines` the packages, of any profile, that are built from a repository (vllm, sglang ...): they characterise it.
    """

    recipe: Recipe
    packages: Mapping[str, str]
    named: frozenset[str]
    env: Mapping[str, str]
    parts: frozenset[str]
    engines: frozenset[str]
    table: Compatibility

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.recipe.name

    @property
    def cann(self) -> str:
        """The CANN of the target, without a build number."""
        return without_build(self.recipe.target.cann)

    @property
    def is_standin(self) -> bool:
        """Whether the base is the stand-in, whose OS is not the target's."""
        return self.recipe.base.kind is BaseKind.STANDIN


def expected(recipe: Recipe, lock: Lock, catalog: Catalog) -> Expected:
    """Return what an image of `recipe` with the packages of `lock` holds."""
    # A tree on PYTHONPATH has no metadata: an image does not show it.
    seen = [one for one in recipe.sources if one.version and one.component.install is not Install.TREE]
    built = {one.package: one.version or "" for one in seen if not is_left_out(recipe, one)}
    sources = {one.package for one in recipe.sources}
    locked = {package.name: package.version for package in lock.packages if package.name not in sources}
    return Expected(
        recipe=recipe,
        packages={**locked, **built},
        named=frozenset([*(one.package for one in recipe.wheels), *built]),
        env=_own_environment(recipe),
        parts=frozenset(file.name for file in recipe.base.line.version_files),
        engines=frozenset(package_of(name, one) for name, one in catalog.sources.items() if one.hosts),
        table=catalog.compatibility,
    )


def _own_environment(recipe: Recipe) -> dict[str, str]:
    line, tag, target = recipe.base.line, recipe.base.found, recipe.target
    base = expand_env(line, target, tag) if tag is not None and target.os in line.env else {"PATH": DEFAULT_PATH}
    own = [*(name for one in recipe.chosen for name in one.component.env), *recipe.profile.env]
    env = image_environment(recipe, base)
    return {name: env[name] for name in (ATB_HOME, TOOLKIT_HOME, *own) if name in env}
