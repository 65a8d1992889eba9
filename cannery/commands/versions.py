"""`check`, `lock`, `plan` and `render`: everything that is known before an engine is asked for."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.core.errors import ExitCode, FindingsError
from cannery.core.findings import errors, in_order
from cannery.core.lock_request import lock_request, tools_request
from cannery.core.plan import Inputs, Plan, make_plan
from cannery.core.recipe import Options, find_profile, with_arch
from cannery.core.rules import check_recipe
from cannery.core.words import Arch
from cannery.edge.context import template_digests
from cannery.edge.locks import LOCK, all_locks, bind, current_lock, lock_findings, lock_path, make_lock, tools_lock

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cannery.core.catalog import Catalog
    from cannery.core.findings import Finding
    from cannery.core.lock import LockRequest
    from cannery.core.recipe import Recipe
    from cannery.edge.context import Context


def options_of(arguments: argparse.Namespace) -> Options:
    """Return what the command line says about the target."""
    return Options(
        cann=arguments.cann,
        chip=arguments.chip,
        os=arguments.os,
        python=arguments.python,
        arch=arguments.arch,
        base=arguments.base,
        pins=tuple(word for text in arguments.pin for word in text.split()),
        force=arguments.force,
    )


def check(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print every finding about a version set; exit 3 when one is an error."""
    catalog = context.catalog()
    recipe = bind(context, catalog, arguments.profile, options_of(arguments))
    found = findings_of(context, catalog, recipe)
    failed = errors(found)
    if context.is_json:
        rows = [asdict(f) for f in found]
        print(json.dumps({"target": str(recipe.target), "ok": not failed, "findings": rows}, indent=2))
    else:
        for finding in found:
            print(finding)
        verdict = f"errors: {len(failed)}; this set cannot be built" if failed else "no errors"
        print(f"{recipe.name} for {recipe.target}: {verdict}")
    return ExitCode.FINDINGS if failed else ExitCode.DONE


def findings_of(context: Context, catalog: Catalog, recipe: Recipe) -> tuple[Finding, ...]:
    """Return findings from the pins alone, and, when those have no error, from the lock too."""
    found = check_recipe(recipe, catalog, build_arch=context.arch)
    if errors(found) and not recipe.force:
        return found
    unusable = lock_findings(context, catalog, recipe)
    if unusable:
        return in_order([*found, *unusable])
    lock = current_lock(context, catalog, recipe, recipe.target.arch)
    return check_recipe(recipe, catalog, {recipe.target.arch: lock}, context.arch)


def lock(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Resolve profiles (all when none is named) for every Python and arch, and the build tools; write images/locks."""
    catalog = context.catalog()
    for name in arguments.profile:
        find_profile(catalog, name)
    for name in arguments.profile or catalog.profiles:
        target = find_profile(catalog, name).target
        for python in (arguments.python,) if arguments.python else (target.python, *target.pythons):
            recipe = bind(context, catalog, name, replace(options_of(arguments), python=python))
            for arch in (recipe.target.arch,) if arguments.arch else target.arch:
                request = lock_request(with_arch(recipe, arch))
                _lock_one(context, catalog, request, standard=recipe.is_standard)
    for python in sorted({v for p in catalog.profiles.values() for v in (p.target.python, *p.target.pythons)}):
        for arch in Arch:
            _lock_one(context, catalog, tools_request(catalog, python, arch), standard=True)
    return ExitCode.DONE


def _lock_one(context: Context, catalog: Catalog, request: LockRequest, *, standard: bool) -> None:
    path = lock_path(context, request, standard=standard)
    made, changed = make_lock(context, catalog, request, path)
    size = sum(p.size for p in made.packages) / 1e6
    missing = ", ".join(f"{p.name} (index {p.index} not reached)" for p in made.packages if not p.complete)
    state = f", INCOMPLETE: {missing}" if missing else ""
    print(
        f"{context.shown(path)}: {len(made.packages)} packages, {size:.0f} MB{state}{'' if changed else ', unchanged'}"
    )
    if not standard:
        print(f"  for this set of pins alone; to keep them, write them into images/profiles/{request.profile}.yaml")


def planned(context: Context, arguments: argparse.Namespace) -> tuple[Catalog, Plan, tuple[Finding, ...]]:
    """Check, then plan. Raises `FindingsError` on errors unless they are forced; those are stamped into the plan."""
    catalog = context.catalog()
    recipe = bind(context, catalog, arguments.profile, options_of(arguments))
    found = findings_of(context, catalog, recipe)
    failed = errors(found)
    if failed and not recipe.force:
        if {f.code for f in failed} == {LOCK}:
            raise FindingsError(failed[0].what, where=f"{recipe.name} for {recipe.target}", hint=failed[0].fix)
        listed = "\n".join(map(str, failed))
        raise FindingsError(f"this set cannot work\n{listed}", where=f"{recipe.name} for {recipe.target}")
    inputs = Inputs(
        locks=all_locks(context, catalog, recipe),
        tools=tools_lock(context, catalog, recipe.target.python),
        templates=template_digests(context.templates()),
        build_arch=context.arch,
        standin=catalog.standin,
        forced=tuple(sorted({f.code for f in failed})),
    )
    return catalog, make_plan(recipe, inputs), found


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
    print(f"{len(made.layers)} layers, {sum(layer.wheel_bytes for layer in made.layers) / 1e6:.0f} MB of wheels")
    return ExitCode.DONE


def render(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Write the folder that `docker buildx bake` builds: text files, and hard links to the locked wheels."""
    from cannery.edge.rendered import folder_lock, write_folder  # noqa: PLC0415 - brings the download libraries

    catalog, made, _ = planned(context, arguments)
    folder = Path(arguments.output) if arguments.output else context.root / "out" / made.folder
    with folder_lock(folder, context.say):
        changed = write_folder(context, catalog, made, folder)
    print(f"{folder}: {changed}")
    return ExitCode.DONE


def show_findings(context: Context, found: Sequence[Finding]) -> None:
    """Say findings to the user, on standard error."""
    for finding in found:
        context.say(str(finding))


COMMANDS = {"check": check, "lock": lock, "plan": plan, "render": render}
