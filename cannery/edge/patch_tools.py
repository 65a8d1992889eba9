"""What `build.py patches` works on: sets wherever they are kept, a tree at a commit, a working tree's diff."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import PurePosixPath
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
from cannery.edge.working_tree import working_diff

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cannery.core.catalog import Catalog
    from cannery.core.component import Component
    from cannery.core.patch_set import PatchSet
    from cannery.edge.context import Context

# Reading a tree for a trial: no layer is made of it, so any time will do.
EPOCH = 0
# A hash that is cut short; shorter ones are not told apart from words.
SHORT = re.compile(rf"[0-9a-f]{{{SHORTEST},39}}")
# Bytes of a patch's name; file systems take 255, with its ending and a number.
LONGEST = 200
HASH = re.compile(rf"[0-9a-f]{{{SHORTEST},40}}")


class FolderReader:
    """A folder as a tree: the same questions as `TreeReader`'s."""

    def __init__(self, folder: Path) -> None:
        """Raise `UsageError` for what is no folder."""
        if not folder.is_dir():
            what = "is no folder" if folder.exists() else "does not exist"
            raise UsageError(f"--tree: {str(folder)!r} {what}", hint="name the folder that the patches are tried on")
        self._folder = folder

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file's path."""
        files = (path for path in sorted(self._folder.rglob("*")) if path.is_file() and not path.is_symlink())
        return tuple(path.relative_to(self._folder).as_posix() for path in files)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when there is none. A link is no file, nor is what lies behind one.

        `path` is one that a patch may name (`cannery.core.patch_path.safe`). Raises `UnableError` for a file that
        cannot be read.
        """
        place = self._folder
        try:
            for part in PurePosixPath(path).parts:
                place /= part
                if place.is_symlink():
                    return None
            return place.read_bytes() if place.is_file() else None
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnableError(f"cannot be read: {reason}", where=str(place), hint="make it readable for you") from error


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


def some_commit(text: str) -> str:
    """Return a commit's full or short hash as git writes it; raise `UsageError` for what is none."""
    if not HASH.fullmatch(text.lower()):
        raise UsageError(f"{text!r} is no commit", hint=f"give a hash of {SHORTEST} to 40 hex digits")
    return text.lower()


def full_commit(context: Context, catalog: Catalog, component: str, text: str) -> str:
    """Return the full commit of a known revision, or of the only one on this host that `text` is the beginning of.

    A full hash is returned as it is. Raises `UsageError` for anything else, naming the commits if several.
    """
    text = text.lower()
    known = [commit for commit in catalog.components[component].revisions if len(text) >= 7 and commit.startswith(text)]
    if not known and SHORT.fullmatch(text):
        known = sorted(_on_this_host(context, catalog.components[component], text))
    if len(known) == 1:
        return known[0]
    if known:
        what = f"{text!r} is the beginning of {len(known)} commits of {component}: {', '.join(known)}"
        raise UsageError(what, hint="give more digits of the one that is meant")
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
    """Return {path: name of its patch}, no name twice: the file's own without its ending where no other file has it.

    Otherwise folders stand before it, then its ending behind it, and at last a number.
    """
    names: dict[str, str] = {}
    for path in sorted(paths):
        taken = set(names.values())
        names[path] = next(name for name in _names_for(PurePosixPath(path)) if name not in taken)
    return names


def _names_for(path: PurePosixPath) -> Iterator[str]:
    """Yield names for the patch of one file, the shortest first, without an end."""
    parts = path.with_suffix("").parts
    yield from (_fit("_".join(parts[-take:])) for take in range(1, len(parts) + 1))
    whole = _fit("_".join(path.parts))
    yield whole
    yield from (f"{whole}_{number}" for number in count(2))


def _fit(name: str) -> str:
    """Return a name that sets are read with again: no dot in front, nothing that does not print, not too long."""
    plain = "".join(sign if sign.isprintable() else "_" for sign in name).lstrip(".") or "_"
    return plain.encode()[:LONGEST].decode(errors="ignore")
