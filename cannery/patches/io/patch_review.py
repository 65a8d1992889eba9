"""What the patches of an image do, read from the trees: changes by AST, the plugin's own summary, defects they bring.

Sets are tried as a build applies them, each on what those before it left. Patches that the image is without are tried
alone on the tree that there is, so that all of a set can be looked at.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cannery.errors import CanneryError
from cannery.patches.io.patch_origins import kept_for, kept_in, open_trees, target
from cannery.patches.patch_defects import attribute_names, defects, defined_names
from cannery.patches.patch_summary import differences, read_summary
from cannery.patches.py_changes import PatchChanges, RepoChanges, python_changes
from cannery.patches.set_apply import Layered, apply_set
from cannery.patches.sets import find_set
from cannery.plan.patched import providers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.patches.io.trees import TreeReader
    from cannery.patches.patch_defects import Defect
    from cannery.patches.patch_summary import Difference
    from cannery.patches.result import SetResult
    from cannery.patches.sets import PatchSet
    from cannery.plan.plan import Plan
    from cannery.recipe.recipe import ChosenSource


@dataclass(frozen=True)
class Review:
    """What the patch sets of one image do.

    `repos` are the changes of what applies; `unread` says, by patch, why nothing is told of it; `hand_written` is how
    the plugin's own summary differs, and `defects` are what a patch adds that can only fail.
    """

    repos: tuple[RepoChanges, ...]
    unread: tuple[str, ...]
    hand_written: tuple[Difference, ...]
    defects: tuple[tuple[str, Defect], ...]


def review(context: Context, catalog: Catalog, plan: Plan, only: str | None = None) -> Review:
    """Return what the sets of `plan` do, those of repo `only` when it is given; trees are fetched where needed.

    Raises as `cannery.patches.io.patching.with_patches`.
    """
    repos: list[RepoChanges] = []
    tried: list[PatchSet] = []
    unread: list[str] = []
    found: list[tuple[str, Defect]] = []
    differing: list[Difference] = []
    with ExitStack() as stack:
        trees = open_trees(context, catalog, plan, stack, set(_needed(context, plan, only)))
        left = {name: Layered(tree.read) for name, tree in trees.items()}
        for patches, component in _sets(context, plan, trees):
            if only is not None and patches.repo != only:
                continue
            tried.append(patches)
            tree = trees.get(component)
            if tree is None:
                unread.append(f"{patches.folder}: there is no source tree of {patches.repo} to try them on")
                continue
            is_built = _is_for(plan, component, patches)
            changes, words, wrong = _one(patches, tree, left[component] if is_built else Layered(tree.read))
            repos.append(changes)
            unread += words
            found += wrong
        for provider in providers(plan.recipe):
            if provider.name in trees:
                differing += _hand_written(provider, trees[provider.name], repos, tried)
    return Review(tuple(repos), tuple(unread), tuple(differing), tuple(found))


def _hand_written(
    provider: ChosenSource, tree: TreeReader, repos: Sequence[RepoChanges], tried: Sequence[PatchSet]
) -> Iterator[Difference]:
    """Give where a plugin's own summary differs: it tells of the plugin's own sets.

    Of a patch that did not apply nothing was computed to judge it by.
    """
    kept = provider.component.patch_sets
    text = tree.read(kept.summary) if kept and kept.summary else None
    if kept is None or text is None:
        return
    summary = read_summary(text.decode("utf-8", "replace"), f"{provider.name}: {kept.summary}")
    mine = [one for one in repos if one.keeper == provider.name]
    computed = {(one.repo, patch.name) for one in mine for patch in one.patches}
    failed = {(one.repo, file.name) for one in tried if one.keeper == provider.name for file in one.files} - computed
    yield from (one for one in differences(mine, summary) if (one.repo, one.file) not in failed)


def _needed(context: Context, plan: Plan, only: str | None) -> Iterator[str]:
    """Give the components whose trees the sets need, those of repo `only` when it is given; edits are no sets."""
    for provider in providers(plan.recipe):
        kept = provider.component.patch_sets
        if kept is not None:
            yield provider.name
            chosen = (target(plan.recipe, provider, repo) for repo in kept.repos if only in {None, repo})
            yield from (one.name for one in chosen if one is not None)
    folders = {one.origin for one in context.patch_sets if only in {None, one.repo}}
    yield from (step.name for step in plan.sources if any(by.origin in folders for by in step.patched_by))


def _sets(context: Context, plan: Plan, trees: Mapping[str, TreeReader]) -> Iterator[tuple[PatchSet, str]]:
    """Give every set that is for the image, or would be, in a build's order, and the component that it is for.

    A component that the image has not is "".
    """
    for _, group, chosen in kept_for(plan.recipe, kept_in(plan.recipe, trees)):
        fitting = find_set(group, chosen.commit) if chosen is not None and chosen.commit else None
        for one in (fitting,) if fitting else group:
            yield one, chosen.name if chosen else ""
    steps = {origin.origin: step.name for step in plan.sources for origin in step.patched_by}
    for one in context.patch_sets:
        if one.origin in steps:
            yield one, steps[one.origin]


def _is_for(plan: Plan, component: str, patches: PatchSet) -> bool:
    """Whether a set is for the commit of a component, so that a build applies it."""
    commit = next((step.commit for step in plan.sources if step.name == component and not step.release), None)
    return commit is not None and find_set((patches,), commit) is not None


def _one(
    patches: PatchSet, tree: TreeReader, files: Layered
) -> tuple[RepoChanges, list[str], list[tuple[str, Defect]]]:
    """Return what one set does to a tree as earlier sets left it in `files`; of a patch that does not apply, why.

    What it changes is in `files` afterwards.
    """
    earlier = Layered(tree.read, dict(files.changed))
    applied: dict[str, SetResult] = {}
    words: list[str] = []
    for file in patches.files:
        result = apply_set(replace(patches, files=(file,)), files.read)
        if result.problems:
            words += [f"{patches.folder}: {problem}" for problem in result.problems]
        else:
            applied[file.name] = result
            files.changed |= result.contents
    changes = [
        PatchChanges(name, tuple(python_changes(path, one.before[path], after) for path, after in one.contents.items()))
        for name, one in applied.items()
    ]
    return (
        RepoChanges(patches.repo, patches.rev, tuple(changes), patches.keeper),
        words,
        list(_defects(applied, tree, earlier)),
    )


def _defects(applied: Mapping[str, SetResult], tree: TreeReader, earlier: Layered) -> Iterator[tuple[str, Defect]]:
    """Give what the patches of a set add that can only fail. A name that one of them defines is known to the others.

    `earlier` is the tree as the sets before it left it.
    """
    changed = {
        (name, path): (one.before[path], after)
        for name, one in applied.items()
        for path, after in one.contents.items()
        if path.endswith(".py") and after is not None
    }
    if not changed:
        return
    new = (defined_names(path, after) for (_, path), (_, after) in changed.items())
    names = _known_names({*tree.paths, *earlier.changed}, earlier).union(*new)
    for (name, path), (before, after) in changed.items():
        yield from ((name, one) for one in defects(path, before, after, names))


def _known_names(paths: Iterable[str], files: Layered) -> frozenset[str]:
    """Return every name that the Python files at `paths` know; what is no Python knows none."""
    names: set[str] = set()
    for path in paths:
        if path.endswith(".py"):
            try:
                names |= attribute_names(files.read(path) or b"")
            except (CanneryError, SyntaxError, ValueError):
                continue  # a template, or of another Python
    return frozenset(names)
