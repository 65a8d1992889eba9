"""`verify`: run the verify script in an image, or hold an image of the user's against a profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.catalog.address_fields import REGISTRY_HINT, reference_fault
from cannery.cli.table import report_lines
from cannery.commands.check import planned
from cannery.commands.work import Work
from cannery.engine.io.containers import remove_orphans
from cannery.engine.io.find import docker_client, find_engine
from cannery.engine.io.images import image_labels, needed_image
from cannery.errors import ExitCode, UsageError
from cannery.host.io.npus import read_host
from cannery.host.npus import wanted_paths
from cannery.patches.io.patching import manifest_digest
from cannery.plan.on_base import on_labelled_base
from cannery.plan.train import trainer
from cannery.verify.io.run import Verified, VerifyRequest, script_digest, verify

if TYPE_CHECKING:
    import argparse

    from cannery.context import Context


def verify_built(work: Work, built_id: str) -> Verified:
    """Run the verify script in an image that was built or pulled; one that has passed is remembered by its id."""
    context, plan = work.context, work.plan
    if plan.recipe.target.arch is not context.arch and not work.arguments.builder:
        context.say("verifying under emulation: some minutes")
    return _verified(
        work,
        image=plan.reference,
        image_id=built_id,
        script_digest=script_digest(context.templates()),
        manifest_sha256=manifest_digest(context, work.catalog, plan),
        again=work.arguments.verify_again,
    )


def _verified(work: Work, **about: Any) -> Verified:  # noqa: ANN401 - fields of the request
    """Run the script with what this host has for the plan's chip; `about` is what the plan does not say."""
    recipe = work.plan.recipe
    access = work.catalog.chips[recipe.target.chip]
    request = VerifyRequest(
        shm_size=recipe.profile.shm_size,
        arch=recipe.target.arch,
        require_npu=work.arguments.require_npu,
        user=recipe.profile.user,
        **about,
    )
    remove_orphans(work.client)
    return verify(work.context, work.engine, request, access, read_host(wanted_paths(access), Path("/")))


def verify_image(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Run the verify script in a built image and print every check; with --against, look into another image."""
    if arguments.against:
        from cannery.commands.against import against  # noqa: PLC0415 - another way to the same question

        return against(arguments, context)
    if not arguments.profile:
        raise UsageError("PROFILE is missing", hint="build.py verify quickstart, or --against IMAGE for one of yours")
    fault = reference_fault(arguments.image or "")
    if fault:
        raise UsageError(f"--image: {fault}", hint=REGISTRY_HINT)
    catalog, plan, _ = planned(context, arguments)
    if {*arguments.level} == {"train"} and not trainer(plan.recipe):
        raise UsageError(
            "--level train: this profile has neither verl nor MindSpeed-RL, there is nothing to train with",
            where=arguments.profile,
        )
    engine = find_engine(context.env, context.cache, start=True, say=context.say)
    reference = arguments.image or plan.reference
    client = docker_client(engine)
    found = needed_image(client, reference, arguments.profile)
    plan = on_labelled_base(plan, image_labels(client, found))
    verified = _verified(
        Work(context, arguments, catalog, plan, engine, client),
        image=reference,
        image_id=found,
        script_digest=found,  # the script is the image's own, whatever this checkout holds
        manifest_sha256="" if arguments.image else manifest_digest(context, catalog, plan),
        levels=tuple(arguments.level),
        again=True,
    )
    if context.is_json:
        print(json.dumps(verified.report, indent=2, ensure_ascii=False))
    else:
        print("\n".join(report_lines(verified.report)))
    return exit_code(verified)


def exit_code(verified: Verified | None) -> ExitCode:
    """Return what a verify script's own status means as an exit code; DONE where none was run."""
    return {0: ExitCode.DONE, 3: ExitCode.UNABLE}.get(verified.status if verified else 0, ExitCode.VERIFY_FAILED)


COMMANDS = {"verify": verify_image}
