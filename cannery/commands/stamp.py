"""Which runs of `image` leave a stamp, and what is in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.build.io.stamp import outputs_now, write_stamp
from cannery.build.stamp import Places, Stamp
from cannery.host.facts import INSTALL_INFO, wanted_paths
from cannery.host.io.place import EnginePlace
from cannery.verify.io.run import stored_results
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cannery.engine.io.find import Engine
    from cannery.pipeline import Work

# What a run with one of these does each time.
ANEW = ("json", "verbose", "no_cache", "no_verify", "verify_again", "reuse", "builder", "push")


def keep_stamp(arguments: argparse.Namespace, work: Work, image_id: str, references: Sequence[str], text: str) -> None:
    """Keep what a run that ended well has read and left; a next one without a change prints `text`.

    None is kept of what no digest covers: a base in a registry, which may have moved; folders of the user's; another
    machine's engine.
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
    """Whether digests can cover all that this run has read."""
    context, place = work.context, work.place
    folders = (context.own, context.wheelhouse, context.mirror, context.patches, context.local)
    return (
        work.plan.recipe.base.kind is BaseKind.STANDIN
        and not work.plan.forced
        and not any(getattr(arguments, name, False) for name in ANEW)
        and not any(folders)
        and (_is_of_this_host(place.engine) if isinstance(place, EnginePlace) else True)
    )


def _is_of_this_host(engine: Engine) -> bool:
    return engine.host.startswith("unix://") and engine.builder == "default"
