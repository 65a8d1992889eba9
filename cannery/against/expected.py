"""What a profile puts into an image, as far as the image can show it without being run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.plan.patched import providers
from cannery.recipe.base_env import DEFAULT_PATH, expand_env
from cannery.recipe.environment import ATB_HOME, image_environment
from cannery.recipe.left_out import is_left_out
from cannery.vocab import BaseKind, Install

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.compatibility import Compatibility
    from cannery.catalog.component import FromSource
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import ChosenSource, Recipe

TOOLKIT_HOME = "ASCEND_TOOLKIT_HOME"


@dataclass(frozen=True)
class Expected:
    """What an image of `recipe` holds.

    `packages` are the lock's versions by normalised name, without sources; `named` those that the profile itself names;
    `sources` what comes from git or stands in for it; `env` the variables that the profile, its components and CANN's
    place decide.
    """

    recipe: Recipe
    packages: Mapping[str, str]
    named: frozenset[str]
    sources: tuple[ChosenSource, ...]
    env: Mapping[str, str]
    table: Compatibility

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.recipe.name

    @property
    def is_standin(self) -> bool:
        """Whether a stand-in base is meant, whose OS is not the target's."""
        return self.recipe.base.kind is BaseKind.STANDIN

    @property
    def patchers(self) -> tuple[ChosenSource, ...]:
        """The sources that bring patches or edits for others, and are expected themselves."""
        return tuple(one for one in providers(self.recipe) if one in self.sources)


def expected(recipe: Recipe, lock: Lock, catalog: Catalog) -> Expected:
    """Return what an image of `recipe` with the packages of `lock` holds."""
    sources = tuple(one for one in recipe.sources if not is_left_out(recipe, one))
    names = {one.package for one in recipe.sources}
    return Expected(
        recipe=recipe,
        packages={package.name: package.version for package in lock.packages if package.name not in names},
        named=frozenset(one.package for one in recipe.wheels),
        sources=sources,
        env=_own_environment(recipe),
        table=catalog.compatibility,
    )


def _own_environment(recipe: Recipe) -> dict[str, str]:
    line, tag, target = recipe.base.line, recipe.base.found, recipe.target
    base = expand_env(line, target, tag) if tag is not None and target.os in line.env else {"PATH": DEFAULT_PATH}
    own = [*(name for one in recipe.chosen for name in one.component.env), *recipe.profile.env]
    env = image_environment(recipe, base)
    return {name: env[name] for name in (ATB_HOME, TOOLKIT_HOME, *own) if name in env}


def tree_tops(component: FromSource) -> tuple[str, ...]:
    """Return the files by which a tree is known that nothing was installed of: what its imports begin with."""
    return tuple(f"{item.module.replace('.', '/')}/__init__.py" for item in component.imports)


def asked_files(components: Iterable[FromSource]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (ends of paths that are wanted, folders of patch sets): files that plugins edit, and tops of trees."""
    known = tuple(components)
    suffixes = {edit.file for one in known for edit in one.edits}
    suffixes |= {path for one in known if one.install is Install.TREE for path in tree_tops(one)}
    folders = {one.patch_sets.folder for one in known if one.patch_sets}
    return tuple(sorted(suffixes)), tuple(sorted(folders))
