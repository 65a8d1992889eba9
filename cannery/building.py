"""How an image is made of a plan: BuildKit builds the rendered folder, or what needs a system and this host the rest.

The surroundings of the run (`Context`) come in with `Work` and go no deeper.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from cannery.assemble.image import Part, Settings, foundation_reference, image_config, layer_words, settings_of
from cannery.errors import BuildFailedError, FindingsError, UnableError
from cannery.lock.io.store import current_lock
from cannery.pipeline import lock_store, planned, rendered
from cannery.plan.manifest import labels
from cannery.plan.plan import LayerKind
from cannery.recipe.environment import start_folder
from cannery.recipe.recipe import with_arch
from cannery.util.io.heartbeat import heartbeat
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cannery.assemble.trial import Trial
    from cannery.build.io.buildx import BakeResult
    from cannery.build.io.place import EnginePlace
    from cannery.context import Context
    from cannery.lock.lock import Lock
    from cannery.pipeline import Work
    from cannery.plan.plan import Plan
    from cannery.recipe.recipe import Options


class Way(StrEnum):
    """Who makes layers that need no system: this host, BuildKit, or this host where it can."""

    AUTO = "auto"
    ASSEMBLE = "assemble"
    BAKE = "bake"


@dataclass(frozen=True)
class BuildOptions:
    """How an image is built: by a buildx builder other than the engine's own ("": the engine's), without its cache."""

    builder: str = ""
    no_cache: bool = False
    way: Way = Way.AUTO


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
    """Render `work.plan` into `folder`, make the stand-in base where the plan uses it, and make the image.

    Raises `UnableError` where it has to be assembled and cannot be.
    """
    context, plan = work.context, work.plan
    why = why_baked(work, options)
    if why and options.way is Way.ASSEMBLE:
        raise UnableError(f"this image cannot be assembled here: {why}", hint="leave `--with assemble` out")
    if plan.recipe.base.kind is BaseKind.STANDIN:
        _make_standins(work)
    context.say(f"{context.shown(folder)}: {rendered(context, work.catalog, plan, folder)}")
    before, begun, bakes = known_layers(work.place), time.monotonic(), []
    if why or options.way is Way.BAKE:
        if why and options.way is not Way.BAKE:
            context.say(f"BuildKit makes every layer: {why}")
        bakes.append(_baked(work, folder, options, Part("image", plan.reference)))
    else:
        _assembled(work, lambda part: bakes.append(_baked(work, folder, options, part)))
    image = work.place.needed(plan.reference, plan.recipe.name)
    steps = sum(one.cached for one in bakes), sum(one.total for one in bakes)
    seconds, log = time.monotonic() - begun, bakes[-1].log if bakes else None
    new = new_layers(plan, before, image.layers)
    return Built(image.id, image.size, len(image.layers), new, *steps, seconds, log)


def why_baked(work: Work, options: BuildOptions) -> str:
    """Return why BuildKit has to make every layer of this image; "" where this host can assemble it."""
    from cannery.engine.io.inspect import has_classic_store

    plan = work.plan
    is_standin = plan.recipe.base.kind is BaseKind.STANDIN
    reasons = {
        "it makes every stage again (--no-cache)": options.no_cache,
        f"the builder {options.builder} does": bool(options.builder),
        "the engine is on another machine": not work.place.engine.host.startswith("unix:"),
        f"no base for {plan.build_arch} is in the engine, whose Python compiles the byte code": (
            plan.build_arch is not plan.recipe.target.arch and not is_standin
        ),
    }
    why = next((words for words, is_so in reasons.items() if is_so), "")
    if not why and not has_classic_store(work.place.client):
        return "the engine keeps images in containerd's store, which takes no image without all of its layers"
    return why


def _assembled(work: Work, bake: Callable[[Part], None]) -> None:
    """Make the image of `work.plan` from its foundation, and layers that this host makes.

    `bake` builds a part of the rendered folder.
    """
    from cannery.assembling import bench, diff_ids, forget_parts, handed_over, source_ids

    plan = work.plan
    foundation = foundation_reference(plan)
    if work.place.find(foundation) is None:
        bake(Part("foundation", foundation))
    base = work.place.attributes(foundation)
    kinds = {kind: [layer for layer in plan.layers if layer.kind is kind] for kind in LayerKind}
    with bench(work, base["Id"]) as on:
        lower = diff_ids(on, kinds[LayerKind.GROUP])
        sources = source_ids(on, base, lower, bake) if kinds[LayerKind.SOURCE] else []
        upper = diff_ids(on, [*kinds[LayerKind.TREE], *kinds[LayerKind.LINKS], *kinds[LayerKind.FILES]])
        words = layer_words(plan.layers[len(plan.foundation) :])
        config = image_config(base, [*lower, *sources, *upper], words, settings_of(plan), plan.epoch)
        handed_over(on, config, plan.reference, {**lower, **upper})
        if sources:
            forget_parts(on, base, lower)


def tried(work: Work, trial: Trial) -> Built:
    """Make the image of `work.plan` as one layer on the image of the locked set, which the engine has.

    Raises `BuildFailedError` for a wheel that cannot be installed, `NetworkError` and `UnableError`.
    """
    from cannery.assemble.io.trial import Changes, trial_content
    from cannery.assemble.trial import TRIAL_LABEL
    from cannery.assembling import bench, handed_over, made, wheels_of
    from cannery.render.render import files_layer

    context, plan = work.context, work.plan
    begun = time.monotonic()
    parent = work.place.attributes(trial.parent)
    changes = Changes(
        added=wheels_of(work, trial.added),
        removed=wheels_of(work, trial.removed),
        kept=wheels_of(work, trial.kept),
        texts=files_layer(plan, context.templates(), work.catalog.compatibility),
    )
    settings = Settings({}, {**labels(plan), TRIAL_LABEL: trial.parent}, {})
    with bench(work, parent["Id"]) as on:
        (layer,) = made(on, [trial_content(changes, on.place.python)])
        config = image_config(parent, [layer.diff_id], ["cannery: what the tried set changes"], settings, plan.epoch)
        handed_over(on, config, plan.reference, {})
    image = work.place.needed(plan.reference, plan.recipe.name)
    seconds = time.monotonic() - begun
    return Built(image.id, image.size, len(image.layers), (trial.words,), 0, 0, seconds, None)


def trial_on(work: Work, options: Options) -> Trial | None:
    """Return what the plan of `work` changes on the locked image; None where a whole image has to be built.

    A trial is made where its profile's locked image is in the engine, where only some wheels differ, and where the
    engine takes an archive without the layers that it has.
    """
    from cannery.assemble.trial import trial_of
    from cannery.engine.io.inspect import has_classic_store

    recipe = work.plan.recipe
    if not recipe.pins:
        return None
    try:
        locked = planned(work.context, recipe.name, replace(options, pins=(), force=False), catalog=work.catalog).plan
    except FindingsError:
        return None
    trial = trial_of(work.plan, locked)
    if trial is None or not has_classic_store(work.place.client):
        return None
    return trial if work.place.find(trial.parent) else None


def _baked(work: Work, folder: Path, options: BuildOptions, part: Part) -> BakeResult:
    """Build a part of the rendered folder, with what this host has to keep secret at hand."""
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
            work.place.engine.buildx_command(builder=options.builder),
            {**work.place.env, **secrets.env},
            folder,
            target=part.target,
            log=folder / "log" / "build.log",
            view=partial(make_view, sys.stderr, look, is_terminal=context.is_terminal, clock=time.monotonic),
            overrides=_overrides(options, part),
            secrets=secrets,
        )


def new_layers(plan: Plan, known: list[str], layers: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the layers of an image that are not in `known`, the layers of other images; "base" once.

    The last layers are those of the plan, in its order; a folder to start in adds one on the foundation.
    """
    before = set(known)
    folder = ["workdir"] if start_folder(plan.recipe) else []
    lower = len(plan.foundation)
    first = len(layers) - len(plan.layers) - len(folder)
    names = [layer.name for layer in plan.layers]
    names = [*["base"] * first, *names[:lower], *folder, *names[lower:]]
    return tuple(dict.fromkeys(name for name, layer in zip(names, layers, strict=False) if layer not in before))


@contextmanager
def whole_files(context: Context, plan: Plan) -> Iterator[None]:
    """After a failed build, look for stored files that the disk has damaged; remove them, and report their names."""
    try:
        yield
    except BuildFailedError as error:
        from cannery.lock.io.wheels import damaged

        packages = damaged([*plan.lock.packages, *plan.tools.packages], context.cache)
        lost = [package.file for package in packages]
        if lost:
            error.hint = f"damaged on this disk and removed: {', '.join(lost)}; the same command fetches them again"
        raise


def known_layers(place: EnginePlace) -> list[str]:
    """Return the layers of every image that is there."""
    return [layer for layers in place.chains() for layer in layers]


def _overrides(options: BuildOptions, part: Part) -> tuple[str, ...]:
    """Return bake's `--set` values. A builder other than the engine's own has to hand the image over.

    The moving tag is set after verify: whoever pulls it gets what has passed.
    """
    named = f"{part.target}.tags={part.reference}"
    # Some registries take no OCI manifest (SWR), which is what newer engines that store by containerd make of an image.
    kind = "docker" if options.builder else "image"
    uncached = ("*.no-cache=true",) if options.no_cache else ()
    return (named, *uncached, f"*.output=type={kind},oci-mediatypes=false", *part.overrides)


def _make_standins(work: Work) -> None:
    """Bring the stand-in base into the engine, for the target and for the build host's own arch."""
    context, catalog, plan = work.context, work.catalog, work.plan
    wanted = [pair for pair in _standin_locks(work) if work.place.find(pair[0]) is None]
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
            ensure_standin(request, engine_client=work.place.client, cache=context.cache, say=context.say)


def _standin_locks(work: Work) -> Iterator[tuple[str, Lock]]:
    plan = work.plan
    yield plan.base_reference, plan.lock
    if plan.build_reference != plan.base_reference:
        yield plan.build_reference, current_lock(lock_store(work.context), work.catalog, plan.recipe, plan.build_arch)
