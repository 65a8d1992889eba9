"""`outdated`: what newer releases fit, and what an upgrade would change. It writes no lock."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from cannery.commands.arguments import options_of
from cannery.errors import ExitCode
from cannery.lock.io.store import bind, current_lock
from cannery.pipeline import lock_store
from cannery.upgrade.io.outdated import look
from cannery.upgrade.outdated import table

if TYPE_CHECKING:
    import argparse

    from cannery.context import Context
    from cannery.recipe.recipe import Recipe
    from cannery.upgrade.io.outdated import Report


def outdated(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print what is newer than the lock of the target has it. A lock that is missing or stale is exit 3.

    What the profile does not name is folded into one line, but with `--all` and in JSON.
    """
    catalog = context.catalog()
    store = lock_store(context)
    recipe = bind(store, catalog, arguments.profile, options_of(arguments))
    lock = current_lock(store, catalog, recipe, recipe.target.arch)
    context.say(f"asking for releases of {len(lock.packages)} packages, and resolving {recipe.name} as of today …")
    every = context.is_json or getattr(arguments, "all", False)
    sources = context.sources(catalog) if recipe.sources else None
    report = look(store, catalog, recipe, lock, arguments.today, sources=sources, every=every)
    if context.is_json:
        print(json.dumps(_value(recipe, report), indent=2, ensure_ascii=False))
        return ExitCode.DONE
    for line in (*table(report.packages, works=report.upgrade is not None), *_folded(recipe, report), *report.sources):
        print(line)
    if report.upgrade is not None:
        print(f"upgraded: every pin at the newest that fits the rest, and all uploads up to {report.day}")
    if held := next((one for one in report.packages if one.newest and one.upgraded != one.newest), None):
        command = f"build.py check {recipe.name} --pin {held.name}=={held.newest}"
        print(f"`{command}` reports what holds {held.name}")
    for text in (*report.problems, *(f"not asked: {trouble}" for trouble in report.troubles)):
        context.say(text)
    print(f"{recipe.name} for {recipe.target}, as of {report.day}: {_verdict(report)}")
    return ExitCode.DONE


def _folded(recipe: Recipe, report: Report) -> tuple[str, ...]:
    count = len(report.folded)
    if not count:
        return ()
    what = "one more package changes" if count == 1 else f"{count} more packages change"
    return (f"{what} with them: `build.py outdated {recipe.name} --all` shows all",)


def _verdict(report: Report) -> str:
    if report.upgrade is None:
        return "an upgrade of all cannot work"
    return f"an upgrade of all would change {report.upgrade}"


def _value(recipe: Recipe, report: Report) -> dict[str, object]:
    upgrade = report.upgrade
    return {
        "target": str(recipe.target),
        "day": report.day,
        "packages": [asdict(package) for package in report.packages],
        "sources": report.sources,
        "upgrade": {"packages": upgrade.count, "bytes": upgrade.fetch} if upgrade else None,
        "problems": report.problems,
        "not_asked": report.troubles,
    }


COMMANDS = {"outdated": outdated}
