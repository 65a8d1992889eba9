"""Builds parts of an image from the rendered folder, with an engine's BuildKit or in sandboxes of this host."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from cannery.assemble.image import Settings, config_text, image_config
from cannery.build.stages import brought, spans
from cannery.engine.io.find import INSTALL
from cannery.errors import UnableError
from cannery.host.io.place import EnginePlace
from cannery.making.base import stored_base
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cannery.assemble.image import Part
    from cannery.build.io.buildx import View
    from cannery.build.io.secrets import Secrets
    from cannery.build.progress import BuildState
    from cannery.build.stages import Span
    from cannery.host.io.place import StorePlace
    from cannery.pipeline import Work
    from cannery.sandbox.io.stages import Root


# The log of a build in its rendered folder.
LOG = "log/build.log"


class Way(StrEnum):
    """Who makes the layers of wheels and files: this host, BuildKit, or this host if it can and BuildKit otherwise."""

    AUTO = "auto"
    ASSEMBLE = "assemble"
    BAKE = "bake"


@dataclass(frozen=True)
class BuildOptions:
    """How an image is built. `builder` is a buildx builder; "" is the engine's own.

    `cache` is a reference in a registry from which the builder reads its cache, and to which it writes it, or "".
    `no_cache` makes every layer again.
    """

    builder: str = ""
    cache: str = ""
    no_cache: bool = False
    way: Way = Way.AUTO


def why_baked(work: Work, options: BuildOptions) -> str:
    """Return why BuildKit has to make every layer of this image; "" if this host can assemble it.

    Raises `UnableError` if BuildKit is needed and no engine is running.
    """
    plan, place = work.plan, work.place
    if not isinstance(place, EnginePlace):
        if given := _needing_buildkit(options):
            what = f"{' and '.join(given)} {'needs' if len(given) == 1 else 'need'} BuildKit"
            raise UnableError(f"{what}, and no Docker engine is running", hint=f"leave it out, or {INSTALL}")
        return ""
    is_standin = plan.recipe.base.kind is BaseKind.STANDIN
    reasons = {
        "it makes every stage again (--no-cache)": options.no_cache,
        f"the builder {options.builder} does": bool(options.builder),
        "the engine is on another machine": not place.engine.host.startswith("unix:"),
        f"no base for {plan.build_arch} is in the engine, whose Python compiles the byte code": (
            plan.build_arch is not plan.recipe.target.arch and not is_standin
        ),
    }
    why = next((words for words, is_so in reasons.items() if is_so), "")
    if not why and not place.engine.is_classic:
        return "the engine keeps images in containerd's store, which takes no image without all of its layers"
    return why


def _needing_buildkit(options: BuildOptions) -> list[str]:
    """Return the given options that only BuildKit has."""
    is_given = {
        "--no-cache": options.no_cache,
        "--builder": bool(options.builder),
        "--cache": bool(options.cache),
        "--with bake": options.way is Way.BAKE,
    }
    return [option for option, given in is_given.items() if given]


def baked(work: Work, place: EnginePlace, folder: Path, options: BuildOptions, part: Part) -> tuple[int, int]:
    """Build a part of the rendered folder with BuildKit and the secrets of this host. Returns the result of `bake`."""
    from cannery.build.io.buildx import bake

    view = _step_view(work)
    with _step_secrets(work) as secrets:
        return bake(
            place.engine.buildx_command(builder=options.builder),
            {**place.env, **secrets.env},
            folder,
            target=part.target,
            log=folder / LOG,
            view=view,
            overrides=_overrides(options, part),
            secrets=secrets,
        )


def _overrides(options: BuildOptions, part: Part) -> tuple[str, ...]:
    """Return bake's `--set` values. A builder other than the engine's own has to load the image into the engine.

    The moving tag is set after verify, so that it always names an image that has passed.
    """
    named = f"{part.target}.tags={part.reference}"
    # Some registries (SWR) do not accept OCI manifests, which engines with containerd's image store make by default.
    kind = "docker" if options.builder else "image"
    uncached = ("*.no-cache=true",) if options.no_cache else ()
    ref = f"type=registry,ref={options.cache}"
    cached = (f"*.cache-from={ref}", f"*.cache-to={ref},mode=max") if options.cache else ()
    contexts = (f"{part.target}.contexts.{stage}=docker-image://{name}" for stage, name in part.contexts.items())
    return (named, *uncached, *cached, f"*.output=type={kind},oci-mediatypes=false", *contexts)


def boxed(work: Work, place: StorePlace, folder: Path, part: Part) -> tuple[int, int]:
    """Make a part of the rendered folder in sandboxes, and put its image into the store.

    Returns the number of cached steps and of all steps. Raises like `make_stages`.
    """
    from cannery.sandbox.io.stages import StageRequest, make_stages

    plan, log = work.plan, folder / LOG
    below = next(iter(part.contexts.values()), "") or stored_base(work, place, plan.recipe.target.arch)

    def base(on_build_host: bool) -> Root:  # noqa: FBT001 - what `StageRequest` asks
        return _root(place, stored_base(work, place, plan.build_arch if on_build_host else plan.recipe.target.arch))

    given = {stage: _root(place, name) for stage, name in part.contexts.items()}
    view = _step_view(work)
    with _step_secrets(work) as secrets:
        request = StageRequest(folder, part.target, given, base, secrets, place.store, work.context.cache, log, view)
        diff_ids = make_stages(request)
    words = [f"cannery: {part.target}"] * len(diff_ids)
    config = image_config(place.attributes(below), diff_ids, words, Settings({}, {}, {}), plan.epoch)
    place.store.put(config_text(config), part.reference)
    return 0, len(diff_ids)


def _root(place: StorePlace, name: str) -> Root:
    """Return an image of the store as the root of a stage."""
    from cannery.sandbox.io.stages import Root

    return Root(place.store.lowers(name), place.store.needed(name).env)


@contextmanager
def _step_secrets(work: Work) -> Iterator[Secrets]:
    """Provide the secrets of this host while steps run. Raises like `host_secrets`."""
    from cannery.build.io.secrets import host_secrets

    context = work.context
    suite = work.catalog.standin.suite if work.plan.recipe.base.kind is BaseKind.STANDIN else None
    system = context.settings.mirrors("system")
    with host_secrets(context.cache, context.env, context.pip, suite, system) as secrets:
        yield secrets


def _step_view(work: Work) -> Callable[[], View]:
    """Return a function that makes a view of the steps on stderr."""
    from cannery.build.io.view import Look, make_view

    context = work.context
    progress = context.env.get("BUILDKIT_PROGRESS", "")
    if progress not in {"", "auto", "tty", "plain"}:
        context.say(f"BUILDKIT_PROGRESS={progress} has no effect: plain prints what build steps print, as -v does")
    look = Look(brought(work.plan), context.is_verbose or progress == "plain")
    make = partial(make_view, sys.stderr, look, is_terminal=context.is_terminal, clock=time.monotonic)
    return lambda: _Recording(make(), work.spans)


class _Recording:
    """A view that also records the duration of each step."""

    def __init__(self, shown: View, kept: list[Span]) -> None:
        self.update, self._shown, self._kept = shown.update, shown, kept

    def finish(self, state: BuildState) -> None:
        """Show the last state."""
        self._shown.finish(state)
        self._kept += spans(state)
