"""`patches`: lists patch sets, shows their changes, tries one on another commit, and makes one."""

from __future__ import annotations

import re
import shlex
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.commands import options_of, print_json, print_result
from cannery.errors import ExitCode, FindingsError, UsageError
from cannery.patches.sets import SHOWN, kept_sets
from cannery.pipeline import patch_inputs, planned
from cannery.recipe.select import find_profile

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.patches.io.git_apply import Git, PatchResult
    from cannery.patches.sets import PatchSet

    Results = Sequence[tuple[PatchSet, Sequence[PatchResult]]]


# The folder of sets in a checkout.
PATCHES = Path("images/patches")
# Digits of a commit in a folder name, as in verl_npu.
DIGITS = 9
USAGE_OF_NEW = "patches new REPO --tree DIR [--output DIR]"


def patches(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Run one action of `patches`."""
    return ACTIONS[arguments.action](arguments, context)


def _list(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print all sets by component, with the profiles that use them. Nothing is fetched."""
    catalog = context.catalog()
    wanted = arguments.profile
    if wanted is not None:
        find_profile(catalog, wanted)
    found = [one for one in kept_sets(catalog, context.patch_sets) if wanted is None or wanted in one.profiles]
    if context.is_json:
        print_json([asdict(one) for one in found])
        return ExitCode.DONE
    for component in dict.fromkeys(one.component for one in found):
        print(component)
        mine = [one for one in found if one.component == component]
        print("\n".join(f"  {one}" for one in mine))
    if not found:
        print(f"no patch set{f' for {wanted}' if wanted else ''}")
    return ExitCode.DONE


def _summary(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print the changes of a profile's patches, and differences from the plugin's own summary."""
    from cannery.patches.io.patching import summary
    from cannery.patches.summary import summary_lines

    catalog, plan, _ = planned(context, arguments.profile, options_of(arguments))
    repo = arguments.repo
    changes, differing, left = summary(plan, patch_inputs(context, catalog, plan), repo)
    if not changes and not left:
        raise FindingsError(f"{plan.recipe.name} has no patches{f' for {repo}' if repo else ''}")
    if context.is_json:
        value = {
            "patches": [asdict(one) for one in changes],
            "left_out": left,
            "differences": [asdict(one) for one in differing],
        }
        print_json(value)
        return ExitCode.DONE
    print("\n".join(summary_lines(changes)))
    for title, lines in (("Left out", left), ("The plugin's own summary differs", differing)):
        if lines:
            print(f"\n{title}:", *(f"  {line}" for line in lines), sep="\n")
    return ExitCode.DONE


def port(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Try the sets for a commit on another commit, and print the result of each patch."""
    from cannery.patches.io.git_apply import git_repository
    from cannery.patches.io.port import full_commit, ported, sets_for, some_commit, source_component
    from cannery.sources.io.export import TreeReader

    catalog = context.catalog()
    component = source_component(catalog, arguments.repo)
    start, to = some_commit(arguments.start), full_commit(catalog, component, arguments.to)
    with ExitStack() as stack:

        def open_tree(name: str, commit: str) -> TreeReader:
            return stack.enter_context(closing(TreeReader(_fetched(context, catalog, name, commit))))

        found = sets_for(catalog, component, start, context.patch_sets, open_tree)
        git = stack.enter_context(git_repository(context.env))
        tree = open_tree(component, to)
        results = ported(git, found, tree, lambda: open_tree(component, full_commit(catalog, component, start)))
        _print_ported(context, results, to)
        fits = all(one.ok for _, patches in results for one in patches)
        if arguments.output and fits:
            _write(context, git, results, Path(arguments.output), to)
    if arguments.output and not fits:
        context.say("nothing written: not all of it applies")
        again = f"build.py patches new {arguments.repo} --tree DIR --output {shlex.quote(arguments.output)}"
        context.say(f"next: make the changes in a working tree at {to[:SHOWN]} by hand, then `{again}`")
    return ExitCode.DONE if fits else ExitCode.FINDINGS


def _fetched(context: Context, catalog: Catalog, component: str, commit: str) -> Path:
    """Return the tar of a component's tree at a commit. It is fetched if it is missing."""
    from cannery.recipe.recipe import ChosenSource
    from cannery.sources.io.fetch import fetch_sources
    from cannery.sources.plan import source_request

    known = catalog.sources[component]
    chosen = ChosenSource(component, known, None, "", context.arch, commit=commit)
    # No layer is made from this tree, so its mtime does not matter.
    request = source_request(chosen, catalog.hosts, epoch=0)
    (file,) = fetch_sources([request], context.sources(catalog))
    return file.tar


def _print_ported(context: Context, results: Results, to: str) -> None:
    from cannery.patches.io.port import port_lines, port_value

    if context.is_json:
        value = [port_value(one, found.origin) for found, patches in results for one in patches]
        first = results[0][0]
        print_json({"repo": first.repo, "from": first.rev, "to": to, "patches": value})
        return
    for found, patches in results:
        if len(results) > 1:
            print(f"== {found.folder} of {found.keeper}")
        for one in patches:
            print("\n".join(port_lines(one)))
        print(f"{sum(one.ok for one in patches)} of {len(patches)} apply or are there already")


def _write(context: Context, git: Git, results: Results, output: Path, to: str) -> None:
    """Write ported sets, with each patch remade on the new tree. Patches that the tree already has are left out."""
    from cannery.patches.io.folders import write_set

    for found, patches in results:
        # Sets for one repo and commit need separate folders, because their patches may have the same names.
        inner = re.sub(r"[^\w.]+", "-", found.keeper) if len(results) > 1 else ""
        new = [one for one in patches if not one.already]
        texts = {f"{one.patch.name}.patch": git.diff(one.changes) for one in new}
        folder = output / inner / found.repo / to[:DIGITS]
        if texts:
            write_set(folder, texts)
        done = f"written to {context.shown(folder)}" if texts else "nothing written: all of it is there already"
        context.say(f"{found.keeper}: {done}")


def new(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Make a set from the changes in a working tree: one patch for each file."""
    from cannery.patches.io.folders import write_set
    from cannery.patches.io.port import new_set, source_component

    catalog = context.catalog()
    repo = arguments.repo
    component = source_component(catalog, repo)
    if not arguments.tree:
        raise UsageError("patches new: name the working tree with --tree", hint=USAGE_OF_NEW)
    if context.work and not arguments.output:
        raise UsageError("patches new: name the folder of sets with --output", hint=USAGE_OF_NEW)
    made = new_set(Path(arguments.tree), context.env)
    root = Path(arguments.output) if arguments.output else context.root / PATCHES
    folder = root / repo / made.rev[:DIGITS]
    texts = {f"{name}.patch": text for name, text in made.texts.items()}
    write_set(folder, texts)
    for name in made.untracked:
        context.say(f"note: git does not track {name}, so it is not in a patch (`git add -N {name}`)")
    if made.rev not in catalog.sources[component].revisions:
        context.say(f"note: no profile has {component} at {made.rev}, which these patches are for")
    paths = [f"{context.shown(folder)}/{name}.patch" for name in sorted(made.texts)]
    print_result(context, {"repo": repo, "rev": made.rev, "patches": paths, "untracked": made.untracked}, paths)
    return ExitCode.DONE


ACTIONS = {"list": _list, "summary": _summary, "port": port, "new": new}
COMMANDS = {"patches": patches}
