"""`image`: checks, builds and verifies an image. It writes a stamp, with which an unchanged next run does nothing."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.build.io.disk import check_cache_space, check_engine_space, check_store_space
from cannery.build.io.stamp import Places, Stamp, outputs_now, write_stamp
from cannery.commands import hashes_of, options_of, row_lines
from cannery.commands.check import lacking_words, show_findings
from cannery.commands.matrix import Outcome, cells_of, make_all
from cannery.commands.place import making_place
from cannery.commands.verify import exit_code, verify_built
from cannery.compat.subject import errors
from cannery.engine.io.find import find_engine, require_builder
from cannery.errors import CanneryError, ExitCode, NetworkError, UnableError, UsageError
from cannery.host.facts import INSTALL_INFO, wanted_paths
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.making.image import Built, built, kept, known_layers, new_layers, trial_on, tried, whole_files
from cannery.making.parts import BuildOptions, Way
from cannery.pipeline import Hashes, Work, on_found_base, patched, planned, rendered_held
from cannery.plan.make import on_labelled_base
from cannery.ship.published import UNVERIFIED
from cannery.standin.io.rootfs import check_emulation
from cannery.util.addresses import parse_reference
from cannery.util.io.waiting import heartbeat
from cannery.verify.io.run import PARTIAL, stored_results
from cannery.verify.lines import summary_line
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.host.io.place import ImagePlace
    from cannery.plan import Plan
    from cannery.ship.io.registry import Dock
    from cannery.verify.io.run import Verified


def image(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Check the set, build the image, verify it, and print the table. Several images are made one after the other."""
    cells = cells_of(arguments)
    if len(cells) > 1:
        return make_all(cells, arguments, context, _image)
    outcome = _image(cells[0], context)
    print(json.dumps(outcome.value, indent=2, ensure_ascii=False) if context.is_json else outcome.text)
    return outcome.code


def _image(arguments: argparse.Namespace, context: Context) -> Outcome:
    """Check a set, build its image, verify it, and push it with --push."""
    arguments.clock = time.monotonic()
    _check_ways(arguments, context)
    hashes = hashes_of(arguments, context.env, Hashes.NEEDED)
    options = options_of(arguments)
    # A pulled image needs no hashes.
    catalog, plan, findings = planned(context, arguments.profile, options, Hashes.KNOWN if arguments.reuse else hashes)
    show_findings(context, findings)
    if errors(findings):
        context.say(f"continuing despite errors ({', '.join(plan.forced)}): manifest, tag and labels record them")
    arguments.builder = _known_builder(arguments, context, plan)
    _check_emulation(arguments, context, plan)
    if arguments.reuse and (reused := _reuse(arguments, context, catalog, plan)) is not None:
        return reused
    if not plan.lock.complete:
        catalog, plan, _ = planned(context, arguments.profile, options, hashes)
    if plan.recipe.pins and not (arguments.builder or arguments.no_cache or arguments.way == Way.BAKE):
        one = _make_trial(arguments, context, catalog, plan)
        if one is not None:
            return _verify_and_push(arguments, *one)
    plan, differs = on_found_base(context, plan, other_builder=bool(arguments.builder))
    show_findings(context, differs)
    with heartbeat(context.say, lambda: "fetching the sources that patches change"):
        plan = patched(context, catalog, plan)
    place = making_place(context, arguments.output)
    work = Work(context, catalog, plan, place)
    folder = context.out / plan.folder
    how = BuildOptions(arguments.builder or "", arguments.cache or "", arguments.no_cache, Way(arguments.way))
    with rendered_held(context, folder), whole_files(context, plan):
        made = kept(work, folder, how)
        if made is None:
            check_cache_space(context.cache, plan)
            if isinstance(place, EnginePlace):
                check_engine_space(place.engine, plan)
            else:
                check_store_space(place.store.folder, plan)
            made = built(work, folder, how, _dock(arguments, work) if arguments.registry else None)
    return _verify_and_push(arguments, work, made)


def _dock(arguments: argparse.Namespace, work: Work) -> Dock:
    """Return the plan's image in REGISTRY."""
    from cannery.commands.registry import dock_of
    from cannery.ship.published import parse_registry

    return dock_of(work.context, work.place, work.plan, parse_registry(arguments.registry))


def _check_ways(arguments: argparse.Namespace, context: Context) -> None:
    """Raise `UsageError` before the build if the options for the output of the image are not valid."""
    if folder := _layout_folder(arguments):
        from cannery.store.io.archive import check_layout

        check_layout(Path(folder))
    if (arguments.attach or arguments.proof or arguments.sign is not None) and not arguments.push:
        raise UsageError(
            "--attach, --sign, --unverified and --partial only work with --push", hint="add --push, or leave them out"
        )
    if arguments.push or arguments.reuse or arguments.registry:
        from cannery.ship.published import parse_registry

        parse_registry(arguments.registry)
    if arguments.push:
        from cannery.commands.registry import Push

        Push.of(arguments, context)
        if arguments.no_verify:
            raise UsageError("--push needs a verified image", hint="leave --no-verify out")


def _known_builder(arguments: argparse.Namespace, context: Context, plan: Plan) -> str | None:
    """Return the builder like `_builder`. Raises `UnableError` if buildx has no builder of that name.

    Raises `UsageError` for a cache in a registry if the engine's own builder cannot write it.
    """
    found = _builder(arguments, context, plan)
    if arguments.cache:
        parse_reference(arguments.cache, "CACHE")
        if not found and find_engine(context.env).is_classic:
            what = "CACHE: the builder of this engine cannot write a cache to a registry"
            hint = (
                "BUILDER=… names one that does (`docker buildx ls`), for a real base; or let the engine keep images in "
                "containerd's store, as Docker 29 does by default"
            )
            raise UsageError(what, hint=hint)
    if found:
        require_builder(find_engine(context.env), found, context.env)
    return found


def _builder(arguments: argparse.Namespace, context: Context, plan: Plan) -> str | None:
    """Return the builder from the options, else from the settings or buildx's variable; None for the engine's.

    With the stand-in base, raises `UsageError` for a builder in the options, and reports and ignores one in the
    settings.
    """
    is_standin = plan.recipe.base.kind is BaseKind.STANDIN
    why = "the stand-in base is only in the engine, and another builder cannot use it"
    if arguments.builder and is_standin:
        hint = "leave BUILDER out, or use a real base: BASE=" + plan.recipe.target.base_tag
        raise UsageError(f"BUILDER: {why}", hint=hint)
    of_buildx = context.env.get("BUILDX_BUILDER", "")
    found = arguments.builder or context.settings.text("builder") or of_buildx
    if found and is_standin:
        context.say(f"builder {found} is not used: {why}")
        return None
    return found or None


def _make_trial(
    arguments: argparse.Namespace, context: Context, catalog: Catalog, plan: Plan
) -> tuple[Work, Built] | None:
    """Make the image of a trial as one layer on the locked image; None if the whole image has to be built."""
    place = making_place(context, arguments.output)
    work = Work(context, catalog, plan, place)
    trial = trial_on(work, options_of(arguments))
    if trial is None:
        return None
    check_cache_space(context.cache, plan)
    parent = place.needed(trial.parent, plan.recipe.name)
    plan = patched(context, catalog, on_labelled_base(plan, dict(parent.labels)))
    work = replace(work, plan=plan)
    context.say(f"trial: {trial.words}, as one layer on {trial.parent}")
    with whole_files(context, plan):
        return work, tried(work, trial)


def _verify_and_push(arguments: argparse.Namespace, work: Work, made: Built) -> Outcome:
    """Verify an image, set its moving tags, and write or push it if the options say so."""
    plan = work.plan
    why = "" if arguments.no_verify or isinstance(work.place, EnginePlace) else work.place.why_not
    result = None if arguments.no_verify or why else verify_built(arguments, work, made.id)
    made = replace(_measured(work.place, made), seconds=time.monotonic() - arguments.clock)
    pushed = arguments.proof if arguments.push else ""
    is_unable = bool(why) and pushed != UNVERIFIED
    code = ExitCode.UNABLE if is_unable else exit_code(result)
    lesser = _partial_proof(work, result, why, pushed)
    references = plan.references[:1] if lesser else _tagged(work, code)
    value = _value(plan, references, made, result) | ({"error": lesser} if is_unable else {})
    outcome = Outcome(code, table(plan, references, made, result), value)
    if lesser:
        work.context.say(f"{'error' if is_unable else 'warning'}: {lesser}")
    if code is ExitCode.VERIFY_FAILED:
        return outcome
    if folder := _layout_folder(arguments):
        _write_layout(work, folder)
        outcome = replace(outcome, text=f"{outcome.text}\n{'written to':<12} {folder}")
    if arguments.push and not is_unable:
        try:
            _push(arguments, work)
        except CanneryError:
            if not work.context.is_json:
                print(outcome.text, flush=True)  # the image exists, and a later push needs its tag
            raise
    if folder or arguments.push:  # a stamp does not cover these outputs
        return outcome
    if result and code is ExitCode.DONE and not lesser:
        again = replace(made, new=(), total=0, seconds=0.0, log=None)
        keep_stamp(arguments, work, made.id, references, table(plan, references, again, result))
    return outcome


def _measured(place: ImagePlace, made: Built) -> Built:
    """Return `made` with its current size. Verify may have fetched layers that were only in a registry."""
    if not isinstance(place, StorePlace):
        return made
    found = place.store.needed(made.id)
    return replace(made, size=found.size, remote=sum(not place.store.is_on_disk(layer) for layer in found.layers))


def _partial_proof(work: Work, result: Verified | None, why: str, pushed: str) -> str:
    """Return what is missing in the proof of an image whose programs this host cannot run, and how to complete it.

    `pushed` is the allowed proof of a push, "" without a push.
    """
    if why:
        missing, proof = f"assembled, not verified: {why}", UNVERIFIED
    elif result and result.report["result"] == PARTIAL:
        missing = f"verified in part, by its files alone: {work.place.cannot(work.plan.recipe.target.arch)}"
        proof = PARTIAL
    else:
        return ""
    name = work.plan.recipe.name
    there = f"`pull {name} --{proof}`, `verify {name}` and `push {name}`"
    if pushed == proof:
        return f"{missing}\n  → on a host that runs it, with the same options, {there} complete it"
    next_step = f"`push {name} --{proof}` takes it to a host that runs it; there {there} complete it"
    return f"{missing}\n  → with the same options, {next_step}"


def _push(arguments: argparse.Namespace, work: Work) -> None:
    from cannery.commands.place import engine_errors
    from cannery.commands.registry import Push, push_made
    from cannery.ship.published import parse_registry

    # Its output is not part of the JSON of an image.
    out = sys.stderr if work.context.is_json else sys.stdout
    work = replace(work, context=replace(work.context, is_json=False))
    with redirect_stdout(out), engine_errors():
        push_made(work, parse_registry(arguments.registry), Push.of(arguments, work.context))


def _layout_folder(arguments: argparse.Namespace) -> str:
    kind, _, folder = (arguments.output or "").partition(":")
    return folder if kind == "oci" else ""


def _write_layout(work: Work, folder: str) -> None:
    """Write an image of the store to an OCI image layout, under its tag."""
    from cannery.store.io.archive import write_oci

    place = work.place
    assert isinstance(place, StorePlace)  # noqa: S101 - --output oci: has chosen it
    write_oci(place.store, work.plan.reference, Path(folder))


def _reuse(arguments: argparse.Namespace, context: Context, catalog: Catalog, plan: Plan) -> Outcome | None:
    """Pull and verify the prebuilt image of this plan. If it has to be built, print the reason and return None."""
    from cannery.engine.io.client import EngineError
    from cannery.ship.io.registry import pull_image

    place = making_place(context, arguments.output)
    work = Work(context, catalog, plan, place)
    before = known_layers(place)
    try:
        dock = _dock(arguments, work)
        found = pull_image(dock)
    except (NetworkError, EngineError) as error:
        context.say(f"not reused: {error}\nbuilding instead")
        return None
    if found is None:
        context.say(f"{dock.reference} is not there for {plan.recipe.target.arch}: building instead")
        return None
    place.tag(found.id, plan.reference)
    new = new_layers(plan, before, list(found.layers))
    made = Built(found.id, found.size, len(found.layers), new, 0, 0, None, dock.reference)
    return _verify_and_push(arguments, replace(work, plan=on_labelled_base(plan, dict(found.labels))), made)


def _tagged(work: Work, code: ExitCode) -> tuple[str, ...]:
    """Set the moving tags to the image, unless verify has failed. Return all of its tags."""
    plan = work.plan
    if code is ExitCode.VERIFY_FAILED:
        return (plan.reference,)
    for alias in plan.references[1:]:
        work.place.tag(plan.reference, alias)
    return plan.references


def _check_emulation(arguments: argparse.Namespace, context: Context, plan: Plan) -> None:
    """Raise `UnableError` if this host's engine would have to run programs of another arch and cannot.

    Without an engine, much of an image can still be made. An engine on another machine, or another builder, is not
    checked: there, the build fails.
    """
    is_remote = context.env.get("DOCKER_HOST", "").startswith(("tcp:", "ssh:"))
    if arguments.builder or is_remote:
        return
    try:
        check_emulation(plan.recipe.target.arch, context.arch)
    except UnableError:
        if isinstance(making_place(context, arguments.output), EnginePlace):
            raise


def _layer_words(made: Built) -> str:
    """Return the number of reused and new layers, and the names of the new ones, unless all are new."""
    reused = made.layers - len(made.new)
    named = f": {', '.join(made.new)}" if made.new and reused else ""
    return f"{made.layers} ({reused} reused, {len(made.new)} new{named})"


def _value(plan: Plan, references: tuple[str, ...], made: Built, verified: Verified | None) -> dict[str, Any]:
    """Return the JSON value of an image."""
    return {
        "references": references,
        **asdict(made),
        "new": len(made.new),
        "reused": made.layers - len(made.new),
        "new_layers": made.new,
        "log": str(made.log) if made.log else None,
        "lacks": lacking_words(plan),
        "report": verified.report if verified else None,
        "remembered": bool(verified and verified.reused),
    }


def table(plan: Plan, references: tuple[str, ...], made: Built, verified: Verified | None) -> str:
    """Return the table about an image."""
    result = "not run" if verified is None else summary_line(verified.report)
    packed = f" (layers in the registry, which count compressed: {made.remote})" if made.remote else ""
    rows = {
        "image": references[0],
        "also tagged": ", ".join(references[1:]),
        "id": made.id,
        "size": f"{made.size / 1e6:.0f} MB{packed}",
        "layers": _layer_words(made),
        "pulled from": made.pulled,
        "steps": f"{made.total} ({made.cached} cached)" if made.total else "",
        "time": f"{made.seconds:.1f} s" if made.seconds else "",
        "log": os.path.relpath(made.log) if made.log else "",
        "verify": f"{result}{' (remembered: same image)' if verified and verified.reused else ''}",
    }
    return "\n".join(row_lines([*rows.items(), *(("lacks", words) for words in lacking_words(plan))]))


COMMANDS = {"image": image}


# With one of these options, a run always does its work and writes no stamp.
ANEW = ("json", "verbose", "no_cache", "no_verify", "verify_again", "reuse", "builder", "push")


def keep_stamp(arguments: argparse.Namespace, work: Work, image_id: str, references: Sequence[str], text: str) -> None:
    """Write the stamp of a successful run with its inputs and outputs. An unchanged next run prints `text`.

    A run with inputs that no digest covers writes no stamp: a base in a registry (whose tag may move), folders of the
    user, or an engine on another machine.
    """
    if not (arguments.begun and _is_covered(arguments, work)):
        return
    context, place = work.context, work.place
    results = stored_results(context.cache, image_id)
    places = Places(
        socket="",
        references=(),
        folders=(str(context.out / work.plan.folder),),
        files=(*map(str, results), str(context.cache / "locks")),
        host=(*wanted_paths(work.catalog.chips[work.plan.recipe.target.chip]), INSTALL_INFO),
    )
    if isinstance(place, EnginePlace):
        places = replace(places, socket=place.engine.host.removeprefix("unix://"), references=tuple(references))
    else:
        names, blobs = place.store.files_of(image_id, references)
        places = replace(places, folders=(*places.folders, *blobs), files=(*places.files, *names))
    outputs = outputs_now(places)
    if results and all(outputs[reference] == image_id for reference in places.references):
        write_stamp(arguments.words, context.out, Stamp(arguments.begun, outputs, places, tuple(text.splitlines())))


def _is_covered(arguments: argparse.Namespace, work: Work) -> bool:
    """Whether digests can cover all inputs of this run."""
    context, place = work.context, work.place
    engine = place.engine if isinstance(place, EnginePlace) else None
    folders = (context.own, context.wheelhouse, context.mirror, context.patches, context.local)
    return (
        work.plan.recipe.base.kind is BaseKind.STANDIN
        and not work.plan.forced
        and not any(getattr(arguments, name, False) for name in ANEW)
        and not any(folders)
        and (engine is None or (engine.host.startswith("unix://") and engine.builder == "default"))
    )
