"""Lock files: the committed ones in images/locks, and those of ad-hoc pins in the cache."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.compat.findings import Finding
from cannery.errors import FindingsError, UsageError
from cannery.lock.check import contradictions, is_for, lock_problems
from cannery.lock.io.leftovers import remove_stale
from cannery.lock.request import TOOLS_PROFILE, lock_request, tools_request
from cannery.lock.text import REMAKE, format_lock, parse_lock
from cannery.recipe.recipe import with_arch
from cannery.recipe.select import select
from cannery.util.io.files import write_atomic
from cannery.util.io.write_errors import is_of_files, unwritable
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.lock.io.indexes import Asked
    from cannery.lock.lock import Lock, LockRequest
    from cannery.recipe.recipe import Options, Recipe
    from cannery.vocab import Arch

# The code of the finding that a lock is missing or not to be used.
LOCK = "lock"
# Problems that a message names; one wrong header alone can bring a hundred.
SHOWN = 3


@dataclass(frozen=True)
class LockSet:
    """The locks of a recipe that are there and can be used, the build tools', and an error for each that cannot."""

    locks: Mapping[Arch, Lock]
    tools: Lock | None
    findings: tuple[Finding, ...]


def lock_path(context: Context, request: LockRequest, *, standard: bool = True) -> Path:
    """Return where the lock of `request` is read: where `lock_target` says, or else among the locks of images/."""
    target = lock_target(context, request, standard=standard)
    if not standard or target.is_file():
        return target
    return context.root / "images/locks" / request.profile / target.name


def lock_target(context: Context, request: LockRequest, *, standard: bool = True) -> Path:
    """Return where the lock of `request` is written: in the folder of locks, or by digest in the cache when ad hoc."""
    if not standard:
        return context.cache / "locks" / f"{request.profile}-{request.digest[:16]}-{request.arch}.txt"
    return context.locks / request.profile / f"py{request.python}-{request.arch}.txt"


def read_lock(context: Context, path: Path) -> Lock | None:
    """Return the lock at `path`, or None when there is none. Raises `UsageError` for a file that is no lock."""
    if not path.is_file():
        return None
    name = _shown(context, path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"byte {error.start} is no UTF-8, so this is no lock", where=name, hint=REMAKE) from error
    return parse_lock(text, name)


def present_lock(context: Context, path: Path) -> Lock | None:
    """Return the lock at `path`, stale or not; None when there is none, or when the file is no lock."""
    try:
        return read_lock(context, path)
    except UsageError:
        return None


def _shown(context: Context, path: Path) -> str:
    shown = context.shown(path)
    return path.name if shown.is_absolute() else str(shown)


def make_lock(  # noqa: PLR0913 - those of `resolve_lock`, and where to write
    context: Context,
    catalog: Catalog,
    request: LockRequest,
    path: Path,
    *,
    recipe: Recipe | None = None,
    asked: Asked | None = None,
) -> tuple[Lock, bool]:
    """Resolve `request` and write its lock to `path` in the cache; return it and whether the file changed.

    Raises as `resolve_lock` does.
    """
    lock = resolve_lock(context, catalog, request, recipe=recipe, asked=asked)
    return lock, keep_lock(path, lock)


def keep_lock(path: Path, lock: Lock) -> bool:
    """Write a lock into the cache, where its name says what it answers; return whether the file changed.

    Raises `UnableError` when it cannot be written.
    """
    try:
        return write_atomic(path, format_lock(lock))
    except OSError as error:
        raise unwritable(error, path) from error


def resolve_lock(  # noqa: PLR0913 - what a resolution depends on, and what it is for
    context: Context,
    catalog: Catalog,
    request: LockRequest,
    command: str = "lock",
    *,
    recipe: Recipe | None = None,
    asked: Asked | None = None,
) -> Lock:
    """Resolve `request`, write nothing but the resolver's output to a log named after `command`.

    `recipe` is what the request was made from, for sets near it when it cannot be met; `asked` may be shared by the
    locks of one run, so that no index is asked twice.
    Raises what `cannery.lock.io.resolve` raises, `FindingsError` for an answer that is none to `request`, `UnableError`
    when the cache cannot be written.
    """
    place = f"profile {request.profile}, Python {request.python}, {request.arch}"
    if wrong := contradictions(request):
        hint = "take it out of components or of excludes"
        raise FindingsError("; ".join(wrong), where=place, hint=hint)
    from cannery.lock.io.resolve import resolve  # noqa: PLC0415 - brings network libraries that a current lock spares

    log = context.cache / "log" / f"{command}-{request.profile}-py{request.python}-{request.arch}.log"
    deny = tuple(d.pattern for d in catalog.compatibility.deny)
    try:
        remove_stale(context.cache, time.time())
        lock = resolve(
            request,
            catalog.indexes,
            context.pip,
            env=context.env,
            cache=context.cache,
            log=log,
            deny=deny,
            asked=asked,
            catalog=catalog,
            recipe=recipe,
        )
    except OSError as error:
        path = Path(error.filename) if isinstance(error.filename, str) else context.cache
        is_cache = path.is_relative_to(context.cache) or context.cache.is_relative_to(path)
        if not is_cache or not is_of_files(error):
            raise
        raise unwritable(error, path) from error
    problems = lock_problems(lock, request, catalog.indexes)
    if problems:
        raise FindingsError(
            f"the resolver's answer is not what was asked: {_first(problems)}",
            where=place,
            hint=f"the resolver's full output: {log}",
        )
    return lock


def _first(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(problems[:SHOWN]) + more


def bind(context: Context, catalog: Catalog, name: str, options: Options) -> Recipe:
    """Select the recipe; ad-hoc pins may name any package that the profile's committed locks hold."""
    if not options.pins:
        return select(catalog, name, options, context.arch)
    plain = select(catalog, name, replace(options, pins=()), context.arch)
    lock = read_lock(context, lock_path(context, lock_request(plain)))
    return select(catalog, name, options, context.arch, [p.name for p in lock.packages] if lock else [])


def _committed(context: Context, catalog: Catalog, request: LockRequest, hint: str) -> Lock:
    """Return the committed lock of `request`; raise `FindingsError` when it is missing or no answer to it."""
    path = lock_path(context, request)
    lock = read_lock(context, path)
    if lock is None:
        whose = "of the build tools " if request.profile == TOOLS_PROFILE else ""
        raise FindingsError(f"the lock {whose}is missing", where=_shown(context, path), hint=hint)
    problems = lock_problems(lock, request, catalog.indexes)
    if problems:
        is_stale = lock.inputs != request.digest and is_for(lock, request)
        state = "is stale" if is_stale else "was copied, merged or edited by hand"
        raise FindingsError(f"the lock {state}: {_first(problems)}", where=_shown(context, path), hint=hint)
    return lock


def _remembered(context: Context, catalog: Catalog, request: LockRequest, path: Path) -> Lock | None:
    """Return the lock of an ad-hoc set when it still answers; one that does not is made again, nobody keeps it."""
    lock = present_lock(context, path)
    return lock if lock is not None and not lock_problems(lock, request, catalog.indexes) else None


def current_lock(context: Context, catalog: Catalog, recipe: Recipe, arch: Arch) -> Lock:
    """Return the lock of `recipe` for `arch`: the committed one, or one resolved now for an ad-hoc set.

    Raises `FindingsError` when the committed lock is missing, was made from other inputs or holds what was not asked.
    """
    request = lock_request(with_arch(recipe, arch))
    if recipe.is_standard:
        return _committed(context, catalog, request, f"make lock PROFILE={recipe.name}{_python_option(recipe)}")
    path = lock_path(context, request, standard=False)
    # Another CANN may want just what the profile's own does.
    for place in (lock_path(context, request), path):
        lock = _remembered(context, catalog, request, place)
        if lock is not None:
            return lock
    context.say(f"resolving {recipe.name} for {arch} with {recipe.changes or f'CANN {recipe.target.cann}'} …")
    return make_lock(context, catalog, request, path, recipe=with_arch(recipe, arch))[0]


def _python_option(recipe: Recipe) -> str:
    """Return what a command that makes locks has to say beside the profile: a Python that is not the profile's."""
    target, own = recipe.target, recipe.profile.target
    return "" if target.python in (own.python, *own.pythons) else f" PYTHON={target.python}"


def read_locks(context: Context, catalog: Catalog, recipe: Recipe) -> LockSet:
    """Read every lock that a plan of `recipe` needs: those of its arches, and the build tools' for this host.

    Of an ad-hoc set only the target's own lock is made here: others would be resolved for nothing but a check. Raises
    `UsageError` for a file that is no lock, and for an ad-hoc set what `resolve_lock` raises but `FindingsError`.
    """
    locks: dict[Arch, Lock] = {}
    tools: Lock | None = None
    found: list[Finding] = []
    for arch in _arches(recipe) if recipe.is_standard else (recipe.target.arch,):
        try:
            locks[arch] = current_lock(context, catalog, recipe, arch)
        except FindingsError as error:
            found.append(_finding(error))
    try:
        option = _python_option(recipe)
        hint = f"make lock PROFILE={recipe.name}{option}" if option else "make lock"
        tools = tools_lock(context, catalog, recipe.target.python, hint)
    except FindingsError as error:
        found.append(_finding(error))
    return LockSet(locks, tools, tuple(found))


def _finding(error: FindingsError) -> Finding:
    what = f"{error.where}: {error.what}" if error.where else error.what
    return Finding(Severity.ERROR, LOCK, what, fix=error.hint)


def all_locks(context: Context, catalog: Catalog, recipe: Recipe, known: Mapping[Arch, Lock]) -> dict[Arch, Lock]:
    """Return the locks of every arch of the profile, and of the recipe's own: `known`, else as `current_lock`."""
    return {arch: known.get(arch) or current_lock(context, catalog, recipe, arch) for arch in _arches(recipe)}


def _arches(recipe: Recipe) -> tuple[Arch, ...]:
    return tuple(dict.fromkeys([recipe.target.arch, *recipe.profile.target.arch]))


def tools_lock(context: Context, catalog: Catalog, python: str, hint: str = "make lock") -> Lock:
    """Return the lock of the build tools for this host's arch. Raises as `current_lock` does."""
    return _committed(context, catalog, tools_request(catalog, python, context.arch), hint)
