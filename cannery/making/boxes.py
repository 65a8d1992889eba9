"""Parts of an image that are made in boxes of this host, without an engine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cannery.assemble.image import Settings, config_text, env_of, image_config
from cannery.making.base import stored_base
from cannery.making.steps import step_secrets, step_view

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.assemble.image import Part
    from cannery.build.io.buildx import BakeResult
    from cannery.host.io.place import StorePlace
    from cannery.pipeline import Work
    from cannery.sandbox.io.stages import Root


def boxed(work: Work, place: StorePlace, folder: Path, part: Part) -> BakeResult:
    """Make a part of the rendered folder, and put its image into the store. Raises as `make_stages`."""
    from cannery.build.io.buildx import BakeResult
    from cannery.sandbox.io.stages import StageRequest, make_stages

    plan, begun, log = work.plan, time.monotonic(), folder / "log" / "build.log"
    arches = {False: plan.recipe.target.arch, True: plan.build_arch}
    below = next(iter(part.contexts.values()), "") or stored_base(work, place, plan.recipe.target.arch)

    def base(_name: str, on_build_host: bool) -> Root:  # noqa: FBT001 - what `StageRequest` asks
        return _root(place, stored_base(work, place, arches[on_build_host]))

    given = {stage: _root(place, name) for stage, name in part.contexts.items()}
    view = step_view(work)
    with step_secrets(work) as secrets:
        request = StageRequest(folder, part.target, given, base, secrets, work.context.cache, log, view)
        layers = make_stages(request)
    for layer in layers:
        with layer.stream:
            place.store.add(layer.stream, layer.made.diff_id)
    words = [f"cannery: {part.target}"] * len(layers)
    diff_ids = [layer.made.diff_id for layer in layers]
    config = image_config(place.attributes(below), diff_ids, words, Settings({}, {}, {}), plan.epoch)
    place.store.put(config_text(config), part.reference)
    return BakeResult(0, len(layers), time.monotonic() - begun, log)


def _root(place: StorePlace, name: str) -> Root:
    """Return an image of the store as what a stage begins on."""
    from cannery.sandbox.io.stages import Root

    return Root(place.store.lowers(name), env_of(place.attributes(name)["Config"]))
