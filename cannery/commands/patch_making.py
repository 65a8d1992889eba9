"""`patches port` and `patches new`: a set tried on another revision, a set of one's own, and both written."""

from __future__ import annotations

import json
import shlex
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import ExitCode, FindingsError, UsageError
from cannery.patches.patch_list import SHOWN
from cannery.patches.patch_port import (
    made_patch,
    origin_folders,
    patch_modes,
    port_lines,
    port_value,
    port_verdict,
    tried_in_turn,
)
from cannery.patches.patch_yaml import with_version
from cannery.patches.set_apply import apply_set
from cannery.patches.sets import fitting_sets, no_set_for, refuse_ambiguous

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from cannery.context import Context
    from cannery.patches.result import SetResult
    from cannery.patches.sets import PatchSet

# Where sets stand in a checkout.
PATCHES = Path("images/patches")
SUMMARY = "patch_summary.yaml"
# Digits of a commit in a folder's name: those of verl_npu's.
DIGITS = 9
# Of each action of which one option stands for another word.
USAGES = {
    "port": "patches port REPO FROM TO, or patches port REPO FROM --tree DIR",
    "new": "patches new REPO --tree DIR [--output DIR]",
}


def port(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Try the sets for a commit on another one, or on a folder, and say what becomes of each hunk."""
    from cannery.patches.io.folder_reader import FolderReader
    from cannery.patches.io.port import (
        all_sets,
        full_commit,
        some_commit,
        source_component,
        tree_at,
    )
    from cannery.patches.io.trees import TreeReader
    from cannery.patches.io.working_tree import working_commit

    catalog = context.catalog()
    repo = arguments.repo
    component = source_component(catalog, repo)
    if bool(arguments.to) == bool(arguments.tree):
        raise UsageError("patches port: name the revision to try, or a folder with --tree", hint=USAGES["port"])
    start = some_commit(arguments.start)
    reader = FolderReader(Path(arguments.tree)) if arguments.tree else None
    # A set is kept under the commit that it is for, which a folder has to tell then.
    to = working_commit(context, Path(arguments.tree)) if arguments.tree and arguments.output else arguments.tree
    known = all_sets(context, catalog, component)
    found = fitting_sets(known, start)
    if not found:
        raise FindingsError(no_set_for(repo, start, known), where=f"patches port {repo}", hint="build.py patches list")
    refuse_ambiguous(found, start)
    if reader:
        return _ported(arguments, context, found, reader.read, to)
    commit = full_commit(context, catalog, component, arguments.to)
    with closing(TreeReader(tree_at(context, catalog, component, commit))) as tree:
        return _ported(arguments, context, found, tree.read, commit)


def _ported(
    arguments: argparse.Namespace,
    context: Context,
    found: Sequence[PatchSet],
    read: Callable[[str], bytes | None],
    to: str,
) -> ExitCode:
    """Print the outcome, and write the sets anew below --output where all of it applies."""
    results = tried_in_turn(found, read)
    if context.is_json:
        value = [port_value(one.patch.name, each.set.origin, one.files) for each in results for one in each.results]
        print(json.dumps({"repo": found[0].repo, "from": found[0].rev, "to": to, "patches": value}, indent=2))
    else:
        for result in results:
            if len(results) > 1:
                print(f"== {result.set.folder} of {result.set.keeper}")
            for one in result.results:
                print("\n".join(port_lines(one.patch.name, one.files)))
            print(port_verdict(result.results))
    fits = all(one.ok for result in results for one in result.results)
    if arguments.output and fits:
        for result, inner in zip(results, origin_folders(found), strict=True):
            folder = _written(Path(arguments.output) / inner, result, to)
            done = f"written to {context.shown(folder)}" if folder else "nothing written: all of it is there already"
            context.say(f"{result.set.keeper}: {done}")
    elif arguments.output:
        context.say("nothing written: not all of it applies")
        again = f"build.py patches new {arguments.repo} --tree DIR --output {shlex.quote(arguments.output)}"
        where = "the tree" if arguments.tree else f"a working tree at {to[:SHOWN]}"
        context.say(f"next: make the changes in {where} by hand, then `{again}`")
    return ExitCode.DONE if fits else ExitCode.FINDINGS


def _written(output: Path, result: SetResult, to: str) -> Path | None:
    """Write a ported set, each patch as it would be made on the new tree; those that are there already are left out.

    Return its folder, None where no patch is left.
    """
    from cannery.patches.io.patch_write import write_set

    found = result.set
    state = dict(result.before)
    texts: dict[str, bytes] = {}
    for file in found.files:
        step = apply_set(replace(found, files=(file,)), state.get, anywhere=True)
        state.update(step.contents)
        changes = {path: (step.before[path], after) for path, after in step.contents.items()}
        text = made_patch(changes, patch_modes(step.results[0].files))
        if text:
            texts[f"{file.name}.patch"] = text
    folder = output / found.repo / to[:DIGITS]
    if not texts:
        return None
    write_set(folder, texts)
    return folder


def new(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Make a set of a working tree's changes: a patch a file, and the entry of patch_summary.yaml for them."""
    from cannery.patches.io.new_set import new_set
    from cannery.patches.io.patch_write import read_told, write_told_set
    from cannery.patches.io.port import source_component

    catalog = context.catalog()
    repo = arguments.repo
    component = source_component(catalog, repo)
    if not arguments.tree:
        raise UsageError("patches new: name the working tree with --tree", hint=USAGES["new"])
    made = new_set(context, repo, Path(arguments.tree))
    root = Path(arguments.output) if arguments.output else context.root / PATCHES
    folder = root / repo / made.rev[:DIGITS]
    summary = with_version(read_told(root / SUMMARY), repo, made.rev, folder.name, made.entries)
    texts = {f"{name}.patch": text for name, text in made.texts.items()}
    write_told_set(folder, texts, root / SUMMARY, summary)
    for name in made.untracked:
        context.say(f"note: git does not track {name}: it is in no patch (`git add -N {name}`)")
    if made.rev not in catalog.sources[component].revisions:
        context.say(f"note: no profile has {component} at {made.rev}, which these patches are for")
    paths = [f"{context.shown(folder)}/{name}.patch" for name in sorted(made.texts)]
    if context.is_json:
        value = {"repo": repo, "rev": made.rev, "patches": paths, "untracked": made.untracked}
        print(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        print("\n".join(paths))
    return ExitCode.DONE
