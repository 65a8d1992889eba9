"""`verify` runs the verify script in an image. `verify --against` compares an image made by hand with profiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cannery.against.compare import compare, expected, nearest, read_facts, report_lines, version_files
from cannery.against.io.read import find_image, read_image
from cannery.catalog.addresses import REGISTRY_HINT, reference_fault
from cannery.catalog.target import parse_arch
from cannery.commands import options_of, print_json
from cannery.commands.place import place_with
from cannery.commands.proofs import driver_to_record, record
from cannery.errors import CanneryError, ExitCode, FindingsError, UsageError
from cannery.lock.io.store import lock_path, present_lock
from cannery.lock.request import lock_request
from cannery.pipeline import Work, lock_store, manifest_digest, planned, verified
from cannery.plan.make import on_labelled_base
from cannery.plan.manifest import trainer
from cannery.recipe.recipe import STANDIN, Options
from cannery.recipe.select import find_profile, select
from cannery.util.addresses import parse_reference
from cannery.verify.io.run import Verified, VerifyRequest, script_digest
from cannery.verify.lines import CheckPrinter
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    import argparse

    from cannery.against.compare import Comparison, Image
    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.plan import Plan

# Options of verify that only apply to an image of Cannery, or to a set that would have to be resolved.
NOT_WITH_AGAINST = (
    *("image", "level", "require_npu", "pin", "sources", "force"),
    *("src", "patches", "git_mirror", "wheelhouse", "record", "json"),
)
TARGET = ("cann", "chip", "os", "python", "base")
BASE_LABEL = "org.cannery.base.kind"


def verify_built(arguments: argparse.Namespace, work: Work, built_id: str) -> Verified:
    """Run the verify script in a built or pulled image, and print the report. A pass is stored."""
    context, plan = work.context, work.plan
    if plan.recipe.target.arch is not context.arch and not arguments.builder:
        context.say("verifying under emulation: some minutes")
    request = _request(arguments, plan, image=plan.reference, image_id=built_id)
    request = replace(
        request,
        script_digest=script_digest(context.templates),
        manifest_sha256=manifest_digest(context, work.catalog, plan),
        again=arguments.verify_again,
    )
    return _printed(work, request, every=False)


def _printed(work: Work, request: VerifyRequest, *, every: bool) -> Verified:
    """Verify, and print failures, warnings and a line for each level as checks end, or `every` check."""
    if work.context.is_json:
        return verified(work, request, lambda _check: None)
    printer = CheckPrinter(lambda line: print(line, flush=True), every=every)
    result = verified(work, request, printer.check)
    printer.report(result.report, streamed=not result.reused)
    return result


def _request(arguments: argparse.Namespace, plan: Plan, image: str, image_id: str) -> VerifyRequest:
    """Return the request to verify an image of `plan` with the script in the image."""
    recipe = plan.recipe
    return VerifyRequest(
        image=image,
        image_id=image_id,
        script_digest=image_id,
        shm_size=recipe.profile.shm_size,
        arch=recipe.target.arch,
        require_npu=arguments.require_npu or bool(getattr(arguments, "record", None)),
        user=recipe.profile.user,
        several_hosts=recipe.profile.several_hosts,
    )


def verify_image(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Run the verify script in a built image and print its checks; with --against, compare another image."""
    if arguments.against is not None:
        return against(arguments, context)
    if not arguments.profile:
        raise UsageError("PROFILE is missing", hint="build.py verify quickstart, or --against IMAGE for one of yours")
    if arguments.image is not None:
        check_reference(arguments.image, "--image")
    catalog, plan, _ = planned(context, arguments.profile, options_of(arguments))
    if {*arguments.level} == {"train"} and not trainer(plan.recipe):
        raise UsageError(
            "--level train: this profile has neither verl nor MindSpeed-RL, there is nothing to train with",
            where=arguments.profile,
        )
    driver = driver_to_record(arguments, catalog, plan) if arguments.record else ""
    reference = arguments.image or plan.reference
    place = place_with(context, reference, runs=True)
    found = place.needed(reference, arguments.profile)
    plan = on_labelled_base(plan, dict(found.labels))
    request = replace(
        _request(arguments, plan, image=reference, image_id=found.id),
        manifest_sha256="" if arguments.image else manifest_digest(context, catalog, plan),
        levels=tuple(arguments.level),
        again=True,
    )
    result = _printed(Work(context, catalog, plan, place), request, every=arguments.all or context.is_verbose)
    if driver:
        record(arguments.record, plan, result.report, date=arguments.today, driver=driver, image=found.id)
        passed = exit_code(result) is ExitCode.DONE
        next_step = "send it with the issue form “Proof from a real NPU”" if passed else "what failed is in it"
        context.say(f"{arguments.record}: {next_step}")
    if context.is_json:
        print_json(result.report)
    return exit_code(result)


def exit_code(result: Verified | None) -> ExitCode:
    """Return the exit code for the status of the verify script; DONE if it was not run."""
    return {0: ExitCode.DONE, 3: ExitCode.UNABLE}.get(result.status if result else 0, ExitCode.VERIFY_FAILED)


def against(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print how an image differs from PROFILE or the nearest profile. The exit code is 6 if a difference matters."""
    _check_options(arguments)
    catalog = context.catalog()
    if arguments.profile:
        find_profile(catalog, arguments.profile)
    image = look_into(context, arguments.against)
    found, skipped = _comparisons(context, catalog, image, arguments)
    print("\n".join(report_lines(arguments.against, found, skipped, every=arguments.all)))
    return ExitCode.DONE if found[0].is_equal else ExitCode.VERIFY_FAILED


def check_reference(text: str, option: str) -> None:
    """Raise `UsageError` for an image reference that is not valid or may have a secret."""
    if fault := reference_fault(text):
        raise UsageError(f"{option}: {fault}", hint=REGISTRY_HINT)
    parse_reference(text, option)


def look_into(context: Context, reference: str) -> Image:
    """Return the content of an image, read by its own Python. Raises like `find_image`, `read_image`, `place_with`."""
    bases = context.catalog().bases
    place = place_with(context, reference, runs=True)
    config = find_image(place, reference)
    arch = str(parse_arch(config.arch, f"the arch of {reference}"))
    if place.is_foreign(arch):
        context.say(f"its Python runs under emulation, since it is for {arch}")
    return read_facts(config, read_image(place, config, version_files(bases)), bases)


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise `UsageError` for an invalid reference, and for options that cannot be used with --against."""
    check_reference(arguments.against, "--against")
    given = [name for name in NOT_WITH_AGAINST if getattr(arguments, name)]
    given += [] if arguments.profile else [name for name in TARGET if getattr(arguments, name)]
    given += ["arch"] if arguments.arch else []
    if given:
        option = "--" + given[0].replace("_", "-")
        hint = "leave it out" if given[0] not in TARGET else "name the PROFILE whose target it changes, or leave it out"
        raise UsageError(f"{option} does not go with --against", hint=hint)


def _comparisons(
    context: Context, catalog: Catalog, image: Image, arguments: argparse.Namespace
) -> tuple[tuple[Comparison, ...], dict[str, str]]:
    """Compare with PROFILE, with the profile in the image's manifest, or with all. Also return why some were skipped.

    Raises `FindingsError` if no profile can be compared.
    """
    made_as = str((image.manifest or {}).get("profile", ""))
    one = arguments.profile or (made_as if made_as in catalog.profiles else "")
    found, skipped = [], {}
    for name in [one] if one else sorted(catalog.profiles):
        try:
            found.append(_comparison(context, catalog, image, name, _options(catalog, image, arguments, name)))
        except CanneryError as error:
            if one:
                raise
            skipped[name] = error.what
    if not found:
        reasons = "\n".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise FindingsError(f"no profile can be compared\n{reasons}", hint="build.py lock")
    return nearest(found), skipped


def _comparison(context: Context, catalog: Catalog, image: Image, name: str, options: Options) -> Comparison:
    recipe = select(catalog, name, options, context.arch)
    store = lock_store(context)
    path = lock_path(store, lock_request(recipe))
    lock = present_lock(store, path)
    if lock is None:
        raise FindingsError("the lock is missing", where=str(context.shown(path)), hint=f"build.py lock {name}")
    return compare(expected(recipe, lock, catalog), image)


def _options(catalog: Catalog, image: Image, arguments: argparse.Namespace, name: str) -> Options:
    """Return the target to compare with: from the command line, the manifest, or the content of the image."""
    given: dict[str, Any] = {key: getattr(options_of(arguments), key) for key in TARGET}
    manifest = image.manifest or {}
    if manifest.get("profile") == name:
        target = manifest.get("target", {})
        given |= {key: given[key] or target.get(key) for key in ("cann", "chip", "os", "python")}
    default = catalog.profiles[name].target
    if not given["python"] and image.python in default.pythons:
        given["python"] = image.python
    is_standin = image.config.labels.get(BASE_LABEL) == BaseKind.STANDIN
    if is_standin and (given["python"] or default.python) == catalog.standin.python:
        given["base"] = given["base"] or STANDIN
    return Options(**given, arch=image.config.arch)


COMMANDS = {"verify": verify_image}
