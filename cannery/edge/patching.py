"""The patches of a plan, applied to the trees that were fetched: on the host, before anything is built."""

from __future__ import annotations

import shlex
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cannery.core.errors import BuildFailedError
from cannery.core.manifest import manifest_text
from cannery.core.patch_problem import Problem
from cannery.core.patch_reverse import without_patch
from cannery.core.patch_set import Layered, apply_set, find_set
from cannery.core.patching import (
    USER_SETS,
    NotPatched,
    OverlayFile,
    Patch,
    PatchedTree,
    RecordedFile,
    component_of,
    module_of,
    providers,
    unpatched_words,
)
from cannery.core.py_changes import in_force
from cannery.core.tree_edits import TAKING_OVER, edited
from cannery.core.words import Install
from cannery.edge.files import sha256_bytes
from cannery.edge.patch_folders import plugin_sets
from cannery.edge.patch_trees import TreeReader
from cannery.edge.planned_sources import fetch_some, own_tree
from cannery.edge.rendered import fetch_wheels

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cannery.core.catalog import Catalog
    from cannery.core.component import Edit
    from cannery.core.patch_set import PatchSet, SetResult
    from cannery.core.plan import Plan
    from cannery.core.recipe import Chosen, Recipe
    from cannery.core.source_step import SourceStep
    from cannery.edge.context import Context

    # The patch sets that plugins keep in their trees, by plugin and repo.
    Kept = Mapping[str, Mapping[str, Sequence[PatchSet]]]

# What a plugin's functions are taken over by, in templates/.
PLUGIN = f"tools/plugin/{TAKING_OVER}.py"


@dataclass
class _Tree:
    """A source's tree while it is patched: what has changed so far, and what each patch has changed, in order."""

    step: SourceStep
    reader: TreeReader
    files: Layered
    modes: dict[str, bool] = field(default_factory=dict)
    applied: list[_Applied] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: list[NotPatched] = field(default_factory=list)


@dataclass(frozen=True)
class _Applied:
    """One patch or edit: {path: (before it, after it)}; functions are only told of patches.

    `is_there`: a user's own tree had it; before it is then the tree without it. `modes` are the paths of which it
    changes whether they can be executed.
    """

    name: str
    digest: str
    origin: str
    rev: str
    files: Mapping[str, tuple[bytes | None, bytes | None]]
    is_edit: bool = False
    is_there: bool = False
    modes: frozenset[str] = frozenset()

    @property
    def called(self) -> str:
        """How messages call it."""
        return self.name if self.is_edit else f"{self.name}.patch"


def with_patches(context: Context, catalog: Catalog, plan: Plan) -> Plan:
    """Return `plan` with what its patches make of the sources; their trees are fetched where they are not there yet.

    A plan that has it comes back as it is. Raises `BuildFailedError` naming patch, file and hunk where one does not
    apply or changes nothing; and as `cannery.edge.planned_sources.fetch_planned`.
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


def open_trees(
    context: Context, catalog: Catalog, plan: Plan, stack: ExitStack, only: Collection[str] | None = None
) -> dict[str, TreeReader]:
    """Open the trees of those that are patched, and of those that bring patches; of the components `only` if given."""
    bring = {one.name for one in providers(plan.recipe)}
    steps = [step for step in plan.sources if step.patched_by or step.name in bring]
    steps = [step for step in steps if only is None or step.name in only]
    files = fetch_some(context, catalog, plan, [step for step in steps if not step.release])
    locked = {package.file: package for package in plan.lock.packages}
    releases = [step for step in steps if step.release]
    wheels = fetch_wheels(context, catalog, [locked[step.file] for step in releases])
    paths: dict[str, Path] = {name: file.tar for name, file in files.items()}
    paths |= {step.name: wheels[locked[step.file].name] for step in releases}
    return {name: stack.enter_context(closing(TreeReader(path))) for name, path in paths.items()}


def target(recipe: Recipe, provider: Chosen, repo: str) -> Chosen | None:
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


def kept_for(recipe: Recipe, kept: Kept) -> Iterator[tuple[str, Sequence[PatchSet], Chosen | None]]:
    """Give each repo that plugins keep sets for, its sets, and the source of `recipe` that is meant by it."""
    for provider in providers(recipe):
        for repo, group in kept.get(provider.name, {}).items():
            yield repo, group, target(recipe, provider, repo)


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
    tree = _Tree(step, reader, Layered(reader.read))
    fitting = tuple(_fitting(context, plan, step, kept))
    for one in fitting:
        told = len(tree.notes)
        _apply(tree, one, _port_words(context, plan, step, one))
        if len(fitting) > 1:
            tree.notes[told:] = [f"{one.keeper}: {note}" for note in tree.notes[told:]]
    revisions = {one.name: one.commit or one.release or one.content for one in plan.sources}
    for provider in providers(plan.recipe):
        for edit in provider.component.edits:
            if edit.component == step.name and provider.name in readers:
                try:
                    _edit(tree, edit, (provider.name, revisions[provider.name]), context)
                except BuildFailedError as error:
                    if not step.is_local:
                        raise
                    # A tree of the user's may be at any commit: what does not fit it is told, as of patches.
                    tree.left.append(NotPatched(edit.name, step.name, f"your tree is another one: {error.what}"))
    chosen = next(one for one in plan.recipe.sources if one.name == step.name)
    return _recorded(tree, chosen, plan.recipe.target.python)


def _fitting(context: Context, plan: Plan, step: SourceStep, kept: Kept) -> Iterator[PatchSet]:
    """Give the sets that are for a source's revision: plugins' first, then those of folders."""
    for _, group, chosen in kept_for(plan.recipe, kept):
        if chosen is not None and chosen.name == step.name and step.commit and not step.release:
            found = find_set(group, step.commit)
            if found is not None:
                yield found
    origins = {one.origin for one in step.patched_by}
    yield from (one for one in context.patch_sets if one.origin in origins)


def _port_words(context: Context, plan: Plan, step: SourceStep, patches: PatchSet) -> str:
    """Return the command that tries a set on the very tree that a build takes: a commit's, or the user's folder."""
    chosen = next(one for one in plan.recipe.sources if one.name == step.name)
    folder = own_tree(context, chosen) if step.is_local else None
    to = f"--tree {shlex.quote(str(folder))}" if folder else step.commit
    words = f"patches port {patches.repo} {patches.rev} {to}"
    is_own = context.patches is not None and patches.origin.startswith(f"{USER_SETS}/")
    return words + (f" --patches {shlex.quote(str(context.patches))}" if is_own else "")


def _apply(tree: _Tree, patches: PatchSet, port: str) -> None:
    """Apply a set, patch by patch. One that a user's own tree has already is no fault.

    `port` is the command that tells more of a misfit.
    """
    refused: list[Problem] = []
    for file in patches.files:
        result = apply_set(replace(patches, files=(file,)), tree.files.read)
        _check_places(tree, result.contents, f"{file.name}.patch", patches.origin)
        modes = _changed_modes(tree, result)
        is_there = tree.step.is_local and (result.results[0].already or (result.ok and not _changes(result, modes)))
        refused += () if is_there else (*result.problems, *_lost(tree, result, modes))
        fuzz = patches.fuzz.get(file.name, 0)
        before = {**result.before, **(without_patch(file, tree.files.read, fuzz=fuzz) if is_there else {})}
        changes = {path: (before[path], after) for path, after in result.contents.items()}
        told = _Applied(file.name, file.digest, patches.origin, patches.rev, changes, is_there=is_there, modes=modes)
        tree.applied.append(told)
        tree.files.changed |= result.contents
        for moved in (one.patch for one in result.results[0].files if one.patch.old_path != one.patch.new_path):
            if moved.old_path and moved.new_path:  # a renamed file keeps its mode
                kept = tree.modes.get(moved.old_path, tree.reader.is_executable(moved.old_path))
                tree.modes.setdefault(moved.new_path, kept)
        tree.modes |= {path: mode == "100755" for path, mode in result.modes.items()}
        tree.notes += [f"{file.name}.patch is in your tree already"] if is_there else result.notes
    if refused:
        raise BuildFailedError(
            "\n".join(map(str, refused)),
            where=f"patches of {patches.origin} for {tree.step.name}",
            hint=f"`build.py {port}` shows both sides of each hunk",
        )


def _changed_modes(tree: _Tree, result: SetResult) -> frozenset[str]:
    """Return the paths that can be executed after a patch and could not before it, or the other way round."""
    return frozenset(
        path
        for path, mode in result.modes.items()
        if (mode == "100755") != tree.modes.get(path, tree.reader.is_executable(path))
    )


def _changes(result: SetResult, modes: Collection[str]) -> bool:
    """Whether a patch changes a text, or one of `modes` (`_changed_modes`)."""
    return bool(result.results[0].rewritten or modes)


def _lost(tree: _Tree, result: SetResult, modes: Collection[str]) -> Iterator[Problem]:
    """Give what is wrong with a patch that fits and changes no text: its modes are there, or a wheel loses them."""
    patch = result.results[0]
    if result.problems or patch.rewritten:
        return
    name, paths = patch.patch.name, ", ".join(patch.changed)
    if not modes:
        hint = "it is in this commit: leave the patch out of its set"
        yield Problem(name, paths, "changes nothing: the modes are the tree's already", hint=hint)
    elif tree.step.install is Install.WHEEL:
        hint = "leave the patch out of its set, or give the component `install: editable`"
        yield Problem(name, paths, "changes nothing but modes, which a wheel does not keep", hint=hint)


def _check_places(tree: _Tree, paths: Iterable[str], what: str, origin: str) -> None:
    """Raise `BuildFailedError` for a path that cannot be written to as a file of the tree."""
    for path in paths:
        trouble = tree.reader.trouble(path)
        if trouble:
            raise BuildFailedError(
                f"{what}: {trouble}: nothing can be written to {path}",
                where=f"patches of {origin} for {tree.step.name}",
                hint="patches are for plain files in folders; name the file that is meant",
            )


def _edit(tree: _Tree, edit: Edit, plugin: tuple[str, str], context: Context) -> None:
    """Make an edit that stands in the component of a plugin (name, revision)."""
    before = tree.files.read(edit.file)
    if before is None:
        raise BuildFailedError(
            f"edit {edit.name}: there is no {edit.file}",
            where=edit.component,
            hint=f"the edit stands in images/components/{plugin[0]}.yaml, `edits`; it is for another commit",
        )
    files: dict[str, tuple[bytes | None, bytes | None]] = {edit.file: (before, edited(edit, before))}
    if edit.takes_over:
        ours = f"{edit.file.rpartition('/')[0]}/{TAKING_OVER}.py".lstrip("/")
        files[ours] = (tree.files.read(ours), context.templates()[PLUGIN].encode())
    digest = sha256_bytes(edit.model_dump_json().encode())
    tree.applied.append(_Applied(edit.name, digest, *plugin, files, is_edit=True))
    tree.files.changed |= {path: after for path, (_, after) in files.items()}


def _recorded(tree: _Tree, chosen: Chosen, python: str) -> PatchedTree:
    """Return what is laid over the tree, and what the manifest says of each patch."""
    step, files = tree.step, {}
    for path, data in sorted(tree.files.changed.items()):
        before = tree.reader.read(path)
        files[path] = OverlayFile(
            path=path,
            before=_sha(before),
            after=_sha(data),
            data=data or b"",
            executable=tree.modes.get(path, tree.reader.is_executable(path)),
            installed=_installed(chosen, step, path),
        )
    patches = tuple(
        Patch(one.name, one.digest, one.origin, one.rev, tuple(_files(tree, one, files, python)))
        for one in tree.applied
    )
    laid = tuple(f for f in files.values() if f.before != f.after or f.executable != tree.reader.is_executable(f.path))
    return PatchedTree(step.name, patches, laid, tuple(tree.notes), tuple(tree.left))


def _files(tree: _Tree, applied: _Applied, files: Mapping[str, OverlayFile], python: str) -> Iterator[RecordedFile]:
    """Give what the manifest says of one patch's files; what a wheel leaves out of its tree is not in the image."""
    step = tree.step
    for path, (before, after) in applied.files.items():
        file = files[path]
        if step.install is Install.WHEEL and file.installed is None:
            continue
        place = (
            f"/opt/venv/lib/python{python}/site-packages/{file.installed}" if file.installed else f"{step.path}/{path}"
        )
        module = module_of(path, step.subdirectory) if file.after is not None and not applied.is_edit else ""
        changed = set()
        if module and after is not None:
            changed = {one.qualname for one in in_force(before, after, path=f"{applied.called}: {path}")}
        # What a tree had already is no change of it: then the patch alone says which functions count.
        last = next(one.called for one in reversed(tree.applied) if path in one.files)
        base = None if applied.is_there else tree.reader.read(path)
        final = in_force(base, tree.files.changed[path] or b"", path=f"{last}: {path}") if changed else ()
        functions = tuple(one for one in final if one.qualname in changed)
        is_told = path in applied.modes and file.after is not None and step.install is not Install.WHEEL
        yield RecordedFile(place, file.before, file.after, module, functions, file.executable if is_told else None)


def _installed(chosen: Chosen, step: SourceStep, path: str) -> str | None:
    """Return where a wheel's file comes to, below site-packages; None for what its tree alone has."""
    if step.install is not Install.WHEEL:
        return None
    inner = path.removeprefix(f"{step.subdirectory}/") if step.subdirectory else path
    inner = inner.removeprefix("src/")
    modules = {item.module.partition(".")[0] for item in chosen.component.imports}
    return inner if inner.split("/")[0] in modules else None


def _sha(data: bytes | None) -> str | None:
    return None if data is None else sha256_bytes(data)
