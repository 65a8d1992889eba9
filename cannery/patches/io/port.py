"""What `build.py patches port` works on: a component's patch sets, and its tree at a commit."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.patches.io.folders import plugin_sets
from cannery.patches.io.trees import TreeReader
from cannery.patches.patch_list import SHOWN, component_named
from cannery.patches.patch_port import AT
from cannery.patches.sets import SHORTEST
from cannery.recipe.recipe import ChosenSource
from cannery.sources.io.git_cache import cached
from cannery.sources.io.git_mirror import is_git_dir, places
from cannery.sources.io.git_objects import commits_named
from cannery.sources.plan import COMMIT, source_request
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.component import FromSource
    from cannery.context import Context
    from cannery.patches.sets import PatchSet

# Reading a tree for a trial: no layer is made of it, so any time will do.
EPOCH = 0
# A hash that is cut short; shorter ones are not told apart from words.
SHORT = re.compile(rf"[0-9a-f]{{{SHORTEST},39}}")
HASH = re.compile(rf"[0-9a-f]{{{SHORTEST},40}}")


def source_component(catalog: Catalog, repo: str) -> str:
    """Return the source component that a repo's name means; raise `UsageError` for a name that means none."""
    name = component_named(catalog, repo)
    if name is None:
        known = catalog.sources
        raise UsageError(f"{repo!r} is no source component", hint=did_you_mean(repo, known))
    return name


def all_sets(context: Context, catalog: Catalog, component: str) -> tuple[PatchSet, ...]:
    """Return every patch set for a component: of each plugin at each revision that has some, then those of folders.

    That is the order in which a build applies them. A set that several revisions of a plugin keep is given once.
    Plugins are fetched; raises as `cannery.sources.io.fetch.fetch_sources`.
    """
    found: dict[tuple[object, ...], PatchSet] = {}
    for plugin, keeper in catalog.sources.items():
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
    known = [commit for commit in catalog.sources[component].revisions if len(text) >= 7 and commit.startswith(text)]
    if not known and SHORT.fullmatch(text):
        known = sorted(_on_this_host(context, catalog.sources[component], text))
    if len(known) == 1:
        return known[0]
    if known:
        what = f"{text!r} is the beginning of {len(known)} commits of {component}: {', '.join(known)}"
        raise UsageError(what, hint="give more digits of the one that is meant")
    if not COMMIT.fullmatch(text):
        names = ", ".join(commit[:12] for commit in catalog.sources[component].revisions)
        raise UsageError(
            f"{text!r} is no known revision of {component}",
            hint=f"name a commit in full (40 hex digits), or one of {names}; a folder goes with --tree",
        )
    return text


def _on_this_host(context: Context, component: FromSource, text: str) -> set[str]:
    """Return the commits that begin with `text` where a fetch looks before it asks a host: GIT_MIRROR, or the cache."""
    repositories = dict.fromkeys(component.hosts.values())
    if context.mirror is not None:
        found = [git_dir for one in repositories for _, git_dir in places(context.mirror, one) if git_dir is not None]
    else:
        found = [path for one in repositories if is_git_dir(path := cached(context.cache, one))]
    return {commit for git_dir in found for commit in commits_named(git_dir, text, context.env)}


def tree_at(context: Context, catalog: Catalog, component: str, commit: str) -> Path:
    """Return the tar of a component's tree at a commit, fetched where it is not there yet.

    Raises as `cannery.sources.io.fetch.fetch_sources`.
    """
    from cannery.sources.io.fetch import fetch_sources  # noqa: PLC0415 - only where a tree is wanted

    known = catalog.sources[component]
    chosen = ChosenSource(component, known, None, (), "", context.arch, commit=commit)
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
