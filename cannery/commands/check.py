"""`check`, `plan` and `render`: the commands that need no engine."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.commands import hashes_of, options_of, print_json
from cannery.compat.subject import errors, in_order, warning
from cannery.errors import ExitCode
from cannery.lock.io.store import bind
from cannery.lock.lock import missing_packages, published_at
from cannery.pipeline import Hashes, cannot_words, checked, lock_store, patched, planned, rendered, rendered_held
from cannery.plan.make import plan_epoch
from cannery.plan.sources import unpatched_words
from cannery.recipe.recipe import unlinked
from cannery.util.io.files import BY_OUTPUT, unwritable
from cannery.vocab import Severity

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.compat.subject import Finding
    from cannery.context import Context
    from cannery.plan import Plan
    from cannery.recipe.recipe import Recipe

# The number of notes that are printed before the rest is folded.
NOTES_SHOWN = 8


def check(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print all findings about a version set. The exit code is 3 if one is an error."""
    catalog = context.catalog()
    options = replace(options_of(arguments), local=tuple(context.local))
    recipe = bind(lock_store(context), catalog, arguments.profile, options)
    trees = _tree_findings(context, catalog, recipe)
    found = in_order([*trees, *checked(context, catalog, recipe, wheels=True).findings])
    failed = errors(found)
    if context.is_json:
        rows = [asdict(f) for f in found]
        print_json({"target": str(recipe.target), "ok": not failed, "findings": rows})
    else:
        for line in listed(found, None if arguments.all else NOTES_SHOWN):
            print(line)
        verdict = f"errors: {len(failed)}; {cannot_words(recipe, failed)}" if failed else "no errors"
        if any(finding.code == "lock-incomplete" for finding in found) and not failed:
            verdict += ", but the lock is missing hashes: a build has to reach their index"
        print(f"{recipe.name} for {recipe.target}: {verdict}")
    return ExitCode.FINDINGS if failed else ExitCode.DONE


def _tree_findings(context: Context, catalog: Catalog, recipe: Recipe) -> Iterator[Finding]:
    """Yield warnings about the user's own trees. Raises like `cannery.sources.io.planned_sources.local_files`."""
    from cannery.sources.io.planned_sources import local_files, tree_doubts

    for file in local_files(context.sources(catalog), recipe, plan_epoch(recipe)).values():
        for words in tree_doubts(recipe, file):
            yield warning("source-tree", f"{file.name}: {words}")


def listed(found: Sequence[Finding], notes: int | None) -> Iterator[str]:
    """Yield findings as texts: errors, warnings, the first `notes` notes (None: all), and the number of other notes."""
    shown = [f for f in found if f.severity is not Severity.NOTE]
    rest = [f for f in found if f.severity is Severity.NOTE]
    folded = [] if notes is None else rest[notes:]
    yield from map(str, [*shown, *rest[:notes]])
    if folded:
        yield f"… and {len(folded)} more notes (--all)"


def lacking_words(made: Plan) -> tuple[str, ...]:
    """Return texts about missing parts of an image: left-out sources and patches, and missing native parts."""
    return (
        *(f"{step.name} without its native parts: {step.without}" for step in made.sources if step.without),
        *(f"{c.name} with kernels that cannot load: there is no CANN to link to" for c in unlinked(made.recipe)),
        *(f"{lacking.name} left out: {lacking.reason}" for lacking in made.left_out),
        *unpatched_words(made.not_patched),
    )


def plan(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print the layers of an image. Nothing is fetched or built."""
    _, made, found = planned(context, arguments.profile, options_of(arguments))
    if context.is_json:
        value = {
            "reference": made.reference,
            "base": made.base_reference,
            "digest": made.digest,
            "layers": [asdict(layer) for layer in made.layers],
            "findings": [asdict(f) for f in found],
        }
        print_json(value)
        return ExitCode.DONE
    print(f"{made.reference}\nbase: {made.base_reference}")
    width = max(len(layer.name) for layer in made.layers)
    for layer in made.layers:
        size = f"{layer.wheel_bytes / 1e6:8.1f} MB" if layer.wheel_bytes else " " * 11
        print(f"  {layer.name:<{width}} {size}  {layer.digest}  {layer.summary}")
    for words in lacking_words(made):
        print(f"  {words}")
    print(f"{len(made.layers)} layers, {sum(layer.wheel_bytes for layer in made.layers) / 1e6:.0f} MB of wheels")
    return ExitCode.DONE


def render(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write the folder that `docker buildx bake` builds: text files, and hard links to the locked wheels."""
    hashes = hashes_of(arguments, context.env, Hashes.WANTED)
    catalog, made, _ = planned(context, arguments.profile, options_of(arguments), hashes)
    made = patched(context, catalog, made)
    folder = Path(arguments.output) if arguments.output else context.out / made.folder
    try:
        with rendered_held(context, folder):
            changed = rendered(context, catalog, made, folder)
    except OSError as error:
        raise unwritable(error, error.filename or folder, BY_OUTPUT) from error
    print(f"{folder}: {changed}")
    for package in missing_packages(made.lock):
        where = published_at(package, catalog.indexes)
        print(f"  without the wheel of {package.name} {package.version}, which is published {where}")
    return ExitCode.DONE


def show_findings(context: Context, found: Sequence[Finding]) -> None:
    """Print findings on standard error."""
    for line in listed(found, NOTES_SHOWN):
        context.say(line.replace("(--all)", "(build.py check --all)"))


COMMANDS = {"check": check, "plan": plan, "render": render}
