"""The patches of a plan, applied to the trees that were fetched: on the host, before anything is built."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.errors import BuildFailedError
from cannery.patches.io.patch_origins import fitting_for, kept_for, kept_in, open_trees
from cannery.patches.io.patch_steps import TreeSoFar, apply_patches, make_edit
from cannery.patches.io.record import recorded
from cannery.patches.set_apply import Layered
from cannery.patches.sets import find_set
from cannery.plan.manifest import manifest_text
from cannery.plan.patched import USER_SETS, NotPatched, PatchedTree, providers, unpatched_words
from cannery.sources.io.planned_sources import own_tree
from cannery.util.io.files import sha256_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.patches.io.patch_origins import Kept
    from cannery.patches.io.trees import TreeReader
    from cannery.patches.sets import PatchSet
    from cannery.plan.plan import Plan
    from cannery.plan.source_step import SourceStep
    from cannery.recipe.recipe import Chosen


def with_patches(context: Context, catalog: Catalog, plan: Plan) -> Plan:
    """Return `plan` with what its patches make of the sources; their trees are fetched where they are not there yet.

    A plan that has it comes back as it is. Raises `BuildFailedError` naming patch, file and hunk where one does not
    apply or changes nothing; and as `cannery.sources.io.planned_sources.fetch_planned`.
    """
    if plan.patched or plan.not_patched:
        return plan
    if not providers(plan.recipe) and not any(step.patched_by for step in plan.sources):
        return plan
    with ExitStack() as stack:
        readers = open_trees(context, catalog, plan, stack)
        sets = kept_in(plan.recipe, readers)
        left = tuple(_not_patched(plan, sets))
        trees = [_patched(context, plan, step, readers, sets) for step in plan.sources if step.patched_by]
    for tree in trees:
        for note in tree.notes:
            context.say(f"{tree.component}: {note}")
    left = (*left, *(one for tree in trees for one in tree.left))
    for words in unpatched_words(left):
        context.say(words)
    return replace(plan, patched=tuple(tree for tree in trees if tree.patches), not_patched=left)


def manifest_digest(context: Context, catalog: Catalog, plan: Plan) -> str:
    """Return the hex SHA-256 of the manifest that the image of `plan` carries, its patches among the rest.

    What verify holds an image to, and by what a push knows that it was. Raises as `with_patches`.
    """
    return sha256_bytes(manifest_text(with_patches(context, catalog, plan), catalog.compatibility).encode())


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
    """Say why none of a repo's sets fits a source; "" where one does."""
    wanted = " or ".join(one.rev for one in group)
    release = chosen.release if chosen else None
    if step is None and release is None:
        return f"the patches are for commit {wanted}, and the image has no source tree of {repo}"
    if step is None or step.release:
        return f"the patches are for commit {wanted}, and the image has release {release}"
    if step.commit and find_set(group, step.commit) is not None:
        return ""
    whose = "your tree is" if step.is_local else "the image has commit"
    return f"the patches are for commit {wanted}, and {whose} {'at ' * step.is_local}{step.commit or 'no commit'}"


def _patched(
    context: Context, plan: Plan, step: SourceStep, readers: Mapping[str, TreeReader], kept: Kept
) -> PatchedTree:
    """Apply to one source what its plugins and folders bring, in the order of `step.patched_by`."""
    reader = readers[step.name]
    tree = TreeSoFar(step, reader, Layered(reader.read))
    fitting = tuple(fitting_for(context, plan, step, kept))
    for one in fitting:
        told = len(tree.notes)
        apply_patches(tree, one, _port_words(context, plan, step, one))
        if len(fitting) > 1:
            tree.notes[told:] = [f"{one.keeper}: {note}" for note in tree.notes[told:]]
    revisions = {one.name: one.commit or one.release or one.content for one in plan.sources}
    for provider in providers(plan.recipe):
        for edit in provider.component.edits:
            if edit.component == step.name and provider.name in readers:
                try:
                    make_edit(tree, edit, (provider.name, revisions[provider.name]), context)
                except BuildFailedError as error:
                    if not step.is_local:
                        raise
                    # A tree of the user's may be at any commit: what does not fit it is told, as of patches.
                    tree.left.append(NotPatched(edit.name, step.name, f"your tree is another one: {error.what}"))
    chosen = next(one for one in plan.recipe.sources if one.name == step.name)
    return recorded(tree, chosen, plan.recipe.target.python)


def _port_words(context: Context, plan: Plan, step: SourceStep, patches: PatchSet) -> str:
    """Return the command that tries a set on the very tree that a build takes: a commit's, or the user's folder."""
    chosen = next(one for one in plan.recipe.sources if one.name == step.name)
    folder = own_tree(context.local, chosen) if step.is_local else None
    to = f"--tree {shlex.quote(str(folder))}" if folder else step.commit
    words = f"patches port {patches.repo} {patches.rev} {to}"
    is_own = context.patches is not None and patches.origin.startswith(f"{USER_SETS}/")
    return words + (f" --patches {shlex.quote(str(context.patches))}" if is_own else "")
