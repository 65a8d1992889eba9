"""`clean`: shows and removes what Cannery keeps on this host."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from cannery.commands import print_json
from cannery.commands.place import use_lock
from cannery.engine.io.find import NoEngineError, docker_client, find_engine
from cannery.errors import ExitCode, UnableError
from cannery.host.io.kept import IN_ENGINE, Part, chosen, engine_parts, freed, local_parts, pruned, total
from cannery.store.io.store import TAKES_LONG, Store
from cannery.util.io.locks import alone
from cannery.vocab import CLEAN_KINDS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cannery.context import Context


def clean(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Show the size of each kind of files on disk, or remove the named kinds as --older-than and --keep allow."""
    kinds = [kind for kind in CLEAN_KINDS if kind in arguments.kinds]
    # Other runs may use what is removed from the image store.
    unused = alone(use_lock(context.cache), lambda: context.say("another run uses the image store: waiting for it"))
    with nullcontext() if {"trials", "builds", "unpacked", "images"}.isdisjoint(kinds) else unused:
        rows = _cleaned(arguments, context, kinds)
    if context.is_json:
        names = ("kind", "count", "bytes", "old", "reclaimable")
        value = {"kinds": [dict(zip(names, row, strict=True)) for row in rows], "removed": kinds}
        print_json(value)
        return ExitCode.DONE
    print(f"{'KIND':<9} {'COUNT':>6} {'SIZE':>12}  {'REMOVED' if kinds else 'RECLAIMABLE':>12}")
    for kind, count, size, old, free in rows:
        print(f"{kind:<9} {count:>6} {size / 1e6:>9.1f} MB  {free / 1e6:>9.1f} MB ({old})")
    if not kinds:
        print(f"{'total':<9} {'':>6} {sum(row[2] for row in rows) / 1e6:>9.1f} MB")
        context.say(f"`build.py clean trials out` removes these two kinds; the cache is {context.cache}")
    return ExitCode.DONE


def _cleaned(
    arguments: argparse.Namespace, context: Context, kinds: Sequence[str]
) -> list[tuple[str, int, int, int, int]]:
    """Remove the chosen parts. Return count and bytes of each kind, and of its removed or removable parts."""
    # A file that several kinds share is counted for the first of them.
    store, wanted = Store(context.cache / "images"), kinds or sorted(CLEAN_KINDS, key=lambda kind: kind != "images")
    of_engine = {} if IN_ENGINE.isdisjoint(wanted) else _engine_parts(context)
    rows, counted = [], set[str]()
    for kind in wanted:
        found = [*local_parts(kind, context.cache, context.out, store), *of_engine.get(kind, ())]
        gone = chosen(found, arguments.older_than, arguments.keep)
        rows.append((kind, len(found), total(found, counted), len(gone), freed(pruned(store, gone))))
        if not kinds:
            continue
        if rows[-1][-1] > TAKES_LONG:
            context.say(f"removing {kind} ({len(gone)}): {rows[-1][-1] / 1e9:.1f} GB")
        for part in gone:
            part.remove()
        if any(part.image for part in gone):
            store.prune(min_age=0.0)  # no other run uses it now
    return sorted(rows, key=lambda row: CLEAN_KINDS.index(row[0]))


def _engine_parts(context: Context) -> dict[str, list[Part]]:
    try:
        return engine_parts(docker_client(find_engine(context.env)))
    except UnableError as error:
        why = error.what if isinstance(error, NoEngineError) else error
        context.say(f"note: images in Docker are not counted: {why}")
        return {}


COMMANDS = {"clean": clean}
