"""`lock`: resolve version sets into lock files, or with `--upgrade` let packages of one profile be newer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cannery.commands.versions import options_of
from cannery.core.errors import CanneryError, ExitCode, UsageError
from cannery.core.lock_request import lock_request, tools_request
from cannery.core.recipe import find_profile, with_arch
from cannery.core.wishes import parse_wishes
from cannery.core.words import Arch
from cannery.edge.indexes import Asked
from cannery.edge.lock_jobs import raise_failures, run_jobs
from cannery.edge.locks import bind, lock_path, make_lock
from cannery.edge.upgrade import upgrade

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from cannery.core.catalog import Catalog
    from cannery.core.lock import Lock, LockRequest
    from cannery.core.recipe import Recipe
    from cannery.edge.context import Context


@dataclass(frozen=True)
class Wanted:
    """A lock to make, its file, and the recipe that it is for (None: the build tools').

    `standard` when the file is the committed one.
    """

    request: LockRequest
    path: Path
    recipe: Recipe | None = None
    standard: bool = True


def lock(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Resolve profiles (all when none is named) for every Python and arch, and the build tools; write images/locks.

    What fails does not keep the others from being made and written; all failures are said at the end.
    """
    if arguments.upgrade:
        return _upgrade(arguments, context)
    catalog = context.catalog()
    for name in arguments.profile:
        find_profile(catalog, name)
    found = tuple(_wanted(arguments, context, catalog))
    failures = [one for one in found if isinstance(one, CanneryError)]
    wanted = [one for one in found if isinstance(one, Wanted)]
    _ = context.pip  # asked once, here, and not by every thread
    make = partial(make_lock, context, catalog, asked=Asked())
    results = run_jobs([partial(make, one.request, one.path, recipe=one.recipe) for one in wanted])
    for one, result in zip(wanted, results, strict=True):
        if isinstance(result, CanneryError):
            failures.append(result)
        else:
            _print_made(context, one, result)
    raise_failures(failures, len(found))
    return ExitCode.DONE


def _wanted(arguments: argparse.Namespace, context: Context, catalog: Catalog) -> Iterator[Wanted | CanneryError]:
    """Give the locks to make, or for a target that cannot be, why."""
    for name in arguments.profile or catalog.profiles:
        target = find_profile(catalog, name).target
        for python in (arguments.python,) if arguments.python else (target.python, *target.pythons):
            try:
                recipe = bind(context, catalog, name, replace(options_of(arguments), python=python))
            except CanneryError as error:
                yield error
                continue
            for arch in (recipe.target.arch,) if arguments.arch else target.arch:
                mine = with_arch(recipe, arch)
                request = lock_request(mine)
                path = lock_path(context, request, standard=recipe.is_standard)
                yield Wanted(request, path, mine, standard=recipe.is_standard)
    pythons = {v for p in catalog.profiles.values() for v in (p.target.python, *p.target.pythons)}
    for python in sorted(pythons | ({arguments.python} if arguments.python else set())):
        for arch in Arch:
            request = tools_request(catalog, python, arch)
            yield Wanted(request, lock_path(context, request))


def _print_made(context: Context, wanted: Wanted, result: tuple[Lock, bool]) -> None:
    made, changed = result
    size = sum(p.size for p in made.packages) / 1e6
    missing = ", ".join(f"{p.name} (index {p.index} not reached)" for p in made.packages if not p.complete)
    state = f", INCOMPLETE: {missing}" if missing else ""
    shown = context.shown(wanted.path)
    print(f"{shown}: {len(made.packages)} packages, {size:.0f} MB{state}{'' if changed else ', unchanged'}", flush=True)
    if not wanted.standard:
        print(f"  for this set of pins alone; to keep them, write them into images/profiles/{made.profile}.yaml")


def _upgrade(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Edit one profile so that packages may be newer, and make all of its locks anew; say what changed."""
    wishes = parse_wishes(word for text in arguments.upgrade for word in text.split())
    options = options_of(arguments)
    if len(arguments.profile) != 1:
        raise UsageError("--upgrade edits one profile: name it", hint="build.py lock PROFILE --upgrade NAME")
    given = [name for name, value in asdict(options).items() if value]
    if given:
        what = f"--upgrade makes every lock of the profile, as it is: leave {', '.join(given).upper()} out"
        raise UsageError(what, hint="PIN tries another version without an edit of the profile")
    catalog = context.catalog()
    find_profile(catalog, arguments.profile[0])
    try:
        done = upgrade(context, catalog, arguments.profile[0], wishes, arguments.today)
    except CanneryError as error:
        if error.code is not ExitCode.USAGE:
            context.say("nothing is written: the profile and its locks are as they were")
        raise
    for note in done.notes:
        print(note)
    if not done.written:
        print("nothing newer fits, so nothing is written" if done.edits else "nothing to change")
        return ExitCode.DONE
    print(f"{context.shown(done.file)}:")
    for edit in done.edits:
        print(f"  {edit}")
    for path, change in done.changes:
        print(f"{context.shown(path)}: {change or 'made anew'}")
        for moved in change.moved if change else ():
            print(f"  {moved}")
    return ExitCode.DONE


COMMANDS = {"lock": lock}
