"""`outdated`: what the indexes and the repositories have that is newer than a lock. Nothing is resolved or written."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from cannery.compat.io.stock import ask_stock, bounds_of, questions_of
from cannery.compat.solve import newest_pins, upgrader
from cannery.lock.io.indexes import ask_all
from cannery.lock.request import lock_request
from cannery.sources.io.git import GitReadError, read, talk
from cannery.sources.io.git_cache import places
from cannery.util.addresses import redactor
from cannery.util.trouble import reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.compat.io.stock import Stock
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Chosen, Recipe
    from cannery.sources.io.fetch import SourceStore
    from cannery.util.io.pip_settings import PipSettings
    from cannery.vocab import Arch


HEAD = ("package", "locked", "fits", "newest")
NOTHING = "-"


@dataclass(frozen=True)
class Outdated:
    """A component of the profile: its version in the lock, the newest that fits with the others, and the newest at all.

    Versions are without their local part; "" is not there, or not known.
    """

    name: str
    locked: str
    fits: str
    newest: str

    @property
    def is_newer(self) -> bool:
        """Whether a newer one fits."""
        return bool(self.locked and self.fits) and Version(self.fits) > Version(self.locked)

    @property
    def is_held(self) -> bool:
        """Whether the newest one does not fit."""
        return bool(self.newest and self.fits) and Version(self.newest) > Version(self.fits)


def upgrade_targets(recipe: Recipe) -> tuple[tuple[str, Arch], ...]:
    """Return each (Python, arch) that an upgrade has to fit: the profile's, or a target that is none of them."""
    own, mine = recipe.profile.target, (recipe.target.python, recipe.target.arch)
    every = dict.fromkeys((python, arch) for python in (own.python, *own.pythons) for arch in own.arch)
    return tuple(every) if mine in every else (mine,)


def outdated_packages(recipe: Recipe, lock: Lock, pins: Mapping[str, str], stock: Stock) -> tuple[Outdated, ...]:
    """Return a line for each wheel of the profile; `pins` are those that can move together, and where to."""
    locked = {package.name: public(package.version) for package in lock.packages}
    found = []
    for chosen in recipe.wheels:
        name = chosen.package
        own = "" if chosen.version else stock.newest_for(name)
        fits = public(pins.get(name, "")) or max(filter(None, (own, locked.get(name, ""))), key=Version, default="")
        newest = stock.newest.get(name, "")
        if newest and Version(newest) < Version(fits or newest):
            newest = ""  # the index that has it was not asked
        found.append(Outdated(name, locked.get(name, ""), fits, newest))
    return tuple(found)


def source_lines(recipe: Recipe, refs: Mapping[str, tuple[Mapping[str, str], str]]) -> tuple[str, ...]:
    """Return a line for each source: what it is pinned to, and what its repository has that is newer.

    `refs` are {ref: commit} of each, and why they are not known.
    """
    return tuple(f"{c.name}: {_source(c, *refs.get(c.name, ({}, 'not looked at')))}" for c in recipe.sources)


def _source(chosen: Chosen, refs: Mapping[str, str], why: str) -> str:
    pinned = f"pinned to {f'commit {chosen.commit}' if chosen.commit else f'release {chosen.release}'}"
    if why:
        return f"{pinned}; its repository was not asked: {why}"
    tags = {ref.rpartition("/")[2]: commit for ref, commit in refs.items() if ref.startswith("refs/tags/")}
    mine = next((tag for tag, commit in tags.items() if commit == chosen.commit), "")
    newest = max(filter(_tagged, tags), key=Version, default="")
    known = chosen.release or mine or (chosen.version or "")
    is_newer = newest and _tagged(known) and Version(newest) > Version(known)
    parts = [f"{pinned}{f' ({mine})' if mine else ''}"]
    parts += [f"newest tag {newest}, {tags[newest]}"] if is_newer else ["no newer tag"]
    head = refs.get("HEAD", "")
    parts += [f"its branch is at {head}"] if chosen.commit and head and head != chosen.commit else []
    return "; ".join(parts)


def _tagged(tag: str) -> bool:
    """Whether a tag names a release: `v0.13.0`; no candidate."""
    try:
        return not Version(tag).is_prerelease or bool(Version(tag).is_devrelease)
    except InvalidVersion:
        return False


def table(packages: Sequence[Outdated]) -> tuple[str, ...]:
    """Return the lines of a table, with its head."""
    rows = [HEAD, *((p.name, p.locked, p.fits, p.newest) for p in packages)]
    widths = [max(len(cell or NOTHING) for cell in column) for column in zip(*rows, strict=True)]
    cells = ([f"{cell or NOTHING:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows)
    return tuple("  ".join(row).rstrip() for row in cells)


def public(version: str) -> str:
    """Return a version without its local part; "" stays ""."""
    return Version(version).public if version else ""


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
