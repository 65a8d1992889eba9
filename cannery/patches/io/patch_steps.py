"""What each patch and edit does to a source's tree, one on what those before it left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cannery.errors import BuildFailedError
from cannery.patches.patch_reverse import without_patch
from cannery.patches.problem import Problem
from cannery.patches.set_apply import Layered, apply_set
from cannery.patches.tree_edits import TAKING_OVER, edited
from cannery.util.io.files import sha256_bytes
from cannery.vocab import Install

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from cannery.catalog.component import Edit
    from cannery.context import Context
    from cannery.patches.io.trees import TreeReader
    from cannery.patches.result import SetResult
    from cannery.patches.sets import PatchSet
    from cannery.plan.patched import NotPatched
    from cannery.plan.source_step import SourceStep

# What a plugin's functions are taken over by, in templates/.
PLUGIN = f"tools/plugin/{TAKING_OVER}.py"


@dataclass
class TreeSoFar:
    """A source's tree while it is patched: what has changed so far, and what each patch has changed, in order."""

    step: SourceStep
    reader: TreeReader
    files: Layered
    modes: dict[str, bool] = field(default_factory=dict)
    applied: list[Applied] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: list[NotPatched] = field(default_factory=list)


@dataclass(frozen=True)
class Applied:
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


def apply_patches(tree: TreeSoFar, patches: PatchSet, port: str) -> None:
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
        told = Applied(file.name, file.digest, patches.origin, patches.rev, changes, is_there=is_there, modes=modes)
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


def _changed_modes(tree: TreeSoFar, result: SetResult) -> frozenset[str]:
    """Return the paths that can be executed after a patch and could not before it, or the other way round."""
    return frozenset(
        path
        for path, mode in result.modes.items()
        if (mode == "100755") != tree.modes.get(path, tree.reader.is_executable(path))
    )


def _changes(result: SetResult, modes: Collection[str]) -> bool:
    """Whether a patch changes a text, or one of `modes` (`_changed_modes`)."""
    return bool(result.results[0].rewritten or modes)


def _lost(tree: TreeSoFar, result: SetResult, modes: Collection[str]) -> Iterator[Problem]:
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


def _check_places(tree: TreeSoFar, paths: Iterable[str], what: str, origin: str) -> None:
    """Raise `BuildFailedError` for a path that cannot be written to as a file of the tree."""
    for path in paths:
        trouble = tree.reader.trouble(path)
        if trouble:
            raise BuildFailedError(
                f"{what}: {trouble}: nothing can be written to {path}",
                where=f"patches of {origin} for {tree.step.name}",
                hint="patches are for plain files in folders; name the file that is meant",
            )


def make_edit(tree: TreeSoFar, edit: Edit, plugin: tuple[str, str], context: Context) -> None:
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
    tree.applied.append(Applied(edit.name, digest, *plugin, files, is_edit=True))
    tree.files.changed |= {path: after for path, (_, after) in files.items()}
