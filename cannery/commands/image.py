"""`image`: check, build, prove."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from cannery.base.io.base_room import base_bytes
from cannery.base.real import compare
from cannery.build.io.buildx import bake
from cannery.build.io.disk import check_cache_space, check_engine_space
from cannery.build.io.secrets import build_secrets
from cannery.build.io.view import make_view
from cannery.build.progress import layers_new_reused
from cannery.cli.table import report_lines, row_lines, summary_line
from cannery.commands.check import lacking_words, planned, show_findings
from cannery.commands.verify import exit_code, verify_built
from cannery.commands.work import Work
from cannery.compat.findings import errors
from cannery.engine.io.find import docker_client, find_engine
from cannery.engine.io.images import image_id
from cannery.errors import BuildFailedError, ExitCode, FindingsError, NetworkError, UsageError
from cannery.lock.io.store import current_lock
from cannery.lock.io.wheel_store import damaged
from cannery.lock.io.wheels import fetch_wheels
from cannery.patches.io.patching import with_patches
from cannery.plan.on_base import base_need, on_base, on_labelled_base
from cannery.recipe.recipe import with_arch
from cannery.render.io.folder import rendered_held, write_folder
from cannery.sources.io.archives import damaged_archives
from cannery.standin.io.rootfs import check_emulation
from cannery.standin.spec import TORCH_NPU, standin_spec
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    import docker

    from cannery.base.real import BaseImage
    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.lock.lock import Lock
    from cannery.plan.plan import Plan
    from cannery.verify.io.run import Verified


@dataclass(frozen=True)
class Built:
    """A built image: id, bytes, layers (new to the engine, reused), steps (cached, in all), seconds, build log.

    One that was pulled in place of a build has no step and no log, and `pulled` is where it came from.
    """

    id: str
    size: int
    new: int
    reused: int
    cached: int
    total: int
    seconds: float
    log: Path | None
    pulled: str = ""


def image(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Check the set, build the image, verify it, print the table."""
    catalog, plan, found = planned(context, arguments)
    show_findings(context, found)
    if errors(found):
        context.say(f"going on in spite of {', '.join(plan.forced)}: stamped into manifest, tag and labels")
    if arguments.builder and plan.recipe.base.kind is BaseKind.STANDIN:
        raise UsageError(
            "BUILDER: the stand-in base stands in the engine alone, where another builder does not see it",
            hint="leave BUILDER out, or take a real base: BASE=" + plan.recipe.target.base_tag,
        )
    _check_emulation(context, plan, is_other_builder=bool(arguments.builder))
    if arguments.reuse and (code := _reuse(arguments, context, catalog, plan)) is not None:
        return code
    check_cache_space(context, plan)
    plan, base = _on_found_base(context, plan, is_other_builder=bool(arguments.builder))
    plan = with_patches(context, catalog, plan)
    engine = find_engine(context.env, context.cache, start=True, say=context.say)
    work = Work(context, arguments, catalog, plan, engine, docker_client(engine))
    folder = context.root / "out" / plan.folder
    with rendered_held(context, folder), _whole_files(context, plan):
        check_engine_space(work.engine, plan, base_bytes(work.client, plan, base))
        built = _build(work, folder)
    return _proved(work, built)


def _proved(work: Work, built: Built) -> ExitCode:
    """Verify an image, let its moving tags follow, print the table."""
    verified = None if work.arguments.no_verify else verify_built(work, built.id)
    references = _tagged(work, exit_code(verified))
    _print_table(work.context, work.plan, references, built, verified)
    return exit_code(verified)


def _reuse(arguments: argparse.Namespace, context: Context, catalog: Catalog, plan: Plan) -> ExitCode | None:
    """Pull and verify the prebuilt image of this plan; None where it has to be built, which is said with the reason."""
    from cannery.engine.io.client import StreamError  # noqa: PLC0415
    from cannery.ship.io.shipping import dock_of, pull_image, tag_locally  # noqa: PLC0415
    from cannery.ship.published import parse_registry  # noqa: PLC0415 - a build without a registry does without

    registry = parse_registry(arguments.registry)
    engine = find_engine(context.env, context.cache, start=True, say=context.say)
    work = Work(context, arguments, catalog, plan, engine, docker_client(engine))
    before, begun = _known_layers(work.client), time.monotonic()
    try:
        dock = dock_of(context, work.client, plan, registry)
        found = pull_image(dock)
    except (NetworkError, StreamError) as error:
        context.say(f"not reused: {error}\nbuilding instead")
        return None
    if found is None:
        context.say(f"{dock.reference} is not there for {plan.recipe.target.arch}: building instead")
        return None
    tag_locally(dock, found, (plan.reference,))
    new, reused = layers_new_reused(before, found.layers)
    built = Built(found.id, found.size, new, reused, 0, 0, time.monotonic() - begun, None, dock.reference)
    return _proved(replace(work, plan=on_labelled_base(plan, dict(found.labels))), built)


def _tagged(work: Work, code: ExitCode) -> tuple[str, ...]:
    """Let the moving tags follow to the image, unless verify has failed; return the tags that it has."""
    plan = work.plan
    if code is ExitCode.VERIFY_FAILED:
        return (plan.reference,)
    for alias in plan.references[1:]:
        work.client.images.get(plan.reference).tag(alias)
    return plan.references


def _check_emulation(context: Context, plan: Plan, *, is_other_builder: bool) -> None:
    """Raise `UnableError` where this host would have to run programs of another arch and cannot.

    Of an engine on another machine, and of another builder, nothing is known here: the build will say.
    """
    is_remote = context.env.get("DOCKER_HOST", "").startswith(("tcp:", "ssh:"))
    if not is_other_builder and not is_remote:
        check_emulation(plan.recipe.target.arch, context.arch)


def _on_found_base(context: Context, plan: Plan, *, is_other_builder: bool) -> tuple[Plan, BaseImage | None]:
    """Return the plan on the base that is there, named by its digest, and that. The stand-in is made, not found.

    Raises `NetworkError` where no registry gives one, `FindingsError` for one that cannot be built upon; --force is no
    help with either.
    """
    if plan.recipe.base.kind is BaseKind.STANDIN:
        return plan, None
    from cannery.base.io.find import find_base, search_of  # noqa: PLC0415 - brings network libraries

    search = search_of(context, other_builder=is_other_builder)
    base = find_base(base_need(plan, own_builder=is_other_builder), search)
    found = compare(plan.recipe, base)
    if failed := errors(found):
        listed = "\n".join(map(str, failed))
        raise FindingsError(f"this base cannot be built upon\n{listed}", where=base.reference)
    show_findings(context, found)
    return on_base(plan, base.reference, base.digest), base


@contextmanager
def _whole_files(context: Context, plan: Plan) -> Iterator[None]:
    """After a failed build, look whether a stored file was damaged on the disk; remove it, and say so."""
    try:
        yield
    except BuildFailedError as error:
        packages = damaged([*plan.lock.packages, *plan.tools.packages], context.cache)
        archives = damaged_archives(plan.archives, context.cache)
        lost = [package.file for package in packages] + [step.file for step in archives]
        if lost:
            error.hint = f"damaged on this disk and removed: {', '.join(lost)}; the same command fetches them again"
        raise


def _build(work: Work, folder: Path) -> Built:
    context, catalog, plan = work.context, work.catalog, work.plan
    if plan.recipe.base.kind is BaseKind.STANDIN:
        _standins(work)
    context.say(f"{context.shown(folder)}: {write_folder(context, catalog, plan, folder)}")
    before = _known_layers(work.client)
    suite = catalog.standin.suite if plan.recipe.base.kind is BaseKind.STANDIN else None
    secrets = build_secrets(context, suite)
    result = bake(
        work.engine.buildx_command(builder=work.arguments.builder or ""),
        {**work.engine.client_env(context.env), **secrets.env},
        folder,
        targets=("image",),
        log=folder / "log" / "build.log",
        view=make_view(sys.stderr, is_terminal=context.is_terminal, clock=time.monotonic),
        overrides=_overrides(work.arguments, plan),
        secrets=secrets.values,
    )
    attributes = work.client.images.get(plan.reference).attrs
    layers = attributes["RootFS"]["Layers"]
    new, reused = layers_new_reused(before, layers)
    return Built(
        attributes["Id"], attributes["Size"], new, reused, result.cached, result.total, result.seconds, result.log
    )


def _overrides(arguments: argparse.Namespace, plan: Plan) -> tuple[str, ...]:
    """Return bake's `--set` values. A builder other than the engine's own has to hand the image over.

    The moving tag is set behind verify: whoever pulls it gets what has passed.
    """
    overrides = [f"image.tags={plan.reference}", *(["*.no-cache=true"] if arguments.no_cache else [])]
    return (*overrides, "*.output=type=docker") if arguments.builder else tuple(overrides)


def _standins(work: Work) -> None:
    """Bring the stand-in base into the engine, for the target and for the build host's own arch."""
    context, catalog, plan = work.context, work.catalog, work.plan
    wanted = [pair for pair in _standin_locks(work) if image_id(work.client, pair[0]) is None]
    if not wanted:
        return
    from cannery.standin.io.load import StandInRequest, ensure_standin  # noqa: PLC0415 - a base that is there spares it

    for reference, lock in wanted:
        spec = standin_spec(with_arch(plan.recipe, lock.arch), lock, catalog.standin)
        if spec.reference != reference:
            raise AssertionError(f"planned {reference}, made {spec.reference}")
        wheel = fetch_wheels(context, catalog, [spec.torch_npu])[TORCH_NPU] if spec.torch_npu else None
        request = StandInRequest(spec=spec, torch_npu_wheel=wheel, host_arch=context.arch)
        ensure_standin(request, engine_client=work.client, cache=context.cache, say=context.say)


def _standin_locks(work: Work) -> Iterator[tuple[str, Lock]]:
    plan = work.plan
    yield plan.base_reference, plan.lock
    if plan.build_reference != plan.base_reference:
        yield plan.build_reference, current_lock(work.context, work.catalog, plan.recipe, plan.build_arch)


def _known_layers(client: docker.DockerClient) -> list[str]:
    """Return the layers of every image that the engine holds."""
    return [layer for found in client.images.list() for layer in found.attrs["RootFS"].get("Layers") or ()]


def _print_table(
    context: Context, plan: Plan, references: tuple[str, ...], built: Built, verified: Verified | None
) -> None:
    """Print what was built; on a failure of verify, the checks that did not pass first."""
    if context.is_json:
        value = {
            "references": references,
            **asdict(built),
            "log": str(built.log) if built.log else None,
            "lacks": lacking_words(plan),
            "report": verified.report if verified else None,
            "remembered": bool(verified and verified.reused),
        }
        print(json.dumps(value, indent=2, ensure_ascii=False))
        return
    result = "not run" if verified is None else summary_line(verified.report)
    rows = {
        "image": references[0],
        "also tagged": ", ".join(references[1:]),
        "id": built.id,
        "size": f"{built.size / 1e6:.0f} MB",
        "layers": f"{built.new + built.reused} ({built.new} new, {built.reused} reused)",
        "pulled from": built.pulled,
        "steps": f"{built.total} ({built.cached} cached)" if not built.pulled else "",
        "time": f"{built.seconds:.1f} s",
        "log": os.path.relpath(built.log) if built.log else "",
        "verify": f"{result}{' (remembered: same image)' if verified and verified.reused else ''}",
    }
    for line in report_lines(verified.report, only=("failed", "warning")) if verified else ():
        print(line)
    print("\n".join(row_lines([*rows.items(), *(("lacks", words) for words in lacking_words(plan))])))


COMMANDS = {"image": image}
