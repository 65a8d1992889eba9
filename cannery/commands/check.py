"""`check`, `plan` and `render`: everything that is known before an engine is asked for."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.compat.findings import errors, in_order
from cannery.compat.rules import check_recipe
from cannery.context import template_digests
from cannery.errors import ExitCode, FindingsError
from cannery.lock.io.store import LockSet, all_locks, bind, read_locks
from cannery.plan.make import make_plan, plan_epoch
from cannery.plan.patched import unfit_words, unpatched_words
from cannery.plan.plan import Inputs, Plan
from cannery.recipe.left_out import unlinked
from cannery.recipe.recipe import Options, with_arch
from cannery.sources.io.planned_sources import local_trees
from cannery.util.io.write_errors import BY_OUTPUT, unwritable
from cannery.vocab import Severity

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.compat.findings import Finding
    from cannery.context import Context
    from cannery.recipe.recipe import Recipe

# Notes that a list prints before it folds the rest.
NOTES_SHOWN = 12


def options_of(arguments: argparse.Namespace) -> Options:
    """Return what the command line says about the target."""
    return Options(
        cann=arguments.cann,
        chip=arguments.chip,
        os=arguments.os,
        python=arguments.python,
        arch=arguments.arch,
        base=arguments.base,
        pins=tuple(word for text in getattr(arguments, "pin", ()) for word in text.split()),
        force=getattr(arguments, "force", False),
        sources=getattr(arguments, "sources", None),
        as_documented=getattr(arguments, "as_documented", False),
    )


def check(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print every finding about a version set; exit 3 when one is an error."""
    catalog = context.catalog()
    recipe = bind(context, catalog, arguments.profile, options_of(arguments))
    found, _ = findings_of(context, catalog, recipe)
    failed = errors(found)
    if context.is_json:
        rows = [asdict(f) for f in found]
        print(json.dumps({"target": str(recipe.target), "ok": not failed, "findings": rows}, indent=2))
    else:
        for line in listed(found, None if arguments.all else NOTES_SHOWN):
            print(line)
        verdict = f"errors: {len(failed)}; this set cannot be built" if failed else "no errors"
        print(f"{recipe.name} for {recipe.target}: {verdict}")
    return ExitCode.FINDINGS if failed else ExitCode.DONE


def listed(found: Sequence[Finding], notes: int | None) -> Iterator[str]:
    """Give findings as texts: all but notes, then the first `notes` notes (None: all) and how many more there are."""
    shown = [f for f in found if f.severity is not Severity.NOTE]
    rest = [f for f in found if f.severity is Severity.NOTE]
    folded = [] if notes is None else rest[notes:]
    yield from map(str, [*shown, *rest[:notes]])
    if folded:
        yield f"… and {len(folded)} more notes (--all)"


def findings_of(context: Context, catalog: Catalog, recipe: Recipe) -> tuple[tuple[Finding, ...], LockSet]:
    """Return every finding about `recipe`, from its pins and from its locks, and the locks that were read.

    An ad-hoc set whose pins cannot work is not resolved: no lock is then read.
    """
    if not recipe.is_standard and not recipe.force:
        found = check_recipe(recipe, catalog, build_arch=context.arch)
        if errors(found):
            return found, LockSet({}, None, ())
    read = read_locks(context, catalog, recipe)
    found = check_recipe(recipe, catalog, dict(read.locks), context.arch)
    return in_order([*found, *read.findings]), read


def planned(
    context: Context, arguments: argparse.Namespace, *, any_arch: bool = False
) -> tuple[Catalog, Plan, tuple[Finding, ...]]:
    """Check, then plan. Raises `FindingsError` on errors unless they are forced; those are stamped into the plan.

    With `any_arch` another arch of the profile is planned where the lock of the one asked for is not complete: for what
    is the same on all of them.
    """
    catalog = context.catalog()
    recipe = bind(context, catalog, arguments.profile, replace(options_of(arguments), local=tuple(context.local)))
    found, read = findings_of(context, catalog, recipe)
    failed = errors(found)
    where = f"{recipe.name} for {recipe.target}"
    if read.tools is None or read.findings or (failed and not recipe.force):
        if len(failed) == len(read.findings) == 1:
            raise FindingsError(failed[0].what, where=where, hint=failed[0].fix)
        listed = "\n".join(map(str, failed))
        raise FindingsError(f"this set cannot be built\n{listed}", where=where)
    if any_arch:
        complete = (arch for arch, lock in read.locks.items() if lock.complete)  # the arch asked for comes first
        recipe = with_arch(recipe, next(complete, recipe.target.arch))
    inputs = Inputs(
        locks=all_locks(context, catalog, recipe, read.locks),
        tools=read.tools,
        templates=template_digests(context.templates()),
        build_arch=context.arch,
        standin=catalog.standin,
        forced=tuple(sorted({f.code for f in failed})),
        socs=catalog.chips[recipe.target.chip].socs,
        local=local_trees(context, catalog, recipe, plan_epoch(recipe)),
        patch_sets=context.patch_sets,
    )
    return catalog, make_plan(recipe, inputs), found


def lacking_words(made: Plan) -> tuple[str, ...]:
    """Return what an image lacks of its profile, in words: what is left out, and sources without their native parts."""
    return (
        *(f"{step.name} without its native parts: {step.without}" for step in made.sources if step.without),
        *(f"{c.name} with kernels that cannot load: they link a CANN that is not there" for c in unlinked(made.recipe)),
        *(f"{lacking.name} left out: {lacking.reason}" for lacking in made.left_out),
        *(unpatched_words(made.not_patched) or unfit_words(made.recipe, made.sources)),
    )


def plan(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print the layers of an image: nothing is fetched or built."""
    _, made, found = planned(context, arguments)
    if context.is_json:
        value = {
            "reference": made.reference,
            "base": made.base_reference,
            "digest": made.digest,
            "layers": [asdict(layer) for layer in made.layers],
            "findings": [asdict(f) for f in found],
        }
        print(json.dumps(value, indent=2))
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
    from cannery.patches.io.patching import with_patches  # noqa: PLC0415 - brings the download libraries
    from cannery.render.io.folder import rendered_held, write_folder  # noqa: PLC0415 - the same

    catalog, made, _ = planned(context, arguments)
    made = with_patches(context, catalog, made)
    folder = Path(arguments.output) if arguments.output else context.root / "out" / made.folder
    try:
        with rendered_held(context, folder):
            changed = write_folder(context, catalog, made, folder)
    except OSError as error:
        raise unwritable(error, error.filename or folder, BY_OUTPUT) from error
    print(f"{folder}: {changed}")
    return ExitCode.DONE


def show_findings(context: Context, found: Sequence[Finding]) -> None:
    """Say findings to the user, on standard error."""
    for line in listed(found, NOTES_SHOWN):
        context.say(line.replace("(--all)", "(build.py check --all)"))


COMMANDS = {"check": check, "plan": plan, "render": render}
