"""What each patch and edit does to a source's tree, one on what those before it left, and what is recorded of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cannery.errors import BuildFailedError
from cannery.patches.edits import TAKING_OVER, edited
from cannery.patches.result import Problem
from cannery.patches.summary import changed_names
from cannery.plan.sources import OverlayFile, Patch, PatchedTree, RecordedFile, module_of
from cannery.util.io.files import sha256_bytes
from cannery.vocab import Install

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from cannery.catalog.component import Edit
    from cannery.patches.io.git_apply import Git
    from cannery.patches.io.trees import TreeReader
    from cannery.patches.result import Layered, PatchResult
    from cannery.patches.sets import PatchSet
    from cannery.plan.sources import NotPatched, SourceStep
    from cannery.recipe.recipe import Chosen

# The module that takes a plugin's functions over, in templates/.
PLUGIN = f"tools/plugin/{TAKING_OVER}.py"


@dataclass
class TreeSoFar:
    """A source's tree while it is patched: what has changed so far, and what each patch has changed, in order."""

    step: SourceStep
    reader: TreeReader
    files: Layered
    applied: list[Applied] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: list[NotPatched] = field(default_factory=list)


@dataclass(frozen=True)
class Applied:
    """One patch or edit: {path: (before it, after it)}. Edits have no `repo`.

    Of a patch that a user's own tree had, the tree without it comes first.
    """

    name: str
    digest: str
    origin: str
    rev: str
    files: Mapping[str, tuple[bytes | None, bytes | None]]
    repo: str = ""

    @property
    def called(self) -> str:
        """How messages call it."""
        return f"{self.name}.patch" if self.repo else self.name


def apply_patches(git: Git, tree: TreeSoFar, patches: PatchSet, next_step: str) -> None:
    """Apply a set, patch by patch. A patch that a user's own tree has already is left as it is.

    `next_step` is what to do about a misfit. Raises `BuildFailedError` that names patch, file and hunk.
    """
    refused: list[Problem] = []
    misfits = 0
    where = f"patches of {patches.origin} for {tree.step.name}"
    for file in patches.files:
        _check_places(tree, git.paths(file), f"{file.name}.patch", where)
        result = git.apply(file, tree.files)
        is_there = result.already and tree.step.is_local
        refused += () if is_there else (*result.problems, *_useless(tree, result))
        misfits += not result.ok
        changes = {one.path: (one.before, one.after) for one in result.changes}
        tree.applied.append(Applied(file.name, file.digest, patches.origin, patches.rev, changes, patches.repo))
        tree.files.add(result.changes)
        notes = [f"{file.name}.patch: {note}" for note in result.notes]
        tree.notes += [f"{file.name}.patch is in your tree already"] if is_there else notes
    if refused:
        raise BuildFailedError("\n".join(map(str, refused)), where=where, hint=next_step if misfits else "")


def _useless(tree: TreeSoFar, result: PatchResult) -> Iterator[Problem]:
    """Give what is wrong with a patch that fits and changes nothing of the image."""
    if not result.ok or any(one.before != one.after for one in result.changes if not result.already):
        return
    name, paths = result.patch.name, ", ".join(one.path for one in result.changes)
    if result.already:
        yield Problem(name, paths, "changes nothing: this commit has it already; leave the patch out of its set")
    elif tree.step.install is Install.WHEEL:
        what = "changes nothing but modes, which a wheel does not keep; leave the patch out of its set, or give the"
        yield Problem(name, paths, f"{what} component `install: editable`")


def _check_places(tree: TreeSoFar, paths: Iterable[str], what: str, where: str) -> None:
    """Raise `BuildFailedError` for a path that cannot be written to as a file of the tree."""
    for path in paths:
        trouble = tree.reader.trouble(path)
        if trouble:
            hint = "patches are for plain files in folders; name the file that is meant"
            raise BuildFailedError(f"{what}: {trouble}: nothing can be written to {path}", where=where, hint=hint)


def make_edit(tree: TreeSoFar, edit: Edit, plugin: tuple[str, str], templates: Path) -> None:
    """Make an edit of the component of a plugin (name, revision). Raises `BuildFailedError` where it does not fit."""
    before = tree.files.read(edit.file)
    if before is None:
        raise BuildFailedError(
            f"edit {edit.name}: there is no {edit.file}",
            where=edit.component,
            hint=f"the edit is in images/components/{plugin[0]}.yaml, `edits`; it is for another commit",
        )
    files: dict[str, tuple[bytes | None, bytes | None]] = {edit.file: (before, edited(edit, before))}
    if edit.takes_over:
        ours = f"{edit.file.rpartition('/')[0]}/{TAKING_OVER}.py".lstrip("/")
        files[ours] = (tree.files.read(ours), (templates / PLUGIN).read_bytes())
    digest = sha256_bytes(edit.model_dump_json().encode())
    tree.applied.append(Applied(edit.name, digest, *plugin, files))
    tree.files.changed |= {path: after for path, (_, after) in files.items()}


def recorded(tree: TreeSoFar, chosen: Chosen, python: str) -> PatchedTree:
    """Return the files to lay over the tree, and what the manifest records of each patch."""
    step = tree.step
    files: dict[str, OverlayFile] = {}
    for path, data in sorted(tree.files.changed.items()):
        before = tree.reader.read(path)
        files[path] = OverlayFile(
            path=path,
            before=_sha(before),
            after=_sha(data),
            data=data or b"",
            executable=tree.files.is_executable(path),
            installed=_installed(chosen, step, path),
        )
    patches = tuple(
        Patch(one.name, one.digest, one.origin, one.rev, tuple(_files(step, one, files, python)))
        for one in tree.applied
    )
    laid = tuple(f for f in files.values() if f.before != f.after or f.executable != tree.reader.is_executable(f.path))
    return PatchedTree(step.name, patches, laid, tuple(tree.notes), tuple(tree.left))


def _files(step: SourceStep, applied: Applied, files: Mapping[str, OverlayFile], python: str) -> Iterator[RecordedFile]:
    """Give what the manifest records of one patch's files; what a wheel leaves out of its tree is not in the image.

    Raises `FindingsError` for a patch that makes a module no Python.
    """
    for path, (before, after) in applied.files.items():
        file = files[path]
        if step.install is Install.WHEEL and file.installed is None:
            continue
        place = (
            f"/opt/venv/lib/python{python}/site-packages/{file.installed}" if file.installed else f"{step.path}/{path}"
        )
        module = module_of(path, step.subdirectory) if file.after is not None and applied.repo else ""
        if module:
            changed_names(f"{applied.called}: {path}", before, after)
        yield RecordedFile(place, file.before, file.after, module)


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
