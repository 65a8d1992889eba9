"""How an image is made of a plan: BuildKit builds the rendered folder, or a tried set is a layer on the locked image.

The surroundings of the run (`Context`) come in with `Work` and go no deeper.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cannery.errors import BuildFailedError, FindingsError
from cannery.lock.io.store import current_lock
from cannery.pipeline import lock_store, planned, rendered
from cannery.plan.manifest import labels
from cannery.recipe.environment import start_folder
from cannery.recipe.recipe import with_arch
from cannery.util.io.heartbeat import heartbeat
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import docker

    from cannery.assemble.trial import Trial
    from cannery.build.io.buildx import BakeResult
    from cannery.context import Context
    from cannery.lock.lock import Lock
    from cannery.pipeline import Work
    from cannery.plan.plan import Plan
    from cannery.recipe.recipe import Options


@dataclass(frozen=True)
class BuildOptions:
    """How an image is built: by a buildx builder other than the engine's own ("": the engine's), without its cache."""

    builder: str = ""
    no_cache: bool = False


@dataclass(frozen=True)
class Built:
    """A built image: id, bytes, layers (in all, names of the new ones), steps (cached, in all), seconds, build log.

    One that was pulled in place of a build has no step and no log, and `pulled` is where it came from.
    """

    id: str
    size: int
    layers: int
    new: tuple[str, ...]
    cached: int
    total: int
    seconds: float
    log: Path | None
    pulled: str = ""


def built(work: Work, folder: Path, options: BuildOptions) -> Built:
    """Render `work.plan` into `folder`, make the stand-in base where the plan uses it, and build the image."""
    context, plan = work.context, work.plan
    if plan.recipe.base.kind is BaseKind.STANDIN:
        _make_standins(work)
    context.say(f"{context.shown(folder)}: {rendered(context, work.catalog, plan, folder)}")
    before = known_layers(work.client)
    result = _baked(work, folder, options)
    attributes = work.client.images.get(plan.reference).attrs
    layers = attributes["RootFS"]["Layers"]
    new = new_layers(plan, before, layers)
    return Built(
        attributes["Id"], attributes["Size"], len(layers), new, result.cached, result.total, result.seconds, result.log
    )


def tried(work: Work, trial: Trial, interpreter: str) -> Built:
    """Make the image of `work.plan` as one layer on the image of the locked set, which the engine has.

    `interpreter` is a Python of the target's version on this host. Raises `FindingsError` for a wheel that cannot be
    installed, `NetworkError` and `UnableError`.
    """
    from cannery.assemble.io.trial import Content, archive, write_layer
    from cannery.assemble.trial import TRIAL_LABEL, image_config
    from cannery.build.io.transfer_view import transfer
    from cannery.engine.io.client import EngineError, load, load_error
    from cannery.lock.io.wheels import fetch_wheels
    from cannery.render.render import files_layer

    context, plan = work.context, work.plan
    begun = time.monotonic()
    fetch = partial(fetch_wheels, context.downloads, work.catalog.indexes)
    old, new = fetch(trial.removed), fetch([*trial.added, *trial.kept])
    content = Content(
        added=[new[package.name] for package in trial.added],
        removed=list(old.values()),
        kept=[new[package.name] for package in trial.kept],
        texts=files_layer(plan, context.templates(), work.catalog.compatibility),
        python=plan.recipe.target.python,
        epoch=plan.epoch,
        interpreter=interpreter,
    )
    parent = work.client.images.get(trial.parent).attrs
    context.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=context.cache) as layer:
        diff_id = write_layer(content, layer, len(os.sched_getaffinity(0)))
        config = image_config(parent, diff_id, {**labels(plan), TRIAL_LABEL: trial.parent}, plan.epoch)
        blocks = archive(layer, config, plan.reference)
        with transfer("loading the new layer", 0, sys.stderr, is_terminal=context.is_terminal) as view:
            try:
                load(work.client, blocks, view)
            except EngineError as error:
                raise load_error(error, plan.reference, context.pip.redact) from error
    attributes = work.client.images.get(plan.reference).attrs
    count = len(attributes["RootFS"]["Layers"])
    seconds = time.monotonic() - begun
    return Built(attributes["Id"], attributes["Size"], count, (trial.words,), 0, 0, seconds, None)


def trial_on(work: Work, options: Options) -> tuple[Trial, str] | None:
    """Return what the plan of `work` changes on the locked image, and a Python to compile it; None for a whole build.

    A trial is made where its profile's locked image is in the engine, where only wheels differ, small enough to be held
    in memory, where the engine takes an archive without the layers that it has, and where this host has a Python of the
    target's version.
    """
    from cannery.assemble.io.trial import interpreter_of
    from cannery.assemble.trial import trial_of
    from cannery.engine.io.inspect import has_classic_store, image_id

    recipe = work.plan.recipe
    if not recipe.pins:
        return None
    try:
        locked = planned(work.context, recipe.name, replace(options, pins=(), force=False), catalog=work.catalog).plan
    except FindingsError:
        return None
    trial, interpreter = trial_of(work.plan, locked), interpreter_of(recipe.target.python)
    if trial is None or interpreter is None or not has_classic_store(work.client):
        return None
    return (trial, interpreter) if image_id(work.client, trial.parent) else None


def _baked(work: Work, folder: Path, options: BuildOptions) -> BakeResult:
    """Build the rendered folder, with what this host has to keep secret at hand."""
    from cannery.build.io.buildx import bake
    from cannery.build.io.secrets import host_secrets
    from cannery.build.io.view import Look, make_view
    from cannery.build.stages import brought

    context, plan = work.context, work.plan
    progress = context.env.get("BUILDKIT_PROGRESS", "")
    if progress not in {"", "auto", "tty", "plain"}:
        context.say(f"BUILDKIT_PROGRESS={progress} has no effect: plain prints what build steps print, as -v does")
    look = Look(brought(plan), context.is_verbose or progress == "plain")
    suite = work.catalog.standin.suite if plan.recipe.base.kind is BaseKind.STANDIN else None
    system = context.settings.mirrors("system")
    with host_secrets(context.cache, context.env, context.pip, suite, system) as secrets:
        return bake(
            work.engine.buildx_command(builder=options.builder),
            {**work.engine.client_env(context.env), **secrets.env},
            folder,
            log=folder / "log" / "build.log",
            view=partial(make_view, sys.stderr, look, is_terminal=context.is_terminal, clock=time.monotonic),
            overrides=_overrides(options, plan),
            secrets=secrets,
        )


def new_layers(plan: Plan, known: list[str], layers: list[str]) -> tuple[str, ...]:
    """Return the names of the layers of an image that are not in `known`, the layers of other images; "base" once.

    The last layers are those of the plan, in its order; a folder to start in adds one behind them.
    """
    before = set(known)
    first = len(layers) - len(plan.layers) - (1 if start_folder(plan.recipe) else 0)
    names = (*["base"] * first, *(layer.name for layer in plan.layers), "workdir")
    return tuple(dict.fromkeys(name for name, layer in zip(names, layers, strict=False) if layer not in before))


@contextmanager
def whole_files(context: Context, plan: Plan) -> Iterator[None]:
    """After a failed build, look for stored files that the disk has damaged; remove them, and report their names."""
    try:
        yield
    except BuildFailedError as error:
        from cannery.lock.io.wheels import damaged
        from cannery.sources.io.archives import damaged_archives

        packages = damaged([*plan.lock.packages, *plan.tools.packages], context.cache)
        archives = damaged_archives(plan.archives, context.cache)
        lost = [package.file for package in packages] + [step.file for step in archives]
        if lost:
            error.hint = f"damaged on this disk and removed: {', '.join(lost)}; the same command fetches them again"
        raise


def known_layers(client: docker.DockerClient) -> list[str]:
    """Return the layers of every image that the engine holds."""
    return [layer for found in client.images.list() for layer in found.attrs["RootFS"].get("Layers") or ()]


def _overrides(options: BuildOptions, plan: Plan) -> tuple[str, ...]:
    """Return bake's `--set` values. A builder other than the engine's own has to hand the image over.

    The moving tag is set after verify: whoever pulls it gets what has passed.
    """
    overrides = [f"image.tags={plan.reference}", *(["*.no-cache=true"] if options.no_cache else [])]
    # Some registries take no OCI manifest (SWR), which is what newer engines that store by containerd make of an image.
    kind = "docker" if options.builder else "image"
    return (*overrides, f"*.output=type={kind},oci-mediatypes=false")


def _make_standins(work: Work) -> None:
    """Bring the stand-in base into the engine, for the target and for the build host's own arch."""
    from cannery.engine.io.inspect import image_id

    context, catalog, plan = work.context, work.catalog, work.plan
    wanted = [pair for pair in _standin_locks(work) if image_id(work.client, pair[0]) is None]
    if not wanted:
        return
    from cannery.lock.io.wheels import fetch_wheels
    from cannery.standin.io.load import StandInRequest, ensure_standin
    from cannery.standin.spec import TORCH_NPU, standin_spec

    for reference, lock in wanted:
        spec = standin_spec(with_arch(plan.recipe, lock.arch), lock, catalog.standin)
        if spec.reference != reference:
            raise AssertionError(f"planned {reference}, made {spec.reference}")
        wanted_wheels = [spec.torch_npu] if spec.torch_npu else []
        with heartbeat(context.say, lambda: "making the stand-in base"):
            wheel = fetch_wheels(context.downloads, catalog.indexes, wanted_wheels).get(TORCH_NPU)
            request = StandInRequest(spec=spec, torch_npu_wheel=wheel, host_arch=context.arch)
            ensure_standin(request, engine_client=work.client, cache=context.cache, say=context.say)


def _standin_locks(work: Work) -> Iterator[tuple[str, Lock]]:
    plan = work.plan
    yield plan.base_reference, plan.lock
    if plan.build_reference != plan.base_reference:
        yield plan.build_reference, current_lock(lock_store(work.context), work.catalog, plan.recipe, plan.build_arch)
