"""The patches of a plan, applied to the trees that were fetched: on the host, before anything is built."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cannery.errors import BuildFailedError
from cannery.patches.io.git_apply import git_repository
from cannery.patches.io.origins import fitting_for, kept_for, kept_in, open_trees
from cannery.patches.io.record import recorded
from cannery.patches.io.steps import TreeSoFar, apply_patches, make_edit
from cannery.patches.sets import find_set
from cannery.patches.tree import Layered
from cannery.plan.patched import USER_SETS, NotPatched, PatchedTree, providers, unpatched_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cannery.patches.io.git_apply import Git
    from cannery.patches.io.origins import Fetch, Kept
    from cannery.patches.io.trees import TreeReader
    from cannery.patches.sets import PatchSet
    from cannery.plan.plan import Plan
    from cannery.plan.source_step import SourceStep
    from cannery.recipe.recipe import Chosen


@dataclass(frozen=True)
class PatchInputs:
    """What patching needs of a run.

    `fetch` brings the trees of sources, `local` are folders of the user's in place of commits. `sets` are the sets of
    images/patches and of the user's folder `own_sets` (None: no such folder); `templates` is the folder of that name.
    """

    fetch: Fetch
    local: Mapping[str, Path]
    sets: tuple[PatchSet, ...]
    own_sets: Path | None
    templates: Path
    env: Mapping[str, str]
    say: Callable[[str], None]


@dataclass(frozen=True)
class _Work:
    """A plan while it is patched: git, the trees that are open, and the sets that plugins keep."""

    plan: Plan
    inputs: PatchInputs
    git: Git
    readers: Mapping[str, TreeReader]
    kept: Kept


def with_patches(plan: Plan, inputs: PatchInputs) -> Plan:
    """Return `plan` with what its patches make of the sources; their trees are fetched where they are not there yet.

    A plan that has it comes back as it is. Raises `BuildFailedError` naming patch, file and hunk where one does not
    apply or changes nothing, `FindingsError` for what is not a patch; and whatever `inputs.fetch` raises.
    """
    if plan.patched or plan.not_patched:
        return plan
    if not providers(plan.recipe) and not any(step.patched_by for step in plan.sources):
        return plan
    with ExitStack() as stack:
        readers = open_trees(plan, inputs.fetch, stack)
        git = stack.enter_context(git_repository(inputs.env))
        kept = kept_in(plan.recipe, readers)
        left = tuple(_not_patched(plan, kept))
        work = _Work(plan, inputs, git, readers, kept)
        trees = [_patched(work, step) for step in plan.sources if step.patched_by]
    for tree in trees:
        for note in tree.notes:
            inputs.say(f"{tree.component}: {note}")
    left = (*left, *(one for tree in trees for one in tree.left))
    for words in unpatched_words(left):
        inputs.say(words)
    return replace(plan, patched=tuple(tree for tree in trees if tree.patches), not_patched=left)


def _not_patched(plan: Plan, kept: Kept) -> Iterator[NotPatched]:
    """Give the patches and edits of plugins that are not made, each with the reason."""
    steps = {step.name: step for step in plan.sources}
    for repo, group, chosen in kept_for(plan.recipe, kept):
        reason = _why_not(group, chosen, steps.get(chosen.name) if chosen else None, repo)
        if reason:
            name = chosen.name if chosen else repo
            yield from (NotPatched(file.name, name, reason) for one in group for file in one.files)
    for provider in providers(plan.recipe):
        for edit in provider.component.edits:
            if edit.component not in steps:
                yield NotPatched(edit.name, edit.component, f"there is no source tree of {edit.component} to edit")


def _why_not(group: Sequence[PatchSet], chosen: Chosen | None, step: SourceStep | None, repo: str) -> str:
    """Return why none of a repo's sets fits a source; "" where one does."""
    wanted = " or ".join(one.rev for one in group)
    release = chosen.release if chosen else None
    if step is None and release is None:
        return f"the patches are for commit {wanted}, and the image has no source tree of {repo}"
    if step is None or step.release:
        return f"the patches are for commit {wanted}, and the image has release {release}"
    if step.commit and find_set(group, step.commit) is not None:
        return ""
    has = "your tree is at" if step.is_local else "the image has commit"
    return f"the patches are for commit {wanted}, and {has} {step.commit or 'no commit'}"


def _patched(work: _Work, step: SourceStep) -> PatchedTree:
    """Apply to one source what its plugins and folders bring, in the order of `step.patched_by`."""
    plan, reader = work.plan, work.readers[step.name]
    tree = TreeSoFar(step, reader, Layered(reader))
    fitting = tuple(fitting_for(plan, step, work.kept, work.inputs.sets))
    for one in fitting:
        count = len(tree.notes)
        apply_patches(work.git, tree, one, _port_command(step, one, work.inputs))
        if len(fitting) > 1:
            tree.notes[count:] = [f"{one.keeper}: {note}" for note in tree.notes[count:]]
    _edit(work, tree)
    chosen = next(one for one in plan.recipe.sources if one.name == step.name)
    return recorded(tree, chosen, plan.recipe.target.python)


def _edit(work: _Work, tree: TreeSoFar) -> None:
    """Make the edits of plugins in one source."""
    revisions = {one.name: one.commit or one.release or one.content for one in work.plan.sources}
    for provider in providers(work.plan.recipe):
        for edit in provider.component.edits:
            if edit.component == tree.step.name and provider.name in work.readers:
                try:
                    make_edit(tree, edit, (provider.name, revisions[provider.name]), work.inputs.templates)
                except BuildFailedError as error:
                    if not tree.step.is_local:
                        raise
                    # A tree of the user's may be at any commit: what does not fit it is a note, as of patches.
                    tree.left.append(NotPatched(edit.name, tree.step.name, f"your tree is another one: {error.what}"))


def _port_command(step: SourceStep, patches: PatchSet, inputs: PatchInputs) -> str:
    """Return the command that tries a set on the very tree that a build takes: a commit's, or the user's folder."""
    folder = (inputs.local.get(step.name) or inputs.local.get(step.package)) if step.is_local else None
    to = f"--tree {shlex.quote(str(folder))}" if folder else step.commit
    words = f"patches port {patches.repo} {patches.rev} {to}"
    is_own = inputs.own_sets is not None and patches.origin.startswith(f"{USER_SETS}/")
    return words + (f" --patches {shlex.quote(str(inputs.own_sets))}" if is_own else "")
