"""Lock files: the committed ones in images/locks, and those of ad-hoc pins in the cache.

A build takes the missing hashes of an incomplete lock from the indexes. This changes no version and no file in
images/locks, which only `lock` writes. The hashes are cached, so that a later verify or push uses the same files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.compat.subject import Finding
from cannery.errors import CanneryError, FindingsError, NetworkError, UsageError
from cannery.lock.lock import (
    REMAKE,
    best_wheel,
    format_lock,
    missing_packages,
    parse_lock,
    public_mirrors,
    published_at,
    with_published,
)
from cannery.lock.request import TOOLS_PROFILE, lock_problems, lock_request, tools_request
from cannery.recipe.recipe import with_arch
from cannery.recipe.select import select
from cannery.util.io.files import is_of_files, sha256_bytes, shown_path, unwritable, write_atomic, writing
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.lock.io.bound import NoFileError
    from cannery.lock.io.indexes import Answer, Asked
    from cannery.lock.io.resolve import Attempt, Job, UnsolvedError
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.lock.request import LockRequest
    from cannery.recipe.recipe import Options, Recipe
    from cannery.util.io.pip_settings import PipSettings
    from cannery.vocab import Arch

    # Returns the error that a user sees, from the error, its job, the catalog, the recipe, and a function that tries
    # other sets.
    Explain = Callable[[UnsolvedError | NoFileError, Job, Catalog, Recipe | None, Attempt], CanneryError]

# The code of the finding for a lock that is missing or cannot be used.
LOCK = "lock"
# The most problems that a message names; one wrong header can cause a hundred.
SHOWN = 3


@dataclass(frozen=True)
class LockStore:
    """Where lock files are, and what is needed to make one.

    `root` is the folder with images/, `own` is the user's folder over it. Locks are written to `locks`, and are read
    from there or else from images/locks. `cache` is Cannery's cache folder, `arch` is that of this host, `env` is the
    environment of the process. `say` prints a line for the user, `settings` returns the host's pip settings, `explain`
    explains a failed lock.
    """

    root: Path
    locks: Path
    cache: Path
    arch: Arch
    env: Mapping[str, str]
    say: Callable[[str], None]
    settings: Callable[[], PipSettings]
    explain: Explain
    own: Path | None = None

    def shown(self, path: Path) -> Path:
        """Return a path for messages: relative to the working directory or the checkout, if it is inside."""
        homes = (self.root, Path.cwd() if self.own else self.locks.parent)
        return next((shown_path(path, home) for home in homes if path.is_relative_to(home)), path)


@dataclass(frozen=True)
class LockSet:
    """The usable locks of a recipe, the lock of the build tools, and an error for each lock that cannot be used."""

    locks: Mapping[Arch, Lock]
    tools: Lock | None
    findings: tuple[Finding, ...]


def lock_path(store: LockStore, request: LockRequest, *, standard: bool = True) -> Path:
    """Return the file from which the lock of `request` is read: `lock_target`, or else the one in images/locks."""
    target = lock_target(store, request, standard=standard)
    if not standard or target.is_file():
        return target
    built_in = store.root / "images/locks" / request.profile / target.name
    return target if store.own and not built_in.is_file() else built_in


def lock_target(store: LockStore, request: LockRequest, *, standard: bool = True) -> Path:
    """Return the file to which the lock of `request` is written. Ad-hoc locks are in the cache, named by digest."""
    if not standard:
        return store.cache / "locks" / f"{request.profile}-{request.digest[:16]}-{request.arch}.txt"
    parts = filter(None, (f"py{request.python}", request.arch, request.variant))
    return store.locks / request.profile / f"{'-'.join(parts)}.txt"


def read_lock(store: LockStore, path: Path) -> Lock | None:
    """Return the lock at `path`, or None if there is no file. Raises `UsageError` for a file that is not a lock."""
    if not path.is_file():
        return None
    name = _shown(store, path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"byte {error.start} is not UTF-8, so this is not a lock", where=name, hint=REMAKE) from error
    return parse_lock(text, name)


def present_lock(store: LockStore, path: Path) -> Lock | None:
    """Return the lock at `path`, even if it is stale; None if there is no file, or if it is not a lock."""
    try:
        return read_lock(store, path)
    except UsageError:
        return None


def _shown(store: LockStore, path: Path) -> str:
    shown = store.shown(path)
    return path.name if shown.is_absolute() else str(shown)


def write_lock(store: LockStore, path: Path, lock: Lock) -> bool:
    """Write a lock and return whether the file changed. Raises `UnableError` if it cannot be written."""
    target = Path(os.path.realpath(path))  # a symbolic link is kept
    with writing(store.shown(path)):
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        return write_atomic(target, format_lock(lock), mode)


def resolve_lock(
    store: LockStore,
    catalog: Catalog,
    request: LockRequest,
    *,
    recipe: Recipe | None = None,
    asked: Asked | None = None,
) -> Lock:
    """Resolve `request` and return the lock. Only the log of the resolver is written.

    `recipe` is the recipe of the request; it is used to suggest sets that work. The locks of one run may share `asked`,
    so that no index is queried twice.
    Raises the errors of `cannery.lock.io.resolve`, `FindingsError` for a lock that does not meet `request`, and
    `UnableError` if the cache cannot be written.
    """
    place = f"profile {request.profile}, Python {request.python}, {request.arch}"
    from cannery.lock.io import indexes, resolve  # noqa: PLC0415 - network libraries, not needed with a current lock

    log = store.cache / "log" / f"lock-{request.profile}-py{request.python}-{request.arch}.log"
    cache = store.cache.absolute()
    job = resolve.Job(request, catalog.indexes, store.settings(), store.env, cache, asked or indexes.Asked())
    try:
        lock = resolve.resolve(job, log, lambda error, job, try_: store.explain(error, job, catalog, recipe, try_))
    except OSError as error:
        path = Path(error.filename) if isinstance(error.filename, str) else store.cache
        is_cache = path.is_relative_to(store.cache) or store.cache.is_relative_to(path)
        if not is_cache or not is_of_files(error):
            raise
        raise unwritable(error, path) from error
    if problems := lock_problems(lock, request, frozenset(catalog.indexes)):
        wrong_answer = FindingsError(f"the resolver's answer is not what was asked: {_first(problems)}", where=place)
        wrong_answer.log = str(log)
        raise wrong_answer
    return with_published(lock, catalog.hashes)


def _first(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(problems[:SHOWN]) + more


def bind(store: LockStore, catalog: Catalog, name: str, options: Options) -> Recipe:
    """Select the recipe. Ad-hoc pins may name any package in the profile's committed lock."""
    if not options.pins:
        return select(catalog, name, options, store.arch)
    plain = select(catalog, name, replace(options, pins=()), store.arch)
    lock = read_lock(store, lock_path(store, lock_request(plain)))
    return select(catalog, name, options, store.arch, [p.name for p in lock.packages] if lock else [])


def _committed(store: LockStore, catalog: Catalog, request: LockRequest, hint: str) -> Lock:
    """Return the committed lock of `request`. Raises `FindingsError` if it is missing or does not meet the request."""
    path = lock_path(store, request)
    lock = read_lock(store, path)
    if lock is None:
        whose = "of the build tools " if request.profile == TOOLS_PROFILE else ""
        raise FindingsError(f"the lock {whose}is missing", where=_shown(store, path), hint=hint)
    problems = lock_problems(lock, request, frozenset(catalog.indexes))
    if problems:
        state = "is stale" if lock.inputs != request.digest else "was edited by hand"
        raise FindingsError(f"the lock {state}: {_first(problems)}", where=_shown(store, path), hint=hint)
    return lock


def current_lock(store: LockStore, catalog: Catalog, recipe: Recipe, arch: Arch) -> Lock:
    """Return the lock of `recipe` for `arch`: the committed lock, or a new one for an ad-hoc set.

    Raises `FindingsError` if the committed lock is missing, stale or edited, and the errors of `resolve_lock`.
    """
    recipe = with_arch(recipe, arch)
    request = lock_request(recipe)
    if recipe.is_standard:
        return _committed(store, catalog, request, f"build.py lock {recipe.name}{_python_option(recipe)}")
    path = lock_path(store, request, standard=False)
    # The request for another CANN may equal the committed one. A cached lock that does not meet it is replaced.
    for place in (lock_path(store, request), path):
        lock = present_lock(store, place)
        if lock is not None and not lock_problems(lock, request, frozenset(catalog.indexes)):
            return lock
    store.say(f"resolving {recipe.name} for {arch} with {recipe.changes or f'CANN {recipe.target.cann}'} …")
    lock = resolve_lock(store, catalog, request, recipe=recipe)
    write_lock(store, path, lock)
    return lock


def _python_option(recipe: Recipe) -> str:
    """Return the option of `lock` for a Python that is not the profile's, or ""."""
    target, own = recipe.target, recipe.profile.target
    return "" if target.python in (own.python, *own.pythons) else f" --python {target.python}"


def read_locks(store: LockStore, catalog: Catalog, recipe: Recipe) -> LockSet:
    """Read every lock that a plan of `recipe` needs: those of its arches, and the lock of the build tools.

    For an ad-hoc set, only the lock of the target's arch is made. Raises `UsageError` for a file that is not a lock,
    and for an ad-hoc set the errors of `resolve_lock`, except `FindingsError`.
    """
    locks: dict[Arch, Lock] = {}
    tools: Lock | None = None
    found: list[Finding] = []
    for arch in _arches(recipe) if recipe.is_standard else (recipe.target.arch,):
        try:
            locks[arch] = current_lock(store, catalog, recipe, arch)
        except FindingsError as error:
            found.append(_finding(error))
    try:
        option = _python_option(recipe)
        hint = f"build.py lock {recipe.name}{option}" if option else "build.py lock"
        tools = tools_lock(store, catalog, recipe.target.python, hint)
    except FindingsError as error:
        found.append(_finding(error))
    return LockSet(locks, tools, tuple(found))


def _finding(error: FindingsError) -> Finding:
    what = f"{error.where}: {error.what}" if error.where else error.what
    what += f"\n  log: {error.log}" if error.log else ""
    return Finding(Severity.ERROR, LOCK, what, fix=error.hint)


def all_locks(store: LockStore, catalog: Catalog, recipe: Recipe, known: Mapping[Arch, Lock]) -> dict[Arch, Lock]:
    """Return the locks of every arch of the profile, and of the recipe's arch: from `known` or `current_lock`."""
    return {arch: known.get(arch) or current_lock(store, catalog, recipe, arch) for arch in _arches(recipe)}


def _arches(recipe: Recipe) -> tuple[Arch, ...]:
    return tuple(dict.fromkeys([recipe.target.arch, *recipe.profile.target.arch]))


def tools_lock(store: LockStore, catalog: Catalog, python: str, hint: str = "build.py lock") -> Lock:
    """Return the lock of the build tools for this host's arch. Raises like `current_lock`."""
    return _committed(store, catalog, tools_request(catalog, python, store.arch), hint)


def with_kept_files(lock: Lock, catalog: Catalog, cache: Path) -> Lock:
    """Return `lock` with the hashes that an earlier build has cached, or with published hashes."""
    if lock.complete:
        return lock
    path = _kept(lock, cache)
    try:
        return parse_lock(path.read_text(encoding="utf-8"), path.name)
    except (OSError, ValueError, UsageError):  # no file, or a damaged one
        return with_published(lock, catalog.hashes)


def with_found_files(
    lock: Lock, catalog: Catalog, settings: Callable[[], PipSettings], cache: Path, say: Callable[[str], None]
) -> tuple[Lock, tuple[Answer, ...]]:
    """Return `lock` completed from its indexes and the user's folders, and the answers of all places.

    Prints each hash that was found. `lock` is the result of `with_kept_files`.
    """
    missing = missing_packages(lock)
    if not missing:
        return lock, ()
    from cannery.lock.io.indexes import (  # noqa: PLC0415 - network libraries
        PROBE,
        ask_all,
        places_of,
        sha256_of,
    )

    pip = settings()
    asked = [(place, p.name) for p in missing for place in places_of(p.index, catalog.indexes, pip)]
    answers = ask_all(asked, pip, PROBE)
    found: dict[str, LockedPackage] = {}
    # For each package, the best file of the first place that has one with a hash.
    for package, answer in ((package, answer) for package in missing for answer in answers):
        if answer.project != package.name or package.name in found:
            continue
        files = [file for file in answer.files if Version(file.version) == Version(package.version)]
        file = best_wheel(files, lock.python, lock.arch)
        if file and (sha256 := sha256_of(file, cache)):
            found[package.name] = replace(package, file=file.file, sha256=sha256, size=file.size)
    for one in found.values():
        say(f"{one.name} {one.version}: {one.file}, sha256:{one.sha256}, taken {published_at(one, catalog.indexes)}")
    completed = replace(lock, packages=tuple(found.get(package.name, package) for package in lock.packages))
    if found:
        say("these hashes count for this build; `lock` writes them into images/locks")
        write_atomic(_kept(lock, cache), format_lock(completed))
    return completed, answers


def incomplete_error(lock: Lock, catalog: Catalog, answers: Sequence[Answer], *, locked: bool) -> CanneryError:
    """Return the error of a build that needs unknown hashes. With `locked`, no index was queried."""
    missing = missing_packages(lock)
    names = ", ".join(f"{package.name} {package.version}" for package in missing)
    lines = [f"{p.name} {p.version} is published {published_at(p, catalog.indexes)}" for p in missing]
    mirrors = public_mirrors({package.index for package in missing}, catalog.indexes)
    own = {(package.name, package.index): package for package in missing}
    asked = [(one, own[key]) for one in answers if (key := (one.project, one.place.index)) in own]
    lines += dict.fromkeys(f"not reached: {one}" for one, _package in asked if not one.reached)
    lines += [f"{one.place} has no wheel of {p.name} {p.version} for this target" for one, p in asked if one.reached]
    lock_it = f"build.py lock {lock.profile}"
    kind: type[CanneryError] = FindingsError
    if locked:
        way = f"leave out --locked where that index can be reached, or run {lock_it}"
    elif any(not one.reached for one, _package in asked):
        kind = NetworkError
        way = "run this on a host that reaches the index: it takes the hash from there"
        way += f"; {lock_it} there writes it into the lock"
    else:
        way, mirrors = "name a folder that has the wheel with --wheelhouse", ""
    return kind(
        "\n  ".join([f"the lock for {lock.arch} has no hash of {names}", *lines]),
        where=f"profile {lock.profile}, Python {lock.python}, {lock.arch}",
        hint="; ".join(filter(None, (way, mirrors))),
    )


def _kept(lock: Lock, cache: Path) -> Path:
    """Return the cache file of a completed lock. Its name depends on the incomplete lock."""
    names = [[p.name, p.version, p.index] for p in missing_packages(lock)]
    digest = sha256_bytes(f"{lock.inputs} {lock.python} {lock.arch} {names}".encode())
    return cache / "locks" / "complete" / f"{lock.profile}-{digest[:16]}.txt"
