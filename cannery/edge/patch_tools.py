"""What `build.py patches` works on: sets wherever they are kept, a tree at a commit, a working tree's diff."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from cannery.core.errors import FindingsError, UnableError, UsageError
from cannery.core.patch_list import SHOWN, component_named
from cannery.core.patch_port import AT
from cannery.core.patch_set import SHORTEST, apply_set
from cannery.core.patch_summary import entry
from cannery.core.py_changes import python_changes
from cannery.core.recipe import Chosen
from cannery.core.source_plan import COMMIT, source_request
from cannery.core.words import did_you_mean
from cannery.edge.git_cache import cached
from cannery.edge.git_mirror import is_git_dir, places
from cannery.edge.git_objects import commits_named
from cannery.edge.git_run import GitReadError, read
from cannery.edge.patch_folders import plugin_sets, read_set
from cannery.edge.patch_trees import TreeReader

if TYPE_CHECKING:
    from cannery.core.catalog import Catalog
    from cannery.core.component import Component
    from cannery.core.patch_set import PatchSet
    from cannery.edge.context import Context

# Reading a tree for a trial: no layer is made of it, so any time will do.
EPOCH = 0
# A hash that is cut short; shorter ones are not told apart from words.
SHORT = re.compile(rf"[0-9a-f]{{{SHORTEST},39}}")


class FolderReader:
    """A folder as a tree: the same questions as `TreeReader`'s."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file's path."""
        files = (path for path in sorted(self._folder.rglob("*")) if path.is_file() and not path.is_symlink())
        return tuple(path.relative_to(self._folder).as_posix() for path in files)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when there is none. Nothing outside the folder is read."""
        place = self._folder / path
        inside = place.resolve().is_relative_to(self._folder.resolve())
        return place.read_bytes() if inside and place.is_file() else None


def source_component(catalog: Catalog, repo: str) -> str:
    """Return the source component that a repo's name means; raise `UsageError` for a name that means none."""
    name = component_named(catalog, repo)
    if name is None:
        known = {name for name, one in catalog.components.items() if one.kind.is_source}
        raise UsageError(f"{repo!r} is no source component", hint=did_you_mean(repo, known))
    return name


def all_sets(context: Context, catalog: Catalog, component: str) -> tuple[PatchSet, ...]:
    """Return every patch set for a component: of each plugin at each revision that has some, then those of folders.

    That is the order in which a build applies them. A set that several revisions of a plugin keep is given once.
    Plugins are fetched; raises as `cannery.edge.sources.fetch_sources`.
    """
    found: dict[tuple[object, ...], PatchSet] = {}
    for plugin, keeper in catalog.components.items():
        kept = keeper.patch_sets
        for commit, revision in keeper.revisions.items():
            if kept is not None and component in revision.patches:
                with closing(TreeReader(tree_at(context, catalog, plugin, commit))) as reader:
                    sets = plugin_sets(plugin, kept, reader)
                for one in (one for repo, group in sets.items() if kept.repos.get(repo) == component for one in group):
                    key = (plugin, one.folder, tuple((file.name, file.digest) for file in one.files))
                    found.setdefault(key, replace(one, origin=f"{plugin}{AT}{commit[:SHOWN]}"))
    return (*found.values(), *(one for one in context.patch_sets if component_named(catalog, one.repo) == component))


def full_commit(context: Context, catalog: Catalog, component: str, text: str) -> str:
    """Return the full commit of a known revision, or of the only one on this host that `text` is the beginning of.

    A full hash is returned as it is. Raises `UsageError` for anything else.
    """
    known = [commit for commit in catalog.components[component].revisions if len(text) >= 7 and commit.startswith(text)]
    if not known and SHORT.fullmatch(text):
        known = sorted(_on_this_host(context, catalog.components[component], text))
    if len(known) == 1:
        return known[0]
    if not COMMIT.fullmatch(text):
        names = ", ".join(commit[:12] for commit in catalog.components[component].revisions)
        raise UsageError(
            f"{text!r} is no known revision of {component}",
            hint=f"name a commit in full (40 hex digits), or one of {names}; a folder goes with --tree",
        )
    return text


def _on_this_host(context: Context, component: Component, text: str) -> set[str]:
    """Return the commits that begin with `text` where a fetch looks before it asks a host: GIT_MIRROR, or the cache."""
    repositories = dict.fromkeys(component.hosts.values())
    if context.mirror is not None:
        found = [git_dir for one in repositories for _, git_dir in places(context.mirror, one) if git_dir is not None]
    else:
        found = [path for one in repositories if is_git_dir(path := cached(context.cache, one))]
    return {commit for git_dir in found for commit in commits_named(git_dir, text, context.env)}


def tree_at(context: Context, catalog: Catalog, component: str, commit: str) -> Path:
    """Return the tar of a component's tree at a commit, fetched where it is not there yet.

    Raises as `cannery.edge.sources.fetch_sources`.
    """
    from cannery.edge.sources import fetch_sources  # noqa: PLC0415 - only where a tree is wanted

    known = catalog.components[component]
    chosen = Chosen(component, known, None, (), "", context.arch, commit=commit)
    request = source_request(chosen, catalog.hosts, epoch=EPOCH, paths=known.paths)
    (file,) = fetch_sources(
        [request],
        catalog.hosts,
        cache=context.cache,
        env=context.env,
        mirror=context.mirror,
        say=context.say,
        log=context.cache / "log" / "git.log",
    )
    return file.tar


def working_diff(context: Context, folder: Path) -> tuple[str, dict[str, bytes], tuple[str, ...]]:
    """Return HEAD of a working tree, {path: its diff from HEAD} of what is changed, and files that git does not track.

    Raises `UsageError` for a folder that is no working tree, `FindingsError` for one without changes.
    """
    git = ("-C", folder)
    try:
        head = read((*git, "rev-parse", "HEAD"), context.env).decode().strip()
        top = Path(read((*git, "rev-parse", "--show-toplevel"), context.env).decode().rstrip("\n"))
        plain = (
            "-c",
            "core.quotePath=true",
            "-C",
            top,
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--no-renames",
        )
        names = read((*plain, "--name-only", "-z", "HEAD"), context.env).decode(errors="surrogateescape")
        changed = [name for name in names.split("\0") if name]
        diffs = {
            name: read((*plain, "--full-index", "HEAD", "--", f":(literal){name}"), context.env) for name in changed
        }
        others = read(("-C", top, "ls-files", "--others", "--exclude-standard", "-z"), context.env)
    except GitReadError as error:
        hint = "name the working tree that you develop in"
        raise UsageError(f"--tree: git cannot read {str(folder)!r}: {error}", hint=hint) from error
    untracked = tuple(name for name in others.decode(errors="replace").split("\0") if name)
    if not diffs:
        new = f"; git does not track {', '.join(untracked[:3])}: `git add -N` it" if untracked else ""
        raise FindingsError(f"nothing differs from HEAD{new}", where=str(folder), hint="change what is to be patched")
    return head, diffs, untracked


@dataclass(frozen=True)
class NewSet:
    """A set made of a working tree: its HEAD, {name: patch}, entries for a summary, and files that are in no patch."""

    rev: str
    texts: dict[str, bytes]
    entries: tuple[dict[str, Any], ...]
    untracked: tuple[str, ...]


def new_set(context: Context, repo: str, folder: Path) -> NewSet:
    """Make a set of what differs from HEAD in a working tree, file by file; each is tried on HEAD before it is given.

    Raises `UsageError` and `FindingsError` as `working_diff`; `FindingsError` for what no patch of texts can hold.
    """
    head, diffs, untracked = working_diff(context, folder)
    names = patch_names(list(diffs))
    texts = {names[path]: text for path, text in diffs.items()}
    entries = []
    for path, text in sorted(diffs.items()):
        patches = read_set(repo, head, str(folder), {names[path]: text})
        result = apply_set(patches, lambda name: _at_head(context, folder, name))
        if result.problems:
            raise FindingsError("\n".join(map(str, result.problems)), where=str(folder))
        parts = [python_changes(name, result.before[name], after) for name, after in result.contents.items()]
        entries.append(entry(names[path], parts))
    return NewSet(head, texts, tuple(entries), untracked)


def _at_head(context: Context, folder: Path, path: str) -> bytes | None:
    try:
        return read(("-C", folder, "cat-file", "blob", f"HEAD:{path}"), context.env)
    except GitReadError:
        return None


def patch_names(paths: list[str]) -> dict[str, str]:
    """Return {path: name of its patch}: the file's own name, with folders before it where two files have the same."""
    names: dict[str, str] = {}
    for path in sorted(paths):
        parts = PurePosixPath(path).with_suffix("").parts
        take = 1
        while "_".join(parts[-take:]) in names.values() and take < len(parts):
            take += 1
        names[path] = "_".join(parts[-take:])
    return names


def write_set(folder: Path, texts: dict[str, bytes]) -> None:
    """Write {name: content} into a new folder, all or nothing.

    Raises `UsageError` where the folder holds something already, `UnableError` where it cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError("there is a patch set already", where=str(folder), hint="remove it, or name another --output")
    part = folder.with_name(f".{folder.name}.cannery")
    try:
        part.mkdir(parents=True, exist_ok=True)
        for old in part.iterdir():
            old.unlink()  # of a run that was cut off
        for name, content in texts.items():
            (part / name).write_bytes(content)
        part.replace(folder)
    except OSError as error:
        raise UnableError(f"cannot be written: {error.strerror or error}", where=str(folder)) from error
