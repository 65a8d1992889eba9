"""`outdated`: what newer releases there are, and which of them fit together. It writes no lock."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from cannery.commands import options_of
from cannery.errors import ExitCode, NetworkError
from cannery.lock.io.store import bind, current_lock
from cannery.pipeline import lock_store
from cannery.upgrade.io.outdated import look
from cannery.upgrade.outdated import table

if TYPE_CHECKING:
    import argparse

    from cannery.context import Context


def outdated(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print what is newer than the lock of the target has it. A lock that is missing or stale is exit 3.

    Raises `NetworkError` where no index answers.
    """
    catalog = context.catalog()
    store = lock_store(context)
    recipe = bind(store, catalog, arguments.profile, options_of(arguments))
    lock = current_lock(store, catalog, recipe, recipe.target.arch)
    sources = context.sources(catalog) if recipe.sources else None
    report = look(store.settings(), catalog, recipe, lock, sources)
    if report.troubles and not any(one.newest for one in report.packages):
        raise NetworkError("; ".join(report.troubles))
    newer = [one for one in report.packages if one.is_newer]
    if context.is_json:
        value = {"target": str(recipe.target), **asdict(report)}
        print(json.dumps(value, indent=2, ensure_ascii=False))
        return ExitCode.DONE
    print(*table(report.packages), *report.sources, sep="\n")
    for trouble in report.troubles:
        context.say(f"not asked: {trouble}")
    print(f"{recipe.name} for {recipe.target}: {len(newer)} of {len(report.packages)} can be newer")
    if newer:
        where = f"`version` into {recipe.file}, with a later `exclude_newer`"
        print(f"to take them, write each as {where}, then run `build.py lock {recipe.name}`")
    if held := next((one for one in report.packages if one.is_held), None):
        print(f"why a newest one does not fit: `build.py check {recipe.name} --pin {held.name}=={held.newest}`")
    return ExitCode.DONE


COMMANDS = {"outdated": outdated}
