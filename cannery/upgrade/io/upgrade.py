"""`lock --upgrade`: edit the profile's file and remake its locks, all of it or nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cannery.compat.findings import errors
from cannery.compat.io.stock import make_stock
from cannery.compat.rules import check_recipe
from cannery.errors import CanneryError, FindingsError, UsageError
from cannery.lock.check import lock_problems
from cannery.lock.io.indexes import Asked
from cannery.lock.io.resolve_all import raise_failures, run_jobs
from cannery.lock.io.store import (
    changed,
    checkout_held,
    lock_path,
    lock_target,
    present_lock,
    resolve_lock,
    write_files,
)
from cannery.lock.request import lock_request
from cannery.lock.text import format_lock
from cannery.recipe.recipe import Options, with_arch
from cannery.recipe.select import find_profile, select
from cannery.upgrade.change import LockChange, lock_change, with_known_files
from cannery.upgrade.edit import SetDate, edit_profile
from cannery.upgrade.upgrade import Editable, asked_names, checked_wishes, upgrade_edits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.catalog import Catalog
    from cannery.compat.findings import Finding
    from cannery.lock.io.store import LockStore
    from cannery.lock.lock import Lock, LockRequest
    from cannery.recipe.recipe import Recipe
    from cannery.upgrade.edit import Edit
    from cannery.upgrade.upgrade import Wish
    from cannery.vocab import Arch

Target = tuple[str, "Arch"]


@dataclass(frozen=True)
class Upgraded:
    """What was done: edits of the profile's `file`, and for each lock what it has otherwise (None: there was none).

    `notes` are wishes that need no edit. Without `written` nothing was changed: no package would be another one.
    """

    file: Path
    edits: tuple[Edit, ...]
    notes: tuple[str, ...]
    changes: tuple[tuple[Path, LockChange | None], ...] = ()
    written: bool = False


@dataclass(frozen=True)
class _Side:
    """A profile before or after: its recipes by Python, and what its locks answer and hold, by (Python, arch)."""

    catalog: Catalog
    recipes: Mapping[str, Recipe]
    requests: Mapping[Target, LockRequest]
    locks: Mapping[Target, Lock]


def upgrade(store: LockStore, catalog: Catalog, name: str, wishes: Sequence[Wish], today: str) -> Upgraded:
    """Let the packages of `wishes` be newer: write the locks and the edited file of profile `name`.

    Raises `UsageError` for wishes that no edit can bring, and whatever `resolve_lock` raises, also `FindingsError` for
    errors that the new set has and the old one has not, or when the profile changed meanwhile, and `UnableError` when a
    file cannot be written, which names those that are.
    """
    own = store.own / "profiles" / f"{name}.yaml" if store.own else None
    file = own if own and own.is_file() else store.root / "images/profiles" / f"{name}.yaml"
    text = file.read_bytes().decode()  # line ends as they are
    if parent := find_profile(catalog, name).extends:
        where, hint = str(store.shown(file)), "write the versions there by hand, then run lock"
        raise UsageError(f"--upgrade edits whole profiles, and this one extends {parent}", where=where, hint=hint)
    before = _present(store, catalog, name)
    target = find_profile(catalog, name).target
    subject = Editable(
        recipe=before.recipes[target.python],
        catalog=catalog,
        pythons=tuple(before.recipes),
        locked=frozenset(package.name for lock in before.locks.values() for package in lock.packages),
    )
    wanted = checked_wishes(subject, wishes)
    stock = make_stock(store.settings(), catalog, subject.recipe, asked_names(subject, wanted), before.requests)
    plan = upgrade_edits(subject, wanted, stock, today)
    if not plan.edits:
        return Upgraded(file, (), plan.notes)
    new_text, profile = edit_profile(text, plan.edits, str(store.shown(file)))
    edited = replace(catalog, profiles={**catalog.profiles, name: profile})
    after = _side(store, edited, name)
    _refuse_new_errors(store, replace(before, locks={}), after)  # by the pins alone, before anything is asked
    made = _resolved(store, after).locks
    after = replace(after, locks={key: with_known_files(lock, before.locks.get(key)) for key, lock in made.items()})
    _refuse_new_errors(store, before, after)
    if _is_same(before, after, plan.edits):
        return Upgraded(file, plan.edits, plan.notes)
    with checkout_held(store):
        _refuse_changed(store, before, file, text, name)
        present = _present(store, before.catalog, name).locks  # another run may have made them meanwhile
        paths = {key: lock_target(store, request) for key, request in after.requests.items()}
        # The locks first. Ended in between, some of them answer to a profile that is not there yet: `check` reports
        # them as stale, and the same upgrade, or a plain `lock`, remakes them. With the profile first, the same
        # upgrade would find its edit made already, and leave the old locks beside it.
        locks = [(paths[key], format_lock(lock)) for key, lock in after.locks.items()]
        write_files(store, [*locks, (file, new_text)])
    changes = [
        (paths[key], lock_change(present[key].packages, lock.packages) if key in present else None)
        for key, lock in after.locks.items()
    ]
    return Upgraded(file, plan.edits, plan.notes, tuple(changes), written=True)


def _refuse_changed(store: LockStore, before: _Side, file: Path, text: str, name: str) -> None:
    """Raise `FindingsError` when the profile, or what its locks depend on, is not what it was: `text` and `before`."""
    try:
        same = file.read_bytes().decode() == text
        catalog = store.catalog()
        same = same and catalog.profiles[name] == before.catalog.profiles[name]
        same = same and _side(store, catalog, name).requests == before.requests
    except (OSError, ValueError, KeyError, CanneryError):  # removed, or half an edit, which the next run names
        same = False
    if not same:
        raise changed(str(store.shown(file)), "the profile, its components or its base have changed")


def _side(store: LockStore, catalog: Catalog, name: str) -> _Side:
    target = find_profile(catalog, name).target
    pythons = dict.fromkeys((target.python, *target.pythons))
    recipes = {python: select(catalog, name, Options(python=python), store.arch) for python in pythons}
    requests = {
        (python, arch): lock_request(with_arch(recipe, arch))
        for python, recipe in recipes.items()
        for arch in target.arch
    }
    return _Side(catalog, recipes, requests, {})


def _present(store: LockStore, catalog: Catalog, name: str) -> _Side:
    """The profile with the locks that are there, stale ones too; a file that is no lock is as none."""
    side = _side(store, catalog, name)
    locks: dict[Target, Lock] = {}
    for key, request in side.requests.items():
        found = present_lock(store, lock_path(store, request))
        if found is not None:
            locks[key] = found
    return replace(side, locks=locks)


def _resolved(store: LockStore, side: _Side) -> _Side:
    _ = store.settings()  # asked once, here, and not by every thread
    resolve = partial(resolve_lock, store, side.catalog, asked=Asked())
    jobs = [
        partial(resolve, request, recipe=with_arch(side.recipes[python], arch))
        for (python, arch), request in side.requests.items()
    ]
    results = list(run_jobs(jobs))
    raise_failures([result for result in results if isinstance(result, CanneryError)], len(results))
    locks = {key: r for key, r in zip(side.requests, results, strict=True) if not isinstance(r, CanneryError)}
    return replace(side, locks=locks)


def _refuse_new_errors(store: LockStore, before: _Side, after: _Side) -> None:
    old = _errors(store, before)
    new = [finding for finding in _errors(store, after) if finding not in old]
    if new:
        listed = "\n".join(map(str, dict.fromkeys(new)))
        raise FindingsError(f"the set would have errors that it does not have now\n{listed}")


def _errors(store: LockStore, side: _Side) -> list[Finding]:
    found: list[Finding] = []
    for python, recipe in side.recipes.items():
        locks = {arch: lock for (version, arch), lock in side.locks.items() if version == python}
        found += errors(check_recipe(recipe, side.catalog, locks, store.arch))
    return found


def _is_same(before: _Side, after: _Side, edits: Sequence[Edit]) -> bool:
    """Whether dates were all that changed: current locks, and every package in them the same."""
    return all(isinstance(edit, SetDate) for edit in edits) and all(
        key in before.locks
        and not lock_problems(before.locks[key], request, before.catalog.indexes)
        and before.locks[key].packages == after.locks[key].packages
        for key, request in before.requests.items()
    )
