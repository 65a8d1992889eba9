"""`verify`: run the verify script in an image, or hold an image of the user's against a profile."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.catalog.address_fields import REGISTRY_HINT, reference_fault
from cannery.commands.arguments import options_of
from cannery.commands.table import report_lines
from cannery.engine.io.find import docker_client, find_engine
from cannery.engine.io.inspect import image_labels, needed_image
from cannery.errors import ExitCode, UsageError
from cannery.pipeline import Work, manifest_digest, planned, verified
from cannery.plan.on_base import on_labelled_base
from cannery.plan.train import trainer
from cannery.verify.io.run import Verified, VerifyRequest, script_digest

if TYPE_CHECKING:
    import argparse

    from cannery.context import Context
    from cannery.plan.plan import Plan


def verify_built(arguments: argparse.Namespace, work: Work, built_id: str) -> Verified:
    """Run the verify script in an image that was built or pulled; one that has passed is remembered by its id."""
    context, plan = work.context, work.plan
    if plan.recipe.target.arch is not context.arch and not arguments.builder:
        context.say("verifying under emulation: some minutes")
    request = _request(arguments, plan, image=plan.reference, image_id=built_id)
    request = replace(
        request,
        script_digest=script_digest(context.templates()),
        manifest_sha256=manifest_digest(context, work.catalog, plan),
        again=arguments.verify_again,
    )
    return verified(work, request)


def _request(arguments: argparse.Namespace, plan: Plan, image: str, image_id: str) -> VerifyRequest:
    """Return what is to be verified in an image of `plan`, whose script is the image's own."""
    recipe = plan.recipe
    return VerifyRequest(
        image=image,
        image_id=image_id,
        script_digest=image_id,
        shm_size=recipe.profile.shm_size,
        arch=recipe.target.arch,
        require_npu=arguments.require_npu,
        user=recipe.profile.user,
    )


def verify_image(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Run the verify script in a built image and print every check; with --against, look into another image."""
    if arguments.against:
        from cannery.commands.against import against

        return against(arguments, context)
    if not arguments.profile:
        raise UsageError("PROFILE is missing", hint="build.py verify quickstart, or --against IMAGE for one of yours")
    fault = reference_fault(arguments.image or "")
    if fault:
        raise UsageError(f"--image: {fault}", hint=REGISTRY_HINT)
    catalog, plan, _ = planned(context, arguments.profile, options_of(arguments))
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
    request = replace(
        _request(arguments, plan, image=reference, image_id=found),
        manifest_sha256="" if arguments.image else manifest_digest(context, catalog, plan),
        levels=tuple(arguments.level),
        again=True,
    )
    result = verified(Work(context, catalog, plan, engine, client), request)
    if context.is_json:
        print(json.dumps(result.report, indent=2, ensure_ascii=False))
    else:
        print("\n".join(report_lines(result.report)))
    return exit_code(result)


def exit_code(result: Verified | None) -> ExitCode:
    """Return what a verify script's own status means as an exit code; DONE where none was run."""
    return {0: ExitCode.DONE, 3: ExitCode.UNABLE}.get(result.status if result else 0, ExitCode.VERIFY_FAILED)


COMMANDS = {"verify": verify_image}
