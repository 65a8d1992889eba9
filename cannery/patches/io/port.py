"""`patches port` tries sets on another commit and merges patches that do not apply. `patches new` makes a set."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from itertools import chain, count, pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cannery.errors import CanneryError, FindingsError, UsageError
from cannery.patches.io.folders import plugin_sets
from cannery.patches.io.git_apply import FileChange, Layered, PatchResult, Problem, git_repository, shown_line
from cannery.patches.sets import HASH, SHORTEST, SHOWN, component_named, fitting_sets, kept_sets
from cannery.sources.io.git import GitReadError
from cannery.sources.io.work_tree import head_blob, kind_of, read_work_tree, tree_root
from cannery.sources.plan import COMMIT, Kind
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.catalog import Catalog
    from cannery.patches.io.git_apply import Files, Git
    from cannery.patches.sets import PatchFile, PatchSet
    from cannery.sources.io.export import TreeReader
    from cannery.sources.io.work_tree import WorkTree

    # Opens the tree of a component at a commit.
    OpenTree = Callable[[str, str], TreeReader]


# The most characters of a patch's name. File systems allow 255 bytes.
LONGEST = 60
FATAL = "fatal: "


def port_lines(one: PatchResult) -> Iterator[str]:
    """Yield the lines about one patch: its result, hunks that apply at other lines, and both sides of conflicts."""
    yield f"{one.patch.name}: {one.verdict}"
    yield from (f"  {note}" for note in one.notes)
    for problem in one.problems:
        yield f"  {problem.path}: {problem.what}"
        yield from (f"      {line}" for line in problem.lines)


def port_value(one: PatchResult, origin: str) -> dict[str, Any]:
    """Return the same for JSON; `origin` is the place of the patch's set."""
    return {
        "patch": one.patch.name,
        "origin": origin,
        "result": one.verdict,
        "files": [change.path for change in one.changes],
        "notes": one.notes,
        "problems": [asdict(problem) for problem in one.problems],
    }


def source_component(catalog: Catalog, repo: str) -> str:
    """Return the source component for the name of a repo. Raises `UsageError` for an unknown name."""
    name = component_named(catalog, repo)
    if name is None:
        known = catalog.sources
        raise UsageError(f"{repo!r} is not a source component", hint=did_you_mean(repo, known))
    return name


def sets_for(
    catalog: Catalog, component: str, start: str, own: Sequence[PatchSet], open_tree: OpenTree
) -> tuple[PatchSet, ...]:
    """Return the patch sets for the commit `start` of a component, in the order in which a build applies them.

    The sets of plugins come first, then those of folders. If several revisions of a plugin have such a set, the last
    one is used. Raises `FindingsError` if there is no set, or if `start` is the prefix of several commits, and like
    `fitting_sets` and `open_tree`.
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
    # Folders may write one commit with more or fewer digits. In sorted order, a prefix comes directly before it.
    revisions = sorted({one.rev.lower() for one in found})
    if not all(longer.startswith(one) for one, longer in pairwise(revisions)):
        what = f"{start!r} is the beginning of several commits that have sets: {', '.join(revisions)}"
        raise FindingsError(what, where=f"patches port {component}", hint="give more digits")
    return tuple(found)


def some_commit(text: str) -> str:
    """Return a full or short commit hash in lower case. Raises `UsageError` for any other text."""
    if not HASH.fullmatch(text.lower()):
        raise UsageError(f"{text!r} is not a commit", hint=f"give a hash of {SHORTEST} to 40 hex digits")
    return text.lower()


def full_commit(catalog: Catalog, component: str, text: str) -> str:
    """Return `text` if it is a full commit, or the only known revision with that prefix.

    Raises `UsageError` for any other text.
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
) -> tuple[tuple[PatchSet, tuple[PatchResult, ...]], ...]:
    """Apply sets to `tree` one after the other, as a build does.

    A patch that does not apply is merged. Git then needs the file from the tree that the sets are for; `start` opens
    that tree.
    """
    now = Layered(tree)
    done: list[PatchFile] = []
    found: list[tuple[PatchSet, tuple[PatchResult, ...]]] = []
    for one in sets:
        results = []
        for file in one.files:
            result = git.apply(file, now)
            # The tree may have the new lines at another place than the patch expects.
            if result.already or not result.ok:
                result = _merged(git, result, now, done, start)
            results.append(result)
            now.add(() if result.already else result.changes)
            done.append(file)
        found.append((one, tuple(results)))
    return tuple(found)


def _merged(
    git: Git, plain: PatchResult, now: Layered, done: Sequence[PatchFile], start: Callable[[], Files]
) -> PatchResult:
    """Merge the changes of a patch on its own tree, after the patches in `done`, into the tree `now`.

    Returns `plain` if that tree is not available, or if the patch does not apply there either.
    """
    try:
        base = Layered(start())
    except CanneryError:
        return plain
    for file in done:
        base.add(git.apply(file, base).changes)
    patch = plain.patch
    theirs = git.apply(patch, base).changes
    if not theirs:
        return plain
    parts = [_merged_file(git, patch.name, one, now) for one in theirs]
    changes = tuple(one for one in parts if isinstance(one, FileChange))
    problems = tuple(one for one in parts if isinstance(one, Problem))
    return PatchResult(patch, changes, already=not any(parts), problems=problems, is_merged=True)


def _merged_file(git: Git, name: str, one: FileChange, now: Layered) -> FileChange | Problem | None:
    """Return the change of one file, or why it cannot be merged; None if the tree already has it."""
    ours = now.read(one.path)
    if ours == one.after:
        return None
    if ours == one.before:
        return one
    if ours is None or one.before is None or one.after is None:
        return Problem(name, one.path, "the file does not exist" if ours is None else "the file has other content")
    merged, is_clean = git.merge(ours, one.before, one.after)
    if not is_clean:
        return Problem(name, one.path, "both sides changed the same lines", _conflicts_in(merged))
    return replace(one, before=ours, after=merged) if merged != ours else None


def _conflicts_in(merged: bytes) -> tuple[str, ...]:
    """Return the conflicts of a three-way merge, with git's markers, as lines."""
    found: list[str] = []
    is_inside = False
    for line in merged.decode(errors="replace").split("\n"):
        is_inside = is_inside or line.startswith("<<<<<<< ")
        if is_inside:
            found.append(shown_line(line))
        is_inside = is_inside and not line.startswith(">>>>>>> ")
    return tuple(found)


@dataclass(frozen=True)
class NewSet:
    """A set made from a working tree: its HEAD, patches by name, and untracked files."""

    rev: str
    texts: dict[str, bytes]
    untracked: tuple[str, ...]


def new_set(folder: Path, env: Mapping[str, str]) -> NewSet:
    """Make a set from the changes since HEAD in the working tree of `folder`, with one patch for each file.

    Raises `UsageError` if git cannot read the working tree, and `FindingsError` if it has no changes, or changes that a
    patch cannot express.
    """
    try:
        tree = read_work_tree(tree_root(folder), env)
    except GitReadError as error:
        hint = "name the working tree that you develop in"
        what = f"--tree: git cannot read {str(folder)!r}: {str(error).removeprefix(FATAL)}"
        raise UsageError(what, hint=hint) from error
    if tree.head is None:
        hint = "patches are for a commit: commit the state that they change"
        raise UsageError(f"--tree: nothing was committed yet in {str(folder)!r}", hint=hint)
    _refuse_submodules(tree, env)
    found = {path: _change(tree, path, env) for path in tree.differing()}
    if not found:
        new = f"; git does not track {', '.join(tree.untracked[:3])}: `git add -N` it" if tree.untracked else ""
        raise FindingsError(
            f"nothing differs from HEAD{new}", where=str(tree.folder), hint="change what is to be patched"
        )
    names = patch_names(list(found))
    with git_repository(env) as git:
        texts = {names[path]: git.diff([one]) for path, one in found.items()}
    return NewSet(tree.head, texts, tree.untracked)


def _change(tree: WorkTree, path: str, env: Mapping[str, str]) -> FileChange:
    before, kind = tree.at_head.get(path), kind_of(tree.folder, path)
    if Kind.LINK in {kind, before[0] if before else None}:
        raise FindingsError(f"{path} is a symlink: no patch can hold it", where=str(tree.folder))
    after = (tree.folder / path).read_bytes() if kind else None
    return FileChange(path, head_blob(tree, path, env), after, before[0] if before else None, kind)


def _refuse_submodules(tree: WorkTree, env: Mapping[str, str]) -> None:
    """Refuse a tree with changes in a submodule, or with another commit of it: a patch cannot express them."""
    for path, commit in tree.submodules.items():
        folder = tree.folder / path
        if folder.is_symlink() or not (folder / ".git").exists():
            continue
        inner = read_work_tree(folder, env)
        if inner.head != commit or inner.differing():
            hint = f"make its patches with --tree {folder}, or take the changes back"
            raise FindingsError(f"submodule {path} has changes of its own", where=str(tree.folder), hint=hint)


def patch_names(paths: list[str]) -> dict[str, str]:
    """Return {path: name of its patch}: the file name without suffix, with a number if it is already used."""
    names: dict[str, str] = {}
    for path in sorted(paths):
        name = re.sub(r"[^\w-]+", "_", PurePosixPath(path).stem).strip("_")[:LONGEST] or "file"
        taken = set(names.values())
        numbered = (f"{name}_{number}" for number in count(2))
        names[path] = next(one for one in chain([name], numbered) if one not in taken)
    return names
