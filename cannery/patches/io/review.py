"""What the patches of an image change, read from the trees by their syntax, and where a plugin's own table differs.

Sets are tried as a build applies them, each on what those before it left. Patches that the image does not
get are tried alone on the tree that there is, so that all of a set is listed.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.patches.changes import PatchChanges, RepoChanges, python_changes
from cannery.patches.io.git_apply import git_repository
from cannery.patches.io.origins import kept_for, kept_in, open_trees, target
from cannery.patches.plugin_table import differences, read_table
from cannery.patches.sets import find_set
from cannery.patches.tree import Layered
from cannery.plan.patched import providers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.patches.io.git_apply import Git
    from cannery.patches.io.patching import PatchInputs
    from cannery.patches.io.trees import TreeReader
    from cannery.patches.plugin_table import Difference
    from cannery.patches.sets import PatchSet
    from cannery.plan.plan import Plan
    from cannery.recipe.recipe import ChosenSource


@dataclass(frozen=True)
class Review:
    """What the patch sets of one image change.

    `repos` are the changes of what applies, `unread` the reasons why a patch is not in it, by patch, and `differing`
    where the plugin's own table differs.
    """

    repos: tuple[RepoChanges, ...]
    unread: tuple[str, ...]
    differing: tuple[Difference, ...]


def review(plan: Plan, inputs: PatchInputs, only: str | None = None) -> Review:
    """Return what the sets of `plan` change, those of repo `only` when it is given; trees are fetched where needed.

    Raises as `cannery.patches.io.patching.with_patches`.
    """
    repos: list[RepoChanges] = []
    tried: list[PatchSet] = []
    unread: list[str] = []
    with ExitStack() as stack:
        trees = open_trees(plan, inputs.fetch, stack, set(_needed(plan, inputs, only)))
        git = stack.enter_context(git_repository(inputs.env))
        left = {name: Layered(tree) for name, tree in trees.items()}
        for patches, component in _sets(plan, inputs, trees):
            if only is not None and patches.repo != only:
                continue
            tried.append(patches)
            tree = trees.get(component)
            if tree is None:
                unread.append(f"{patches.folder}: there is no source tree of {patches.repo} to try them on")
                continue
            is_built = _is_for(plan, component, patches)
            changes, words = _one(git, patches, left[component] if is_built else Layered(tree))
            repos.append(changes)
            unread += words
        mine = [one for one in providers(plan.recipe) if one.name in trees]
        differing = [found for one in mine for found in _differing(one, trees[one.name], repos, tried)]
    return Review(tuple(repos), tuple(unread), tuple(differing))


def _differing(
    provider: ChosenSource, tree: TreeReader, repos: Sequence[RepoChanges], tried: Sequence[PatchSet]
) -> Iterator[Difference]:
    """Give where a plugin's own table differs: it is about the plugin's own sets.

    Nothing was computed of a patch that did not apply, so that one is left out.
    """
    kept = provider.component.patch_sets
    text = tree.read(kept.summary) if kept and kept.summary else None
    if kept is None or text is None:
        return
    table = read_table(text.decode("utf-8", "replace"), f"{provider.name}: {kept.summary}")
    mine = [one for one in repos if one.keeper == provider.name]
    computed = {(one.repo, patch.name) for one in mine for patch in one.patches}
    failed = {(one.repo, file.name) for one in tried if one.keeper == provider.name for file in one.files} - computed
    yield from (one for one in differences(mine, table) if (one.repo, one.file) not in failed)


def _needed(plan: Plan, inputs: PatchInputs, only: str | None) -> Iterator[str]:
    """Give the components whose trees the sets need, those of repo `only` when it is given; edits are no sets."""
    for provider in providers(plan.recipe):
        kept = provider.component.patch_sets
        if kept is not None:
            yield provider.name
            chosen = (target(plan.recipe, provider, repo) for repo in kept.repos if only in {None, repo})
            yield from (one.name for one in chosen if one is not None)
    folders = {one.origin for one in inputs.sets if only in {None, one.repo}}
    yield from (step.name for step in plan.sources if any(by.origin in folders for by in step.patched_by))


def _sets(plan: Plan, inputs: PatchInputs, trees: Mapping[str, TreeReader]) -> Iterator[tuple[PatchSet, str]]:
    """Give every set that is for the image, or would be, in a build's order, and the component that it is for.

    A component that the image does not have is "".
    """
    for _, group, chosen in kept_for(plan.recipe, kept_in(plan.recipe, trees)):
        fitting = find_set(group, chosen.commit) if chosen is not None and chosen.commit else None
        for one in (fitting,) if fitting else group:
            yield one, chosen.name if chosen else ""
    steps = {origin.origin: step.name for step in plan.sources for origin in step.patched_by}
    yield from ((one, steps[one.origin]) for one in inputs.sets if one.origin in steps)


def _is_for(plan: Plan, component: str, patches: PatchSet) -> bool:
    """Whether a set is for the commit of a component, so that a build applies it."""
    commit = next((step.commit for step in plan.sources if step.name == component and not step.release), None)
    return commit is not None and find_set((patches,), commit) is not None


def _one(git: Git, patches: PatchSet, files: Layered) -> tuple[RepoChanges, list[str]]:
    """Return what one set changes in `files`, which has it afterwards, and why the patches that do not apply do not."""
    changes: list[PatchChanges] = []
    words: list[str] = []
    for file in patches.files:
        result = git.apply(file, files)
        if result.already:
            words.append(f"{patches.folder}: {file.name}.patch: the tree has it already")
        elif not result.ok:
            words += [f"{patches.folder}: {problem}" for problem in result.problems]
        else:
            parts = (python_changes(one.path, one.before, one.after) for one in result.changes)
            changes.append(PatchChanges(file.name, tuple(parts)))
            files.add(result.changes)
    return RepoChanges(patches.repo, patches.rev, tuple(changes), patches.keeper), words
