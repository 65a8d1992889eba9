"""Sources that are in the image as trees: what PYTHONPATH names of them, and links from one tree to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.recipe.left_out import is_left_out
from cannery.vocab import Install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.recipe.recipe import ChosenSource, Recipe


def python_folders(recipe: Recipe) -> tuple[str, ...]:
    """Return the folders that PYTHONPATH has to name, in the profile's order: those of `install: tree`."""
    return tuple(
        "/".join(filter(None, (SOURCES_HOME, chosen.name, chosen.component.subdirectory)))
        for chosen in recipe.sources
        if _install(recipe, chosen) is Install.TREE and not is_left_out(recipe, chosen)
    )


def tree_links(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Give (path, target) of each link from a tree to another one; a tree that is not in the image gets none."""
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
    """Return what becomes of a source. A release that is a wheel is a package of the lock and is nowhere else."""
    return Install.WHEEL if chosen.file == "wheel" else recipe.install_of(chosen)


# Where trees are in the image.
SOURCES_HOME = "/opt/src"
