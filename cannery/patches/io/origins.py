"""Where the patch sets of a plan are kept, in plugins' trees and in folders, and which of them a source gets."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from cannery.patches.io.folders import plugin_sets
from cannery.patches.io.trees import TreeReader
from cannery.patches.sets import find_set
from cannery.plan.patched import component_of, providers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from cannery.patches.sets import PatchSet
    from cannery.plan.plan import Plan
    from cannery.plan.source_step import SourceStep
    from cannery.recipe.recipe import ChosenSource, Recipe

    # The patch sets that plugins keep in their trees, by plugin and repo.
    Kept = Mapping[str, Mapping[str, Sequence[PatchSet]]]
    # Fetches the trees of some sources of a plan: {component: archive}.
    Fetch = Callable[[Sequence[SourceStep]], Mapping[str, Path]]


def open_trees(
    plan: Plan, fetch: Fetch, stack: ExitStack, only: Collection[str] | None = None
) -> dict[str, TreeReader]:
    """Open the trees of those that are patched, and of those that bring patches; of the components `only` if given."""
    bring = {one.name for one in providers(plan.recipe)}
    steps = [step for step in plan.sources if step.patched_by or step.name in bring]
    paths = fetch([step for step in steps if only is None or step.name in only])
    return {name: stack.enter_context(closing(TreeReader(path))) for name, path in paths.items()}


def target(recipe: Recipe, provider: ChosenSource, repo: str) -> ChosenSource | None:
    """Return the source that a plugin means by `repo`."""
    sets = provider.component.patch_sets
    name = sets.repos.get(repo, repo) if sets else repo
    return component_of(recipe, name) or component_of(recipe, repo)


def kept_in(recipe: Recipe, trees: Mapping[str, TreeReader]) -> Kept:
    """Return the patch sets that plugins keep in their trees; of one whose tree is not open, none."""
    return {
        one.name: plugin_sets(one.name, one.component.patch_sets, trees[one.name])
        for one in providers(recipe)
        if one.name in trees
    }


def kept_for(recipe: Recipe, kept: Kept) -> Iterator[tuple[str, Sequence[PatchSet], ChosenSource | None]]:
    """Give each repo that plugins keep sets for, its sets, and the source of `recipe` that is meant by it."""
    for provider in providers(recipe):
        for repo, group in kept.get(provider.name, {}).items():
            yield repo, group, target(recipe, provider, repo)


def fitting_for(plan: Plan, step: SourceStep, kept: Kept, own: Sequence[PatchSet]) -> Iterator[PatchSet]:
    """Give the sets that are for a source's revision: plugins' first, then those of folders (`own`)."""
    for _, group, chosen in kept_for(plan.recipe, kept):
        if chosen is not None and chosen.name == step.name and step.commit and not step.release:
            found = find_set(group, step.commit)
            if found is not None:
                yield found
    origins = {one.origin for one in step.patched_by}
    yield from (one for one in own if one.origin in origins)
