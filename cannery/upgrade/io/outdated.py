"""`outdated`: what a lock would be today, beside what it is. Nothing below images/ is written."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cannery.compat.findings import errors
from cannery.compat.io.stock import make_stock
from cannery.compat.rules import check_recipe
from cannery.compat.solve import newest_pins, upgrader, with_pins
from cannery.compat.stock import Allowed
from cannery.errors import CanneryError, FindingsError
from cannery.lock.io.indexes import Asked
from cannery.lock.io.store import resolve_lock
from cannery.lock.request import lock_request
from cannery.sources.io.git import GitReadError, read, talk
from cannery.sources.io.git_mirror import places
from cannery.upgrade.change import lock_change, with_known_files
from cannery.upgrade.outdated import (
    Evidence,
    at_day,
    changed_names,
    named_packages,
    outdated_packages,
    source_lines,
    upgrade_targets,
)
from cannery.util.redact import redactor
from cannery.util.trouble import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.lock.io.store import LockStore
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Recipe
    from cannery.sources.io.store import SourceStore
    from cannery.upgrade.change import LockChange
    from cannery.upgrade.outdated import Outdated


@dataclass(frozen=True)
class Report:
    """What was found: `packages` and `sources`, what an upgrade of all would change, and what could not be found out.

    `folded` are further packages that it would change, which the profile does not name. `upgrade` is None when no set
    of versions works; `problems` then has the reasons. `troubles`: indexes that were not asked.
    """

    day: str
    packages: tuple[Outdated, ...]
    folded: tuple[str, ...]
    sources: tuple[str, ...]
    upgrade: LockChange | None
    problems: tuple[str, ...]
    troubles: tuple[str, ...]


def look(  # noqa: PLR0913 - what is looked at, as of when, and how much of it
    store: LockStore,
    catalog: Catalog,
    recipe: Recipe,
    lock: Lock,
    today: str,
    *,
    sources: SourceStore | None = None,
    every: bool = False,
) -> Report:
    """Compare `lock`, the current one of `recipe`, with what the indexes have `today`.

    With `every`, no package that would change is folded. `sources` are where repositories are asked. Pins
    move to releases that fit all targets of the profile. Raises
    `NetworkError` when the resolver cannot reach its indexes.
    """
    request = lock_request(recipe)
    targets = upgrade_targets(recipe)
    pythons = tuple(dict.fromkeys(python for python, _arch in targets))
    day = max(today, request.exclude_newer)
    stock = make_stock(store.settings(), catalog, recipe, [c.package for c in recipe.wheels], targets)
    fitting = Allowed(stock, request)
    solver = upgrader(recipe, catalog, pythons, fitting.has)
    pins = newest_pins(solver, fitting.newest_for)
    moved = with_pins(recipe, catalog, pins)
    resolve = partial(resolve_lock, store, catalog, command="outdated", asked=Asked())
    # With pins that move, a bound index that is not reached is no reason to end without what is known by now.
    kind = CanneryError if pins else FindingsError
    last, problem = _attempt(partial(resolve, at_day(lock_request(moved), day)), kind)
    after, after_problem = last, ""
    if last and (refused := _new_errors(catalog, (recipe, lock), (moved, last))):
        last, problem = None, refused
    if pins and not last:
        after, after_problem = _attempt(partial(resolve, at_day(request, day)), FindingsError)
    changed = changed_names(lock, after)
    named = named_packages(recipe, request, lock, after)
    names = tuple(dict.fromkeys([*named, *changed])) if every else named
    rest = [name for name in names if name not in stock.releases]
    stock = stock.with_more(make_stock(store.settings(), catalog, recipe, rest, targets))
    problems = (
        (f"with the date bound at {day} and the pins as they are", after_problem),
        ("with every pin at the newest that fits", problem),
    )
    return Report(
        day=day,
        packages=outdated_packages(recipe, lock, Evidence(after, pins, stock), names),
        folded=tuple(name for name in changed if name not in names),
        sources=source_lines(recipe, _refs(recipe, sources) if sources else {}),
        upgrade=lock_change(lock.packages, with_known_files(last, lock).packages) if last else None,
        problems=tuple(f"{what}: {text}" for what, text in problems if text),
        troubles=tuple(dict.fromkeys(stock.trouble.values())),
    )


def _refs(recipe: Recipe, store: SourceStore) -> dict[str, tuple[dict[str, str], str]]:
    lost: set[str] = set()
    return {c.name: remote_refs(store, c.component.hosts, lost) for c in recipe.sources if c.component.hosts}


def _new_errors(catalog: Catalog, before: tuple[Recipe, Lock], after: tuple[Recipe, Lock]) -> str:
    """Return the errors that the rules find in a set alone, for which an upgrade to it is refused; "" without any."""
    old, new = (errors(check_recipe(recipe, catalog, {recipe.target.arch: lock})) for recipe, lock in (before, after))
    return "\n".join(str(finding) for finding in new if finding not in old)


def _attempt(resolve: Callable[[], Lock], kind: type[CanneryError]) -> tuple[Lock | None, str]:
    """Resolve; return the lock, or after an error of `kind` its text. Raises every other error."""
    try:
        return resolve(), ""
    except kind as error:
        return None, str(error)


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
