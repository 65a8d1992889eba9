"""Applies the patches of a plan to the fetched source trees, on the host, before the build.

It also makes the edits that a plugin's setup.py would make to other trees, based on the syntax tree, and only once. A
PEP 660 install (pip from 25.3 on, uv) never runs that code, and `python setup.py develop` edits any tree that it finds.
"""

from __future__ import annotations

import ast
import re
import shlex
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cannery.errors import BuildFailedError
from cannery.patches.io.folders import plugin_sets
from cannery.patches.io.git_apply import FileChange, Layered, PatchResult, Problem, git_repository
from cannery.patches.sets import PatchFile, PatchSet, find_set
from cannery.patches.summary import (
    Action,
    Difference,
    FileChanges,
    PatchChanges,
    changed_names,
    differences,
    read_table,
)
from cannery.plan.sources import (
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
from cannery.sources.io.export import TreeReader
from cannery.util.io.files import sha256_bytes
from cannery.vocab import Install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.component import Edit
    from cannery.patches.io.git_apply import Git
    from cannery.plan import Plan
    from cannery.plan.sources import SourceStep
    from cannery.recipe.recipe import Chosen, ChosenSource, Recipe

    Fetch = Callable[[Sequence[SourceStep]], Mapping[str, Path]]

# Cannery's module beside an edited file. It has the functions that it takes over (templates/tools/plugin).
TAKING_OVER = "cannery_patches"
CONSTRUCTS = (ast.FunctionDef, ast.AsyncFunctionDef)


def edited(edit: Edit, before: bytes) -> bytes:
    """Return the file after `edit`; the same bytes if it already has the edit.

    Raises `BuildFailedError` if the file is not Python, or does not have the code that the edit changes.
    """
    try:
        tree = ast.parse(before)
    except (SyntaxError, ValueError) as error:
        raise _failed(edit, f"is not Python: {error}") from error
    if edit.imports is not None:
        return _import(edit, before, tree)
    return _comment_out(edit, before, tree) if edit.comments_out is not None else _take_over(edit, before, tree)


def _failed(edit: Edit, what: str) -> BuildFailedError:
    hint = f"the edit is in images/components, `edits`, {edit.name}; it is for another commit of {edit.component}"
    return BuildFailedError(f"edit {edit.name}: {edit.file} {what}", where=edit.component, hint=hint)


def _import(edit: Edit, before: bytes, tree: ast.Module) -> bytes:
    """Add `if WHEN: import MODULE` at the end of the file, unless the file already imports the module."""
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    if edit.imports in imported:
        return before
    if not re.search(rf"\b{edit.when}\b".encode(), before):
        raise _failed(edit, f"has no {edit.when} to ask")
    text = f"\n# Cannery: {' '.join(edit.reason.split())}\nif {edit.when}:\n    import {edit.imports}\n"
    return before + b"\n" * (not before.endswith(b"\n")) + text.encode()


def _comment_out(edit: Edit, before: bytes, tree: ast.Module) -> bytes:
    """Comment out a statement at the top level of the module."""
    wanted = ast.dump(ast.parse(edit.comments_out or "").body[0])
    lines = before.splitlines(keepends=True)
    found = [node for node in tree.body if ast.dump(node) == wanted]
    for node in found:
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = b"# " + lines[number]
    commented = f"# {edit.comments_out}".encode()
    if not found and not any(line.strip() == commented for line in lines):
        raise _failed(edit, f"has no line `{edit.comments_out}`")
    return b"".join(lines)


def _take_over(edit: Edit, before: bytes, tree: ast.Module) -> bytes:
    """Replace each named function by an import from Cannery's module."""
    lines = before.splitlines(keepends=True)
    functions = {node.name: node for node in tree.body if isinstance(node, CONSTRUCTS)}
    missing = [name for name in edit.takes_over if name not in functions]
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == TAKING_OVER)
    if not {*missing} <= {alias.name for node in imports for alias in node.names}:
        raise _failed(edit, f"has no function {' and no '.join(missing)}")
    for name in sorted(set(functions) & set(edit.takes_over), key=lambda name: functions[name].lineno, reverse=True):
        node = functions[name]
        first = min(part.lineno for part in (node, *node.decorator_list)) - 1
        text = f"from .{TAKING_OVER} import {name}  # Cannery: {' '.join(edit.reason.split())}\n"
        lines[first : node.end_lineno] = [text.encode()]
    return b"".join(lines)


# Cannery's module with a plugin's functions, in templates/.
PLUGIN = f"tools/plugin/{TAKING_OVER}.py"


@dataclass
class TreeSoFar:
    """A source tree while it is patched: all changes so far, and the result of each patch, in order.

    An edit is a patch of a set without a repo.
    """

    step: SourceStep
    reader: TreeReader
    files: Layered
    applied: list[tuple[PatchSet, PatchResult]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: list[NotPatched] = field(default_factory=list)


@dataclass(frozen=True)
class PatchInputs:
    """The inputs of patching.

    `fetch` returns the trees of sources, `local` are the user's own trees. `sets` are the sets in images/patches and in
    the user's folder `own_sets` (None: no such folder). `templates` is the folder templates/.
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
    """A plan while it is patched: git, the open trees, and the sets of plugins as (repo, its source, sets)."""

    plan: Plan
    inputs: PatchInputs
    git: Git
    readers: Mapping[str, TreeReader]
    kept: Sequence[tuple[str, ChosenSource | None, Sequence[PatchSet]]]


def with_patches(plan: Plan, inputs: PatchInputs) -> Plan:
    """Return `plan` with patched sources. Missing trees are fetched.

    A plan that is already patched is returned unchanged. Raises `BuildFailedError` with patch, file and hunk if a patch
    does not apply or changes nothing, `FindingsError` for a file that is not a patch, and the errors of
    `inputs.fetch`.
    """
    if plan.patched or plan.not_patched:
        return plan
    if not providers(plan.recipe) and not any(step.patched_by for step in plan.sources):
        return plan
    with _opened(plan, inputs) as work:
        left = tuple(_not_patched(work))
        trees = [_recorded(tree, plan.recipe) for tree in _patched(work)]
    for tree in trees:
        for note in tree.notes:
            inputs.say(f"{tree.component}: {note}")
    left = (*left, *(one for tree in trees for one in tree.left))
    for words in unpatched_words(left):
        inputs.say(words)
    return replace(plan, patched=tuple(tree for tree in trees if tree.patches), not_patched=left)


def summary(
    plan: Plan, inputs: PatchInputs, only: str | None = None
) -> tuple[tuple[PatchChanges, ...], tuple[Difference, ...], tuple[str, ...]]:
    """Return the changes of the patches of `plan`, differences from plugins' tables, and the patches left out.

    With `only`, only those of that repo. Raises like `with_patches`, and `UsageError` for an unreadable table.
    """
    with _opened(plan, inputs) as work:
        meant = {only, *(chosen.name for repo, chosen, _ in work.kept if chosen and repo == only)}
        left = tuple(one for one in _not_patched(work) if only is None or one.component in meant)
        changes = tuple(
            _changes(*one)
            for tree in _patched(work)
            for one in tree.applied
            if one[0].repo and only in {None, one[0].repo, tree.step.name}
        )
        found = [one for plugin in providers(plan.recipe) for one in _differing(work, plugin, changes)]
    return changes, tuple(found), unpatched_words(left)


@contextmanager
def _opened(plan: Plan, inputs: PatchInputs) -> Iterator[_Work]:
    """Open the trees of patched sources, and of plugins with patches, while the block runs."""
    plugins = providers(plan.recipe)
    bring = {one.name for one in plugins}
    with ExitStack() as stack:
        paths = inputs.fetch([step for step in plan.sources if step.patched_by or step.name in bring])
        readers = {name: stack.enter_context(closing(TreeReader(path))) for name, path in paths.items()}
        kept = []
        for one in (plugin for plugin in plugins if plugin.name in readers):
            own = one.component.patch_sets
            for repo, sets in plugin_sets(one.name, own, readers[one.name]).items():
                name = own.repos.get(repo, repo) if own else repo
                kept.append((repo, component_of(plan.recipe, name) or component_of(plan.recipe, repo), sets))
        yield _Work(plan, inputs, stack.enter_context(git_repository(inputs.env)), readers, kept)


def _not_patched(work: _Work) -> Iterator[NotPatched]:
    """Yield the patches and edits of plugins that are not applied, each with the reason."""
    steps = {step.name: step for step in work.plan.sources}
    for repo, chosen, group in work.kept:
        reason = _why_not(group, chosen, steps.get(chosen.name) if chosen else None, repo)
        if reason:
            name = chosen.name if chosen else repo
            yield from (NotPatched(file.name, name, reason) for one in group for file in one.files)
    for plugin in providers(work.plan.recipe):
        for edit in plugin.component.edits:
            if edit.component not in steps:
                yield NotPatched(edit.name, edit.component, f"there is no source tree of {edit.component} to edit")


def _why_not(group: Sequence[PatchSet], chosen: Chosen | None, step: SourceStep | None, repo: str) -> str:
    """Return why no set of a repo fits a source, or ""."""
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


def _patched(work: _Work) -> Iterator[TreeSoFar]:
    """Apply the sets of plugins and folders to each source, in the order of `step.patched_by`, then the edits."""
    for step in work.plan.sources:
        if not step.patched_by:
            continue
        reader = work.readers[step.name]
        tree = TreeSoFar(step, reader, Layered(reader))
        fitting = tuple(_fitting(work, step))
        for one in fitting:
            count = len(tree.notes)
            _apply_set(work.git, tree, one, _next_step(step, one, work.inputs))
            if len(fitting) > 1:
                tree.notes[count:] = [f"{one.keeper}: {note}" for note in tree.notes[count:]]
        _edit(work, tree)
        yield tree


def _fitting(work: _Work, step: SourceStep) -> Iterator[PatchSet]:
    """Yield the sets for a source's revision: first those of plugins, then those of folders."""
    for _, chosen, group in work.kept:
        if chosen is not None and chosen.name == step.name and step.commit and not step.release:
            found = find_set(group, step.commit)
            if found is not None:
                yield found
    origins = {one.origin for one in step.patched_by}
    yield from (one for one in work.inputs.sets if one.origin in origins)


def _edit(work: _Work, tree: TreeSoFar) -> None:
    """Make the edits of plugins in one source."""
    revisions = {one.name: one.commit or one.release or one.content for one in work.plan.sources}
    for provider in providers(work.plan.recipe):
        for edit in provider.component.edits:
            if edit.component == tree.step.name and provider.name in work.readers:
                try:
                    _make_edit(tree, edit, (provider.name, revisions[provider.name]), work.inputs.templates)
                except BuildFailedError as error:
                    if not tree.step.is_local:
                        raise
                    # A user's own tree may be at any commit, so an edit that does not fit is only a note.
                    tree.left.append(NotPatched(edit.name, tree.step.name, f"your tree is another one: {error.what}"))


def _next_step(step: SourceStep, patches: PatchSet, inputs: PatchInputs) -> str:
    """Return what to do about a set that does not apply: merge it with git in the user's tree, or else use `port`."""
    if step.is_local:
        folder = inputs.local.get(step.name) or inputs.local.get(step.package)
        return f"`git -C {shlex.quote(str(folder))} apply -3 FILE.patch` merges it into your tree"
    words = f"patches port {patches.repo} {patches.rev} {step.commit}"
    is_own = inputs.own_sets is not None and patches.origin.startswith(f"{USER_SETS}/")
    words += f" --patches {shlex.quote(str(inputs.own_sets))}" if is_own else ""
    return f"`build.py {words}` merges what does not fit, and shows both sides of a conflict"


def _changes(patches: PatchSet, result: PatchResult) -> PatchChanges:
    """Return the changes of a patch by file. Raises `FindingsError` for a .py file that is not Python."""
    files, name = [], result.patch.name
    for one in result.changes:
        action = Action.ADDED if one.before is None else Action.DELETED if one.after is None else Action.UPDATED
        names = changed_names(f"{name}.patch: {one.path}", one.before, one.after)
        files.append(FileChanges(one.path, action, names))
    return PatchChanges(patches.repo, patches.rev, patches.keeper, name, tuple(files))


def _differing(work: _Work, plugin: ChosenSource, changes: Sequence[PatchChanges]) -> Iterator[Difference]:
    """Yield the differences between a plugin's table and its patches."""
    kept = plugin.component.patch_sets
    reader = work.readers.get(plugin.name)
    text = reader.read(kept.summary) if reader and kept and kept.summary else None
    if kept is not None and text is not None:
        table = read_table(text.decode("utf-8", "replace"), f"{plugin.name}: {kept.summary}")
        yield from differences([one for one in changes if one.keeper == plugin.name], table)


def _apply_set(git: Git, tree: TreeSoFar, patches: PatchSet, next_step: str) -> None:
    """Apply the patches of a set in order. A patch that the user's own tree already has is skipped.

    `next_step` is what to do if one does not apply. Raises `BuildFailedError` with patch, file and hunk.
    """
    refused: list[Problem] = []
    misfits = 0
    where = f"patches of {patches.origin} for {tree.step.name}"
    for file in patches.files:
        for path, trouble in ((path, tree.reader.trouble(path)) for path in git.paths(file)):
            if trouble:
                hint = "patches are for plain files in folders; name the file that is meant"
                what = f"{file.name}.patch: {trouble}: nothing can be written to {path}"
                raise BuildFailedError(what, where=where, hint=hint)
        result = git.apply(file, tree.files)
        is_there = result.already and tree.step.is_local
        refused += () if is_there else (*result.problems, *_useless(tree, result))
        misfits += not result.ok
        tree.applied.append((patches, result))
        tree.files.add(result.changes)
        notes = [f"{file.name}.patch: {note}" for note in result.notes]
        tree.notes += [f"{file.name}.patch is in your tree already"] if is_there else notes
    if refused:
        raise BuildFailedError("\n".join(map(str, refused)), where=where, hint=next_step if misfits else "")


def _useless(tree: TreeSoFar, result: PatchResult) -> Iterator[Problem]:
    """Yield the problem of a patch that applies but changes nothing in the image."""
    if not result.ok or any(one.before != one.after for one in result.changes if not result.already):
        return
    name, paths = result.patch.name, ", ".join(one.path for one in result.changes)
    if result.already:
        yield Problem(name, paths, "changes nothing: this commit has it already; leave the patch out of its set")
    elif tree.step.install is Install.WHEEL:
        what = "changes nothing but modes, which a wheel does not keep; leave the patch out of its set, or give the"
        yield Problem(name, paths, f"{what} component `install: editable`")


def _make_edit(tree: TreeSoFar, edit: Edit, plugin: tuple[str, str], templates: Path) -> None:
    """Make an edit of a `plugin` (name, revision). Raises `BuildFailedError` if it does not fit."""
    before = tree.files.read(edit.file)
    if before is None:
        raise BuildFailedError(
            f"edit {edit.name}: there is no {edit.file}",
            where=edit.component,
            hint=f"the edit is in images/components/{plugin[0]}.yaml, `edits`; it is for another commit",
        )
    changes = [FileChange(edit.file, before, edited(edit, before))]
    if edit.takes_over:
        ours = f"{edit.file.rpartition('/')[0]}/{TAKING_OVER}.py".lstrip("/")
        changes.append(FileChange(ours, tree.files.read(ours), (templates / PLUGIN).read_bytes()))
    patch = PatchFile(edit.name, b"", sha256_bytes(edit.model_dump_json().encode()))
    name, rev = plugin
    tree.applied.append((PatchSet("", rev, name, (patch,)), PatchResult(patch, tuple(changes))))
    tree.files.add(changes)


def _recorded(tree: TreeSoFar, recipe: Recipe) -> PatchedTree:
    """Return the changed files of the tree, and the manifest's records of the patches."""
    step = tree.step
    chosen = next(one for one in recipe.sources if one.name == step.name)
    files: dict[str, OverlayFile] = {}
    for path, data in sorted(tree.files.changed.items()):
        before, is_program = tree.reader.read(path), tree.files.is_executable(path)
        place = _installed(chosen, step, path)
        files[path] = OverlayFile(path, _sha(before), _sha(data), data or b"", is_program, place)
    patches = tuple(_record(tree, *one, files, recipe.target.python) for one in tree.applied)
    laid = tuple(f for f in files.values() if f.before != f.after or f.executable != tree.reader.is_executable(f.path))
    return PatchedTree(step.name, patches, laid, tuple(tree.notes), tuple(tree.left))


def _record(
    tree: TreeSoFar, patches: PatchSet, result: PatchResult, files: Mapping[str, OverlayFile], python: str
) -> Patch:
    """Return the manifest's record of one patch. Files that the wheel leaves out are not recorded.

    Raises `FindingsError` if a patched module is not valid Python.
    """
    step, patch, found = tree.step, result.patch, []
    for one in result.changes:
        file = files[one.path]
        if step.install is Install.WHEEL and file.installed is None:
            continue
        home = f"/opt/venv/lib/python{python}/site-packages" if file.installed else step.path
        module = module_of(one.path, step.subdirectory) if file.after is not None and patches.repo else ""
        if module:
            changed_names(f"{patch.name}.patch: {one.path}", one.before, one.after)
        found.append(RecordedFile(f"{home}/{file.installed or one.path}", file.before, file.after, module))
    return Patch(patch.name, patch.digest, patches.origin, patches.rev, tuple(found))


def _installed(chosen: Chosen, step: SourceStep, path: str) -> str | None:
    """Return the path below site-packages where a wheel installs a file; None for a file that is not installed."""
    if step.install is not Install.WHEEL:
        return None
    inner = path.removeprefix(f"{step.subdirectory}/") if step.subdirectory else path
    inner = inner.removeprefix("src/")
    modules = {item.module.partition(".")[0] for item in chosen.component.imports}
    return inner if inner.split("/")[0] in modules else None


def _sha(data: bytes | None) -> str | None:
    return None if data is None else sha256_bytes(data)
