"""`build.py patches port`: the sets for a commit tried on another one, by git, merged where they do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.errors import CanneryError, FindingsError, UsageError
from cannery.patches.io.folders import plugin_sets
from cannery.patches.result import FileChange, Layered, PatchResult, Ported, Problem, conflicts_in
from cannery.patches.sets import HASH, SHORTEST, SHOWN, component_named, fitting_sets, kept_sets, refuse_ambiguous
from cannery.sources.plan import COMMIT
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.patches.io.git_apply import Git
    from cannery.patches.io.trees import TreeReader
    from cannery.patches.result import Files
    from cannery.patches.sets import PatchFile, PatchSet

    # Opens the tree of a component at a commit.
    OpenTree = Callable[[str, str], TreeReader]


def source_component(catalog: Catalog, repo: str) -> str:
    """Return the source component that a repo's name means; raise `UsageError` for a name that means none."""
    name = component_named(catalog, repo)
    if name is None:
        known = catalog.sources
        raise UsageError(f"{repo!r} is not a source component", hint=did_you_mean(repo, known))
    return name


def sets_for(
    catalog: Catalog, component: str, start: str, own: Sequence[PatchSet], open_tree: OpenTree
) -> tuple[PatchSet, ...]:
    """Return the patch sets for the commit `start` of a component: plugins' first, then those of folders.

    That is the order in which a build applies them. Of a plugin's revisions with such a set the last one is fetched.
    Raises `FindingsError` where there is none, and as `fitting_sets` and `open_tree`.
    """
    found: list[PatchSet] = []
    for plugin, keeper in catalog.sources.items():
        fitting = [
            commit
            for commit, revision in keeper.revisions.items()
            if any(one.startswith(start) for one in revision.patches.get(component, ()))
        ]
        if fitting and keeper.patch_sets is not None:
            repos = keeper.patch_sets.repos
            kept = plugin_sets(plugin, keeper.patch_sets, open_tree(plugin, fitting[-1]))
            groups = (group for repo, group in kept.items() if repos.get(repo) == component)
            origin = f"{plugin} at {fitting[-1][:SHOWN]}"
            found += [replace(one, origin=origin) for group in groups for one in fitting_sets(group, start)]
    mine = [one for one in own if component_named(catalog, one.repo) == component]
    found += fitting_sets(mine, start)
    if not found:
        known = [one for one in kept_sets(catalog, own) if one.component == component]
        have = ", ".join(f"{one.rev} ({one.origin})" for one in known) or "no commit at all"
        what = f"no patch set of {component} is for commit {start}; there are sets for {have}"
        raise FindingsError(what, where=f"patches port {component}", hint="build.py patches list")
    refuse_ambiguous(found, start)
    return tuple(found)


def some_commit(text: str) -> str:
    """Return a commit's full or short hash as git writes it; raise `UsageError` for anything else."""
    if not HASH.fullmatch(text.lower()):
        raise UsageError(f"{text!r} is not a commit", hint=f"give a hash of {SHORTEST} to 40 hex digits")
    return text.lower()


def full_commit(catalog: Catalog, component: str, text: str) -> str:
    """Return the full commit that `text` is, or of the one known revision that it is the beginning of.

    Raises `UsageError` for anything else.
    """
    text, known = text.lower(), catalog.sources[component].revisions
    found = [commit for commit in known if len(text) >= SHORTEST and commit.startswith(text)]
    if len(found) == 1:
        return found[0]
    if not COMMIT.fullmatch(text):
        names = ", ".join(commit[:SHOWN] for commit in known)
        hint = f"name a commit in full (40 hex digits), or one of {names}"
        raise UsageError(f"{text!r} is not a known revision of {component}", hint=hint)
    return text


def ported(
    git: Git, sets: Sequence[PatchSet], tree: Files, start: Callable[[], Files]
) -> tuple[tuple[PatchSet, tuple[Ported, ...]], ...]:
    """Try sets as a build applies them, each on what those before it left in `tree`.

    A patch that does not fit is merged: git gets the file as it is in the tree that the sets are for, which `start`
    opens when it is needed.
    """
    now = Layered(tree)
    done: list[PatchFile] = []
    found: list[tuple[PatchSet, tuple[Ported, ...]]] = []
    for one in sets:
        results = []
        for file in one.files:
            result = Ported(git.apply(file, now))
            # What a patch makes may be in the file at another place than the patch is for.
            if result.result.already or not result.result.ok:
                result = _merged(git, result, now, done, start)
            results.append(result)
            now.add(() if result.result.already else result.result.changes)
            done.append(file)
        found.append((one, tuple(results)))
    return tuple(found)


def _merged(git: Git, plain: Ported, now: Layered, done: Sequence[PatchFile], start: Callable[[], Files]) -> Ported:
    """Merge what a patch changes in the tree that it is for, after those in `done`, into the tree `now`.

    `plain` is returned where that tree cannot be had, or the patch does not fit there either.
    """
    try:
        base = Layered(start())
    except CanneryError:
        return plain
    for file in done:
        base.add(git.apply(file, base).changes)
    patch = plain.result.patch
    theirs = git.apply(patch, base).changes
    if not theirs:
        return plain
    parts = [_merged_file(git, patch.name, one, now) for one in theirs]
    changes = tuple(one for one in parts if isinstance(one, FileChange))
    problems = tuple(one for one in parts if isinstance(one, Problem))
    return Ported(PatchResult(patch, changes, already=not any(parts), problems=problems), is_merged=True)


def _merged_file(git: Git, name: str, one: FileChange, now: Layered) -> FileChange | Problem | None:
    """Return the change of one file, or why it cannot be merged; None where the tree has it already."""
    ours = now.read(one.path)
    if ours == one.after:
        return None
    if ours == one.before:
        return one
    if ours is None or one.before is None or one.after is None:
        return Problem(name, one.path, "the file does not exist" if ours is None else "the file has other content")
    merged, is_clean = git.merge(ours, one.before, one.after)
    if not is_clean:
        return Problem(name, one.path, "both sides changed the same lines", conflicts_in(merged))
    return replace(one, before=ours, after=merged) if merged != ours else None
