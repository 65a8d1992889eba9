"""Makes the image of a plan. BuildKit or a sandbox makes the foundation and sources, and this host the other layers."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cannery.assemble.image import Part, Settings, config_text, foundation_reference, image_config, planned_config
from cannery.build.io.buildx import keep_spans
from cannery.build.stages import Span
from cannery.errors import BuildFailedError, FindingsError, UnableError
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.lock.io.wheels import is_in_store
from cannery.making.base import make_standins
from cannery.making.parts import LOG, BuildOptions, Way, baked, boxed, why_baked
from cannery.pipeline import planned, rendered
from cannery.plan import LayerKind
from cannery.plan.manifest import labels
from cannery.recipe.environment import start_folder
from cannery.util.addresses import digest_of
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cannery.assemble.trial import Trial
    from cannery.context import Context
    from cannery.host.io.place import ImagePlace
    from cannery.pipeline import Work
    from cannery.plan import Plan
    from cannery.recipe.recipe import Options
    from cannery.ship.io.registry import Dock


@dataclass(frozen=True)
class Built:
    """A built image: id, bytes, number of layers, names of new layers, cached and total steps, build log.

    A pulled image has no steps and no log; `pulled` is where it came from. `seconds` is the time of the whole command,
    which the caller sets. `remote` is the number of layers that are only in a registry. `size` includes their
    compressed size, because the other size is not known.
    """

    id: str
    size: int
    layers: int
    new: tuple[str, ...]
    cached: int
    total: int
    log: Path | None
    pulled: str = ""
    seconds: float = 0.0
    remote: int = 0


def kept(work: Work, folder: Path, options: BuildOptions) -> Built | None:
    """Return the image of `work.plan` if the image store has it, and the cache does not have all of its wheels.

    It must have the configuration that this host would write for the plan. So an image of another plan, a trial, or an
    image built on the image of the plan does not count, even under the same name. If the wheels are there, the image is
    made from them as always. Raises `UnableError` if the options need an engine and none is running.
    """
    place, plan, context = work.place, work.plan, work.context
    packages = [*plan.lock.packages, *plan.tools.packages]
    if isinstance(place, EnginePlace) or why_baked(work, options):
        return None
    if all(is_in_store(package, context.cache) for package in packages):
        return None
    found = place.find(plan.reference)
    if found is None or found.id != _planned_id(plan, place.attributes(found.id)):
        return None
    hint = f"`build.py render {plan.recipe.name}` fetches them"
    context.say(f"the image store has this image; {context.shown(folder)} is not written without its wheels ({hint})")
    return Built(found.id, found.size, len(found.layers), (), 0, 0, None)


def _planned_id(plan: Plan, image: Mapping[str, Any]) -> str:
    """Return the id that this host would give to the image of `plan` if it made the layers of `image`."""
    layers, count = image["RootFS"]["Layers"], len(plan.upper)
    foundation = {**image, "RootFS": {"Layers": layers[:-count]}}
    return digest_of(config_text(planned_config(plan, foundation, layers[-count:])))


def built(work: Work, folder: Path, options: BuildOptions, dock: Dock | None = None) -> Built:
    """Render `work.plan` into `folder`, make the stand-in base if it is needed, and make the image.

    The foundation comes from the registry of `dock`, if it is there. In the image store, compiled sources do too.

    Raises `UnableError` if `--with assemble` is not possible here, or if the image needs an engine and none is running.
    """
    context, plan, place = work.context, work.plan, work.place
    why = why_baked(work, options)
    if why and options.way is Way.ASSEMBLE:
        raise UnableError(f"this image cannot be assembled here: {why}", hint="leave `--with assemble` out")
    is_baked = bool(why) or options.way is Way.BAKE
    if dock and not is_baked:
        from cannery.making.sharing import take_foundation

        take_foundation(work, dock)
    has_foundation = not is_baked and place.find(foundation_reference(plan)) is not None
    if isinstance(place, StorePlace) and not has_foundation:
        _check_runs(work, place, "foundation")
    needs_base = not has_foundation or any(layer.kind is LayerKind.SOURCE for layer in plan.layers)
    needs_base |= plan.build_arch is not plan.recipe.target.arch or isinstance(place, EnginePlace)  # for a bake by hand
    if plan.recipe.base.kind is BaseKind.STANDIN and needs_base:
        make_standins(work)
    fetch = time.time()
    context.say(f"{context.shown(folder)}: {rendered(context, work.catalog, plan, folder)}")
    fetched = Span("wheels and sources", fetch, time.time() - fetch)
    before, steps = known_layers(place), list[tuple[int, int]]()

    def make(part: Part) -> None:
        if isinstance(place, EnginePlace):
            steps.append(baked(work, place, folder, options, part))
        elif not (dock and _taken(work, dock, part)):
            _check_runs(work, place, part.target)
            steps.append(boxed(work, place, folder, part))

    if is_baked:
        if why and options.way is not Way.BAKE:
            context.say(f"BuildKit makes every layer: {why}")
        make(Part("image", plan.reference))
    else:
        _assembled(work, make)
    image = place.needed(plan.reference, plan.recipe.name)
    counts = sum(cached for cached, _ in steps), sum(total for _, total in steps)
    log = folder / LOG if steps else None
    new = new_layers(plan, before, image.layers)
    keep_spans(folder, plan.reference, work.spans and [fetched, *work.spans])
    return Built(image.id, image.size, len(image.layers), new, *counts, log)


def _taken(work: Work, dock: Dock, part: Part) -> bool:
    """Get compiled sources from the registry of `dock`; return whether it had them."""
    from cannery.making.sharing import take_part

    return part.target == "sources" and take_part(work, dock, part.reference) is not None


def _check_runs(work: Work, place: StorePlace, target: str) -> None:
    """Raise `UnableError` if a part of the image must be made in a sandbox and this host cannot run its programs."""
    names = [layer.name for layer in work.plan.layers if layer.kind is LayerKind.SOURCE]
    part = f"the sources ({', '.join(names)})" if target == "sources" else "the foundation (base, system packages)"
    if why := place.cannot(work.plan.recipe.target.arch):
        hint = f"REGISTRY=… takes the {target} from there, if another machine has pushed an image that has the same"
        raise UnableError(f"this host cannot make {part}, which the image store does not have: {why}", hint=hint)


def _assembled(work: Work, make: Callable[[Part], None]) -> None:
    """Make the image of `work.plan`: this host makes the layers above the foundation.

    `make` builds a part of the rendered folder.
    """
    from cannery.making.assemble import diff_ids, forget_parts, open_assembly, source_ids, store_image

    plan = work.plan
    foundation = foundation_reference(plan)
    if work.place.find(foundation) is None:
        make(Part("foundation", foundation))
    base = work.place.attributes(foundation)
    kinds = {kind: [layer for layer in plan.layers if layer.kind is kind] for kind in LayerKind}
    with open_assembly(work, base["Id"]) as assembly:
        lower = diff_ids(assembly, kinds[LayerKind.GROUP])
        sources = source_ids(assembly, base, lower, make) if kinds[LayerKind.SOURCE] else []
        upper = diff_ids(assembly, [*kinds[LayerKind.TREE], *kinds[LayerKind.LINKS], *kinds[LayerKind.FILES]])
        config = planned_config(plan, base, [*lower, *sources, *upper])
        store_image(assembly, config, plan.reference, {**lower, **upper})
        if sources:
            forget_parts(assembly, base, lower)


def tried(work: Work, trial: Trial) -> Built:
    """Make the image of `work.plan` as one layer on the locked image in the engine or image store.

    Raises `BuildFailedError` for a wheel that cannot be installed, `NetworkError` and `UnableError`.
    """
    from cannery.assemble.io.trial import Changes, trial_content
    from cannery.assemble.trial import TRIAL_LABEL
    from cannery.making.assemble import make_layers, open_assembly, store_image, wheels_of
    from cannery.render.render import files_layer

    context, plan = work.context, work.plan
    parent = work.place.attributes(trial.parent)
    changes = Changes(
        added=wheels_of(work, trial.added),
        removed=wheels_of(work, trial.removed),
        kept=wheels_of(work, trial.kept),
        texts=files_layer(plan, context.templates, work.catalog.compatibility),
    )
    settings = Settings({}, {**labels(plan), TRIAL_LABEL: trial.parent}, {})
    if plan.recipe.base.kind is BaseKind.STANDIN and work.place.cannot(plan.recipe.target.arch):
        make_standins(work)  # the stand-in's Python compiles the byte code
    with open_assembly(work, parent["Id"]) as assembly:
        (layer,) = make_layers(assembly, [trial_content(changes, assembly.place.python)])
        config = image_config(parent, [layer.diff_id], ["cannery: what the tried set changes"], settings, plan.epoch)
        store_image(assembly, config, plan.reference, {})
    image = work.place.needed(plan.reference, plan.recipe.name)
    keep_spans(context.out / plan.folder, plan.reference, work.spans)
    return Built(image.id, image.size, len(image.layers), (trial.words,), 0, 0, None)


def trial_on(work: Work, options: Options) -> Trial | None:
    """Return the changes of `work.plan` on the locked image; None if a whole image has to be built.

    A trial is possible if only some wheels differ, the locked image is in the engine or image store, and the engine
    accepts an archive without the layers that it already has.
    """
    from cannery.assemble.trial import trial_of

    recipe = work.plan.recipe
    if not recipe.pins:
        return None
    try:
        locked = planned(work.context, recipe.name, replace(options, pins=(), force=False), catalog=work.catalog).plan
    except FindingsError:
        return None
    trial = trial_of(work.plan, locked)
    place = work.place
    if trial is None or (isinstance(place, EnginePlace) and not place.engine.is_classic):
        return None
    return trial if place.find(trial.parent) else None


def new_layers(plan: Plan, known: list[str], layers: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the layers of an image that are not in `known`, the layers of other images.

    The layers of the base are "base". The last layers are those of the plan, in its order. A working directory adds a
    layer on the foundation.
    """
    before = set(known)
    folder = ["workdir"] if start_folder(plan.recipe) else []
    first = len(layers) - len(plan.layers) - len(folder)
    lower, upper = ([layer.name for layer in part] for part in (plan.foundation, plan.upper))
    names = [*["base"] * first, *lower, *folder, *upper]
    return tuple(dict.fromkeys(name for name, layer in zip(names, layers, strict=False) if layer not in before))


@contextmanager
def whole_files(context: Context, plan: Plan) -> Iterator[None]:
    """After a failed build, check the stored files, remove those that the disk has damaged, and report their names."""
    try:
        yield
    except BuildFailedError as error:
        from cannery.lock.io.wheels import damaged

        packages = damaged([*plan.lock.packages, *plan.tools.packages], context.cache)
        lost = [package.file for package in packages]
        if lost:
            error.hint = f"damaged on this disk and removed: {', '.join(lost)}; the same command fetches them again"
        raise


def known_layers(place: ImagePlace) -> list[str]:
    """Return the layers of all images in the engine or image store."""
    return [layer for layers in place.chains() for layer in layers]
