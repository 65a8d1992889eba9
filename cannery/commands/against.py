"""`verify --against IMAGE`: an image of the user's own, held against profiles. Nothing of it is imported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cannery.against.compare import compare, nearest
from cannery.against.expected import asked_files, expected
from cannery.against.facts import take_inventory
from cannery.against.io.inventory import Questions, read_config, read_image
from cannery.against.report import report_lines, report_value
from cannery.catalog.address_fields import REGISTRY_HINT, reference_fault
from cannery.catalog.target import parse_arch
from cannery.commands.arguments import options_of
from cannery.engine.io.find import docker_client, find_engine
from cannery.errors import CanneryError, ExitCode, FindingsError, UsageError
from cannery.lock.io.store import lock_path, present_lock
from cannery.lock.request import lock_request
from cannery.recipe.recipe import STANDIN, Options
from cannery.recipe.select import find_profile, select
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    import argparse

    from cannery.against.compare import Comparison
    from cannery.against.facts import Inventory
    from cannery.catalog.catalog import Catalog
    from cannery.context import Context

# Options of verify that mean a built image of Cannery's, or a set that would have to be resolved.
ELSEWHERE = (
    *("image", "level", "require_npu", "verify_again", "pin", "sources", "as_documented", "force"),
    *("src", "patches", "git_mirror", "wheelhouse"),
)
TARGET = ("cann", "chip", "os", "python", "base")
PRELOAD = "LD_PRELOAD"
BASE_LABEL = "org.cannery.base.kind"
JEMALLOC = "libjemalloc.so.2"


def against(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print what differs from PROFILE, or from the nearest profile; exit 6 where something that matters does."""
    _check_words(arguments)
    catalog = context.catalog()
    if arguments.profile:
        find_profile(catalog, arguments.profile)
    engine = find_engine(context.env, context.cache, start=True, say=context.say)
    config = read_config(docker_client(engine), arguments.against)
    arch = str(parse_arch(config.arch, f"the arch of {arguments.against}"))
    suffixes, folders = asked_files(catalog.sources.values())
    libraries = (*config.env.get(PRELOAD, "").replace(":", " ").split(), JEMALLOC)
    questions = Questions(suffixes, folders, libraries)
    seen = read_image(engine, engine.client_env(context.env), config, questions, context.say)
    inventory = take_inventory(seen, catalog.bases)
    found, skipped = _comparisons(context, catalog, inventory, arguments, arch)
    if context.is_json:
        value = report_value(arguments.against, config.id, inventory, found, skipped)
        print(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        print("\n".join(report_lines(arguments.against, inventory, found, skipped)))
    return ExitCode.DONE if found[0].is_equal else ExitCode.VERIFY_FAILED


def _check_words(arguments: argparse.Namespace) -> None:
    """Raise `UsageError` for a reference that is none, and for options that mean another image or another set."""
    fault = reference_fault(arguments.against)
    if fault:
        raise UsageError(f"--against: {fault}", hint=REGISTRY_HINT)
    given = [name for name in ELSEWHERE if getattr(arguments, name)]
    given += [] if arguments.profile else [name for name in TARGET if getattr(arguments, name)]
    given += ["arch"] if arguments.arch else []
    if given:
        option = "--" + given[0].replace("_", "-")
        hint = "leave it out" if given[0] not in TARGET else "name the PROFILE whose target it changes, or leave it out"
        raise UsageError(f"{option} does not go with --against", hint=hint)


def _comparisons(
    context: Context, catalog: Catalog, inventory: Inventory, arguments: argparse.Namespace, arch: str
) -> tuple[tuple[Comparison, ...], dict[str, str]]:
    """Return the image against PROFILE, or the profile of its manifest, or all; and why some could not be compared.

    Raises `FindingsError` where none could.
    """
    made_as = str((inventory.manifest or {}).get("profile", ""))
    one = arguments.profile or (made_as if made_as in catalog.profiles else "")
    found, skipped = [], {}
    for name in [one] if one else sorted(catalog.profiles):
        try:
            found.append(
                _comparison(context, catalog, inventory, name, _options(catalog, inventory, arguments, name, arch))
            )
        except CanneryError as error:
            if one:
                raise
            skipped[name] = error.what
    if not found:
        reasons = "\n".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise FindingsError(f"no profile can be compared\n{reasons}", hint="make lock")
    return nearest(found), skipped


def _comparison(context: Context, catalog: Catalog, inventory: Inventory, name: str, options: Options) -> Comparison:
    recipe = select(catalog, name, options, context.arch)
    path = lock_path(context, lock_request(recipe))
    lock = present_lock(context, path)
    if lock is None:
        raise FindingsError("the lock is missing", where=str(context.shown(path)), hint=f"make lock PROFILE={name}")
    return compare(expected(recipe, lock, catalog), inventory)


def _options(catalog: Catalog, inventory: Inventory, arguments: argparse.Namespace, name: str, arch: str) -> Options:
    """Return the target that `name` is compared for: the user's words, the manifest's, what the image shows."""
    given: dict[str, Any] = {key: getattr(options_of(arguments), key) for key in TARGET}
    manifest = inventory.manifest or {}
    if manifest.get("profile") == name:
        target = manifest.get("target", {})
        given |= {key: given[key] or target.get(key) for key in ("cann", "chip", "os", "python")}
    default = catalog.profiles[name].target
    if not given["python"] and inventory.python.version in default.pythons:
        given["python"] = inventory.python.version
    is_standin = inventory.seen.labels.get(BASE_LABEL) == BaseKind.STANDIN
    if is_standin and (given["python"] or default.python) == catalog.standin.python:
        given["base"] = given["base"] or STANDIN
    return Options(**given, arch=arch)
