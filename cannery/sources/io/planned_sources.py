"""The sources of a plan as files: trees of commits from git, the user's own trees, releases from the wheelhouse.

A tree's requirements are compared with those of its component, from which the lock was made.
"""

from __future__ import annotations

import ast
import sys
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import UnableError, UsageError
from cannery.plan.sources import LocalTree
from cannery.sources.io.export import TreeReader, requirement_texts
from cannery.sources.io.fetch import LOCAL, fetch_sources
from cannery.sources.plan import source_request
from cannery.sources.requires import compare
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from cannery.catalog.component import Known
    from cannery.plan import Plan
    from cannery.plan.sources import SourceStep
    from cannery.recipe.recipe import ChosenSource, Recipe
    from cannery.sources.io.fetch import SourceFile, SourceStore

# How many missing paths of a tree are printed.
SHOWN = 3
SHOWN_DIFFERENCES = 4


def local_trees(store: SourceStore, recipe: Recipe, epoch: int) -> dict[str, LocalTree]:
    """Read the folders that replace sources (`SRC_<name>=dir`); return what a plan needs of them.

    Raises like `local_files`.
    """
    files = local_files(store, recipe, epoch)
    return {name: LocalTree(file.tree, file.commit, file.dirty) for name, file in files.items()}


def local_files(store: SourceStore, recipe: Recipe, epoch: int) -> dict[str, SourceFile]:
    """Read the folders that replace sources; return {component: file}.

    Raises `UsageError` for a name that is not a source of the profile, and for a folder that cannot be used.
    """
    if not store.local:
        return {}
    for name in store.local:
        if all(name not in {one.name, one.package} for one in recipe.sources):
            known = {one.name for one in recipe.sources}
            raise UsageError(f"SRC_{name}: no source of {recipe.name}", hint=did_you_mean(name, known))
    chosen = [one for one in recipe.sources if own_tree(store.local, one) is not None]
    for one in chosen:
        refuse_other_tree(one, Path(str(own_tree(store.local, one))))
    return {file.name: file for file in _fetch(store, chosen, epoch)}


def tree_doubts(recipe: Recipe, file: SourceFile) -> tuple[str, ...]:
    """Return sentences about what is missing in a tree, and about requirements that the lock was not made from.

    For the user's own tree, also about modules that the target's Python cannot compile.
    """
    chosen = next(one for one in recipe.sources if one.name == file.name)
    # The lock was made from the commit's requirements, also for a local tree; a release has none.
    known = chosen.known if chosen.commit is not None else None
    modules = {item.module.partition(".")[0] for item in chosen.component.imports}
    syntax = syntax_doubts(file.tar, modules, recipe.target.python) if file.repository == LOCAL else ()
    missing = [str(one) for one in file.missing]
    more = [f"and {len(missing) - SHOWN} more"] if len(missing) > SHOWN else []
    return (*(requirement_doubts(file.tar, known) if known else ()), *syntax, *missing[:SHOWN], *more)


def own_tree(local: Mapping[str, Path], chosen: ChosenSource) -> Path | None:
    """Return the user's folder for a source, named by component or distribution (`SRC_verl` for verl-src)."""
    return local.get(chosen.name) or local.get(chosen.package)


def refuse_other_tree(chosen: ChosenSource, folder: Path) -> None:
    """Raise `UsageError` for a folder without the source's modules, as another project or a bare repository."""
    project = folder / (chosen.component.subdirectory or "")
    modules = sorted({item.module.partition(".")[0] for item in chosen.component.imports})
    places = [project / inner / module for inner in ("", "src", "python") for module in modules]
    if modules and not any(place.is_dir() or place.with_suffix(".py").is_file() for place in places):
        below = f" below {chosen.component.subdirectory}" if chosen.component.subdirectory else ""
        what = f"SRC_{chosen.name}: {str(folder)!r} has no {' or '.join(modules)}{below}"
        raise UsageError(what, hint=f"name a working tree of {chosen.name}, as git checks it out")


def fetch_planned(store: SourceStore, plan: Plan) -> dict[str, Path]:
    """Return {path in the rendered folder: tar} of every tree of `plan`; releases come with the wheels.

    Missing paths, and requirements that differ from the lock's, are printed. Raises like `fetch_some`.
    """
    steps = [step for step in plan.sources if not step.release]
    files = fetch_some(store, plan, steps)
    for file in files.values():
        for words in tree_doubts(plan.recipe, file):
            store.say(f"warning: {file.name}: {words}")
    return {f"sources/{step.file}": files[step.name].tar for step in steps}


def fetch_some(store: SourceStore, plan: Plan, steps: Sequence[SourceStep]) -> dict[str, SourceFile]:
    """Return {component: file} of some trees of `plan`, without the warnings that `fetch_planned` prints.

    Raises like `cannery.sources.io.fetch.fetch_sources`, and `UnableError` if a tree of the user changed since the
    plan was made.
    """
    by_name = {chosen.name: chosen for chosen in plan.recipe.sources}
    plain = {step.name for step in steps if step.without}
    files = _fetch(store, [by_name[step.name] for step in steps], plan.epoch, plain)
    for step, file in zip(steps, files, strict=True):
        if step.is_local and file.tree != step.content:
            hint = "run the same command again when nothing writes to it"
            raise UnableError(f"SRC_{step.name}: the tree changed while it was read", hint=hint)
    return {file.name: file for file in files}


def _fetch(
    store: SourceStore, chosen: list[ChosenSource], epoch: int, plain: Collection[str] = ()
) -> tuple[SourceFile, ...]:
    """Fetch trees; those in `plain` without submodules."""
    if not chosen:
        return ()
    requests = [source_request(one, store.hosts, epoch=epoch, local=own_tree(store.local, one)) for one in chosen]
    # Submodules of a native component are sources of its kernels.
    requests = [replace(one, submodules={}) if one.name in plain else one for one in requests]
    return fetch_sources(requests, store)


def requirement_doubts(tar: Path, known: Known) -> Iterator[str]:
    """Yield sentences about requirements of the tree in `tar` that differ from those of `known`.

    A revision without `requires_from` is not checked. Raises `UnableError` for a tar that cannot be read.
    """
    if not known.requires_from:
        return
    with closing(TreeReader(tar)) as tree:
        comparison = compare(known.requires, requirement_texts(tree), known.requires_from)
    names = [str(difference) for difference in comparison.differences]
    more = f"; and {len(names) - SHOWN_DIFFERENCES} more" if len(names) > SHOWN_DIFFERENCES else ""
    if names:
        yield f"asks for other packages than the lock was made from: {'; '.join(names[:SHOWN_DIFFERENCES])}{more}"
    yield from comparison.unread


def syntax_doubts(tar: Path, modules: Collection[str], python: str) -> Iterator[str]:
    """Yield a sentence about the first file of `modules` that Python `python` cannot compile, and how many more exist.

    An older Python than `python` does not know all of its syntax, and reports nothing.
    """
    version = tuple(map(int, python.split(".")))
    if sys.version_info < version:
        return
    faults, wanted = [], {*modules}
    with closing(TreeReader(tar)) as tree:
        for path in tree.paths:
            if not path.endswith(".py") or wanted.isdisjoint(path.split("/")[:-1]):
                continue
            try:
                with warnings.catch_warnings(action="ignore"):
                    ast.parse(tree.read(path) or b"", feature_version=(version[0], version[1]))
            except SyntaxError as error:
                faults.append(f"{path}, line {error.lineno}: {error.msg}")
            except (ValueError, RecursionError, MemoryError) as error:
                faults.append(f"{path}, {str(error) or 'nested too deeply'}")
    if faults:
        more = f" (and {len(faults) - 1} more files)" if len(faults) > 1 else ""
        yield f"Python {python} cannot compile {faults[0]}{more}"
