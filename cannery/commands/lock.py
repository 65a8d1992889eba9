"""`lock` resolves version sets into lock files. `outdated` reports newer versions that work together."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cannery.commands import options_of, print_json, target_words
from cannery.compat.io.stock import legend, look, table
from cannery.errors import CanneryError, ExitCode, FindingsError, NetworkError, UnableError, UsageError
from cannery.lock.io.indexes import Asked
from cannery.lock.io.store import bind, current_lock, lock_path, lock_target, present_lock, resolve_lock, write_lock
from cannery.lock.lock import with_known_files
from cannery.lock.request import lock_request, tools_request
from cannery.pipeline import lock_store
from cannery.recipe.recipe import STANDIN, with_arch
from cannery.recipe.select import find_profile
from cannery.util.io.process import signals_held
from cannery.vocab import Arch

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.lock.io.store import LockStore
    from cannery.lock.lock import Lock
    from cannery.lock.request import LockRequest
    from cannery.recipe.recipe import Options, Recipe


T = TypeVar("T")
# Parallel resolutions. Each is a process of uv that mostly waits for an index, so threads are enough.
WORKERS = 4
# The most changed packages that are printed for a lock.
SHOWN = 20
# Seconds between checks whether interrupted processes have ended, and until they are killed.
TICK, GRACE = 0.1, 2.0


@dataclass(frozen=True)
class Wanted:
    """A lock to make, its file, and its recipe (None for build tools). `standard`: the file is the committed one."""

    request: LockRequest
    path: Path
    recipe: Recipe | None = None
    standard: bool = True


def lock(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Resolve profiles (default: all) for every Python and arch, and the build tools, and write images/locks.

    After a failure, the other locks are still made and written. All failures are reported at the end.
    """
    options = options_of(arguments)
    catalog = context.catalog()
    for name in arguments.profile:
        find_profile(catalog, name)
    store = lock_store(context)
    found = tuple(_wanted_locks(arguments, options, store, catalog))
    failures = [one for one in found if isinstance(one, CanneryError)]
    wanted = [one for one in found if isinstance(one, Wanted)]
    for file, day in dict.fromkeys((one.recipe.file, last_day(one.request)) for one in wanted if one.recipe):
        if day >= arguments.today:
            context.say(f"warning: {file}: {day}, up to which uploads count, is not over: a lock made later may differ")
    _ = context.pip  # read once, before the threads start
    resolve = partial(resolve_lock, store, catalog, asked=Asked())
    jobs = [partial(resolve, one.request, recipe=one.recipe) for one in wanted]
    made = 0  # locks of profiles, without those of build tools
    with begun(jobs) as futures:
        for one, future in zip(wanted, futures, strict=True):
            try:
                _write(store, one, future.result())
                made += one.recipe is not None
            except CanneryError as error:
                failures.append(error)
    _raise_failures(failures, made + len(failures))
    return ExitCode.DONE


def last_day(request: LockRequest) -> str:
    """Return the latest date bound of a request."""
    return max((request.exclude_newer, *dict(request.package_dates).values()))


@contextmanager
def begun(jobs: Sequence[Callable[[], T]]) -> Iterator[list[Future[T]]]:
    """Run `jobs`, a few at a time, and yield their futures in order.

    After an interrupt, no further job starts, and the processes of running jobs are ended.
    """
    pool = ThreadPoolExecutor(WORKERS)
    futures = [pool.submit(job) for job in jobs]
    try:
        yield futures
    except BaseException:
        with signals_held():
            pool.shutdown(wait=False, cancel_futures=True)
            start = time.monotonic()
            while any(future.running() for future in futures):
                # Repeated, because a job that was querying an index may start another process.
                _end_children(signal.SIGTERM if time.monotonic() - start < GRACE else signal.SIGKILL)
                time.sleep(TICK)
        raise
    finally:
        pool.shutdown(cancel_futures=True)  # another interrupt may come before signals are delayed


def _end_children(number: signal.Signals) -> None:
    """Signal the child processes: unlike Ctrl-C in a terminal, a SIGTERM to this process does not reach them."""
    for listing in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for child in listing.read_text(encoding="ascii").split():
                os.kill(int(child), number)


def _raise_failures(failures: Sequence[CanneryError], count: int) -> None:
    """Raise one error for all `failures` of `count` locks, with the worst exit code, if there are any."""
    if not failures:
        return
    worst = max(failures, key=lambda failure: failure.code)
    if len(failures) == 1 and count == 1:
        raise worst
    kinds = {kind.code: kind for kind in (UsageError, FindingsError, UnableError, NetworkError)}
    texts = "\n".join(dict.fromkeys(str(failure) for failure in failures))  # a full disk is reported once
    raise kinds.get(worst.code, UsageError)(f"{len(failures)} of {count} locks could not be made\n{texts}")


def _wanted_locks(
    arguments: argparse.Namespace, given: Options, store: LockStore, catalog: Catalog
) -> Iterator[Wanted | CanneryError]:
    """Yield the locks to make, or the error for a target that cannot exist."""
    if not arguments.profile:
        yield from (error for file, error in catalog.broken.items() if file.startswith("profiles/"))
    for name in dict.fromkeys(arguments.profile) or catalog.profiles:
        target = find_profile(catalog, name).target
        # A profile may list its own Python, or an arch, twice.
        for python in dict.fromkeys((arguments.python,) if arguments.python else (target.python, *target.pythons)):
            yield from _wanted_on(store, catalog, name, replace(given, python=python))
    pythons = {v for p in catalog.profiles.values() for v in (p.target.python, *p.target.pythons)}
    for python in sorted(pythons | ({arguments.python} if arguments.python else set())):
        for arch in Arch:
            request = tools_request(catalog, python, arch)
            yield Wanted(request, lock_target(store, request))


def _wanted_on(store: LockStore, catalog: Catalog, name: str, options: Options) -> Iterator[Wanted | CanneryError]:
    """Yield the locks of one Python for the profile's arches, and also for a stand-in with substitutes."""
    try:
        recipe = bind(store, catalog, name, options)
    except CanneryError as error:
        yield error
        return
    recipes = [recipe]
    if recipe.profile.substitutes and not recipe.substitutes and recipe.target.python == catalog.standin.python:
        recipes.append(bind(store, catalog, name, replace(options, base=STANDIN)))
    for one in recipes:
        for arch in dict.fromkeys((one.target.arch,) if options.arch else one.profile.target.arch):
            mine = with_arch(one, arch)
            request = lock_request(mine)
            path = lock_target(store, request, standard=one.is_standard)
            yield Wanted(request, path, mine, standard=one.is_standard)


def _write(store: LockStore, wanted: Wanted, made: Lock) -> None:
    """Write a lock, and print it with its changed packages. An unchanged lock of build tools is not printed."""
    before = present_lock(store, lock_path(store, wanted.request)) if wanted.standard else None
    if wanted.standard:
        made = with_known_files(made, before)
    changed = write_lock(store, wanted.path, made)
    if wanted.recipe is None and not changed:
        return
    size = sum(p.size for p in made.packages) / 1e6
    missing = ", ".join(f"{p.name} (index {p.index} not reached)" for p in made.packages if not p.complete)
    state = f", INCOMPLETE: {missing}" if missing else ""
    published = ", ".join(p.name for p in made.packages if p.complete and not p.size)
    state += f"; not downloaded, hash taken from images/hashes.yaml: {published}" if published else ""
    shown = store.shown(wanted.path)
    print(f"{shown}: {len(made.packages)} packages, {size:.0f} MB{state}{'' if changed else ', unchanged'}", flush=True)
    if before and changed:
        from cannery.report.difference import difference, of_lock

        changes = difference(of_lock("", before), of_lock("", made)).changes
        found = [one for one in changes if one.section == "packages"]
        for one in found[:SHOWN]:
            print(f"  {one}")
        if len(found) > SHOWN:
            print(f"  and {len(found) - SHOWN} more")
        for one in (one for one in changes if one.section == "files"):
            store.say(f"warning: the index has replaced {one.name}: its sha256 was {one.old}… and is {one.new}…")
    if not wanted.standard:
        print(f"  for this set of pins alone; to keep them, write them into the file of profile {made.profile}")


def outdated(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print newer versions than in the target's lock. The exit code is 3 if the lock is missing or stale.

    Raises `NetworkError` if no index answers.
    """
    catalog = context.catalog()
    store = lock_store(context)
    recipe = bind(store, catalog, arguments.profile, options_of(arguments))
    lock = current_lock(store, catalog, recipe, recipe.target.arch)
    resolve = partial(resolve_lock, store, catalog, asked=Asked())
    packages, troubles, why = look(store.settings(), catalog, recipe, lock, resolve)
    newer = [one for one in packages if one.is_newer]
    if context.is_json:
        rows = [asdict(one) for one in packages]
        print_json({"target": str(recipe.target), "packages": rows, "troubles": troubles})
        return ExitCode.DONE
    print(*table(packages), sep="\n")
    for trouble in troubles:
        context.say(f"not asked: {trouble}")
    for line in legend(packages, why):
        print(line)
    print(f"{recipe.name} for {recipe.target}: {len(newer)} of {len(packages)} can be newer")
    if newer:
        where = f"`version` into {recipe.file}, with a later `exclude_newer`"
        print(f"to take them, write each as {where}, then run `build.py lock {recipe.name}`")
    if held := next((one for one in packages if one.is_held), None):
        command = f"build.py check {recipe.name}{target_words(arguments)} --pin {held.name}=={held.newest}"
        print(f"to see why the newest one does not fit: `{command}`")
    return ExitCode.DONE


COMMANDS = {"lock": lock, "outdated": outdated}
