"""`outdated`: what the indexes and the repositories have that is newer than a lock. Nothing is resolved or written."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cannery.compat.io.stock import ask_stock, questions_of
from cannery.compat.solve import newest_pins, upgrader
from cannery.compat.stock import bounds_of
from cannery.lock.io.indexes import ask_all
from cannery.lock.request import lock_request
from cannery.sources.io.git import GitReadError, read, talk
from cannery.sources.io.git_cache import places
from cannery.upgrade.outdated import outdated_packages, source_lines, upgrade_targets
from cannery.util.addresses import redactor
from cannery.util.trouble import reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Recipe
    from cannery.sources.io.fetch import SourceStore
    from cannery.upgrade.outdated import Outdated
    from cannery.util.io.pip_settings import PipSettings


# Seconds in which all indexes have answered, or count as not reached.
PATIENCE = 15.0


@dataclass(frozen=True)
class Report:
    """What was found: `packages`, `sources`, and `troubles`, the indexes that were not asked."""

    packages: tuple[Outdated, ...]
    sources: tuple[str, ...]
    troubles: tuple[str, ...]


def look(
    settings: PipSettings, catalog: Catalog, recipe: Recipe, lock: Lock, sources: SourceStore | None = None
) -> Report:
    """Compare `lock`, the current one of `recipe`, with what the indexes have; `sources` asks repositories.

    Pins move together to releases that fit the table, what the profile asks, and all of its targets.
    """
    targets = upgrade_targets(recipe)
    pythons = tuple(dict.fromkeys(python for python, _arch in targets))
    ask = partial(ask_all, settings=settings, timeout=PATIENCE)
    stock = ask_stock(questions_of(recipe), catalog.indexes, settings, targets, ask)
    stock = replace(stock, bounds=bounds_of(lock_request(recipe)))
    pins = newest_pins(upgrader(recipe, catalog, pythons, stock.has), stock.newest_for)
    return Report(
        packages=outdated_packages(recipe, lock, pins, stock),
        sources=source_lines(recipe, _refs(recipe, sources) if sources else {}),
        troubles=tuple(dict.fromkeys(stock.trouble.values())),
    )


def _refs(recipe: Recipe, store: SourceStore) -> dict[str, tuple[dict[str, str], str]]:
    lost: set[str] = set()
    return {c.name: remote_refs(store, c.component.hosts, lost) for c in recipe.sources if c.component.hosts}


# Seconds in which a host must answer.
SILENCE = 8.0
LINE = re.compile(r"^([0-9a-f]{40})\s(HEAD|refs/\S+)$", re.MULTILINE)


def remote_refs(store: SourceStore, hosts: Mapping[str, str], lost: set[str]) -> tuple[dict[str, str], str]:
    """Return {ref: commit} of a repository, of GIT_MIRROR or else of the first of `hosts` that answers; and why none.

    `lost` are hosts that did not answer before; those that do not answer now are added.
    """
    if store.mirror is not None:
        for repository in dict.fromkeys(hosts.values()):
            for _, git_dir in places(store.mirror, repository):
                if git_dir is not None:
                    try:
                        text = read((f"--git-dir={git_dir}", "show-ref", "--head", "--dereference"), store.env).decode()
                    except GitReadError as error:
                        return {}, str(error)
                    return _parsed_refs(text), ""
        return {}, "it is not in GIT_MIRROR"
    why = []
    for host, repository in hosts.items():
        if host in lost or host not in store.hosts:
            why.append(f"{host} did not answer")
            continue
        url = store.hosts[host].url.replace("{repository}", repository)
        done, text = talk(("ls-remote", "--", url), store.env, store.cache, stop=threading.Event(), silence=SILENCE)
        if done:
            return _parsed_refs(text), ""
        lost.add(host)
        why.append(f"{host}: {reason(redactor()(text))}")
    return {}, "; ".join(why)


def _parsed_refs(text: str) -> dict[str, str]:
    """Return the refs; a tag is the commit that it names."""
    found = {ref: commit for commit, ref in LINE.findall(text)}
    peeled = {ref.removesuffix("^{}"): commit for ref, commit in found.items() if ref.endswith("^{}")}
    return {ref: peeled.get(ref, commit) for ref, commit in found.items() if not ref.endswith("^{}")}
