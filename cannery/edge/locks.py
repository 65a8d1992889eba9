"""Lock files: the committed ones in images/locks, and those of ad-hoc pins in the cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.core.errors import FindingsError
from cannery.core.lock_text import format_lock, parse_lock
from cannery.core.recipe import lock_request, select, tools_request, with_arch
from cannery.edge.files import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.core.catalog import Catalog
    from cannery.core.lock import Lock, LockRequest
    from cannery.core.recipe import Options, Recipe
    from cannery.core.words import Arch
    from cannery.edge.context import Context


def lock_path(context: Context, request: LockRequest, *, standard: bool = True) -> Path:
    """Return where the lock of `request` stands: committed, or by digest in the cache for an ad-hoc set."""
    if not standard:
        return context.cache / "locks" / f"{request.profile}-{request.digest[:16]}-{request.arch}.txt"
    return context.root / "images/locks" / request.profile / f"py{request.python}-{request.arch}.txt"


def read_lock(context: Context, path: Path) -> Lock | None:
    """Return the lock at `path`, or None when there is none."""
    if not path.is_file():
        return None
    name = str(path.relative_to(context.root)) if path.is_relative_to(context.root) else path.name
    return parse_lock(path.read_text(encoding="utf-8"), name)


def make_lock(context: Context, catalog: Catalog, request: LockRequest, path: Path) -> tuple[Lock, bool]:
    """Resolve `request` and write its lock; return it and whether the file changed."""
    from cannery.edge.resolve import resolve  # noqa: PLC0415 - brings network libraries that a current lock spares

    log = context.cache / "log" / f"lock-{request.profile}-py{request.python}-{request.arch}.log"
    deny = tuple(d.pattern for d in catalog.compatibility.deny)
    lock = resolve(request, catalog.indexes, context.pip, env=context.env, cache=context.cache, log=log, deny=deny)
    return lock, write_atomic(path, format_lock(lock))


def bind(context: Context, catalog: Catalog, name: str, options: Options) -> Recipe:
    """Select the recipe; ad-hoc pins may name any package that the profile's committed locks hold."""
    if not options.pins:
        return select(catalog, name, options, context.arch)
    plain = select(catalog, name, replace(options, pins=()), context.arch)
    lock = read_lock(context, lock_path(context, lock_request(plain)))
    return select(catalog, name, options, context.arch, [p.name for p in lock.packages] if lock else [])


def current_lock(context: Context, catalog: Catalog, recipe: Recipe, arch: Arch) -> Lock:
    """Return the lock of `recipe` for `arch`: the committed one, or one resolved now for an ad-hoc set.

    Raises `FindingsError` when the committed lock is missing or was made from other inputs.
    """
    request = lock_request(with_arch(recipe, arch))
    path = lock_path(context, request, standard=recipe.is_standard)
    lock = read_lock(context, path)
    if lock is not None and lock.inputs == request.digest:
        return lock
    if recipe.is_standard:
        what = "is missing" if lock is None else "is stale: the profile, its components or its base have changed since"
        raise FindingsError(f"the lock {what}", where=f"{recipe.name}, {arch}", hint=f"make lock PROFILE={recipe.name}")
    context.say(f"resolving {recipe.name} for {arch} with {', '.join(recipe.pins) or 'its pins'} …")
    return make_lock(context, catalog, request, path)[0]


def all_locks(context: Context, catalog: Catalog, recipe: Recipe) -> dict[Arch, Lock]:
    """Return the current locks of every arch that the profile is made for, and of the recipe's own."""
    wanted = dict.fromkeys([recipe.target.arch, *recipe.profile.target.arch])
    return {arch: current_lock(context, catalog, recipe, arch) for arch in wanted}


def tools_lock(context: Context, catalog: Catalog, python: str) -> Lock:
    """Return the lock of the build tools for this host's arch."""
    request = tools_request(catalog, python, context.arch)
    lock = read_lock(context, lock_path(context, request))
    if lock is None or lock.inputs != request.digest:
        raise FindingsError("the lock of the build tools is missing or stale", hint="make lock")
    return lock
