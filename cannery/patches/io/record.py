"""What patches leave of a source: the files to lay over its tree, and what the manifest records of each patch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.patches.syntax import in_force
from cannery.plan.patched import OverlayFile, Patch, PatchedTree, RecordedFile, module_of
from cannery.util.io.files import sha256_bytes
from cannery.vocab import Install

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.patches.io.steps import Applied, TreeSoFar
    from cannery.plan.source_step import SourceStep
    from cannery.recipe.recipe import Chosen


def recorded(tree: TreeSoFar, chosen: Chosen, python: str) -> PatchedTree:
    """Return the files to lay over the tree, and what the manifest records of each patch."""
    step, files = tree.step, {}
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
        Patch(one.name, one.digest, one.origin, one.rev, tuple(_files(tree, one, files, python)))
        for one in tree.applied
    )
    laid = tuple(f for f in files.values() if f.before != f.after or f.executable != tree.reader.is_executable(f.path))
    return PatchedTree(step.name, patches, laid, tuple(tree.notes), tuple(tree.left))


def _files(tree: TreeSoFar, applied: Applied, files: Mapping[str, OverlayFile], python: str) -> Iterator[RecordedFile]:
    """Give what the manifest records of one patch's files; what a wheel leaves out of its tree is not in the image."""
    step = tree.step
    for path, (before, after) in applied.files.items():
        file = files[path]
        if step.install is Install.WHEEL and file.installed is None:
            continue
        place = (
            f"/opt/venv/lib/python{python}/site-packages/{file.installed}" if file.installed else f"{step.path}/{path}"
        )
        module = module_of(path, step.subdirectory) if file.after is not None and applied.repo else ""
        changed = set()
        if module and after is not None:
            changed = {one.qualname for one in in_force(before, after, path=f"{applied.called}: {path}")}
        # A tree that had the patch is not changed by it: then all functions of the patch count.
        last = next(one.called for one in reversed(tree.applied) if path in one.files)
        base = None if applied.is_there else tree.reader.read(path)
        final = in_force(base, tree.files.changed[path] or b"", path=f"{last}: {path}") if changed else ()
        functions = tuple(one for one in final if one.qualname in changed)
        has_mode = path in applied.modes and file.after is not None and step.install is not Install.WHEEL
        yield RecordedFile(place, file.before, file.after, module, functions, file.executable if has_mode else None)


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
