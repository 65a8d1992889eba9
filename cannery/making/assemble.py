"""Assembles an image on this host: writes its layers directly from wheels, texts and links, on top of a foundation.

The foundation is made once, and is in an engine or in the image store. An engine is only sent the layers that it is
missing. In the image store, the layers are written directly. A trial is one layer, made in the same way on the locked
image. `Work` carries the settings of this run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any

from cannery.assemble.content import Content, Made, Place, Tree, Wheel
from cannery.assemble.image import Part, Settings, config_text, image_config, layer_words, part_references
from cannery.assemble.io.code import code_path, make_code, modules_in, python_worker
from cannery.assemble.io.layer import made_before, remember, write_layer
from cannery.assemble.io.sink import GzipSink
from cannery.assemble.io.wheel_files import WheelError
from cannery.build.stages import Span
from cannery.engine.io.transfer_view import transfer
from cannery.errors import BuildFailedError, UnableError
from cannery.host.io.place import StorePlace
from cannery.lock.io.wheels import fetch_wheels
from cannery.plan import LayerKind
from cannery.recipe.environment import python_home
from cannery.render.render import files_layer, stage_name
from cannery.util.addresses import digest_of
from cannery.util.io.waiting import heartbeat
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cannery.assemble.io.code import Modules, Worker
    from cannery.lock.lock import LockedPackage
    from cannery.pipeline import Work
    from cannery.plan import Layer
    from cannery.store.io.store import Store


@dataclass(frozen=True)
class Assembly:
    """State of one assembly: the run, the byte-code compiler, and the layer files written so far, by DiffID."""

    work: Work
    worker: Worker
    place: Place
    stack: ExitStack
    files: dict[str, IO[bytes]] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        """The cache folder."""
        return self.work.context.cache


def python_image(work: Work, image: str) -> str | None:
    """Return the id of the image whose Python compiles byte code for the plan's target; None if there is none.

    `image` is the id of an image for the target. Byte code does not depend on the architecture, and emulation takes
    minutes. So for a target with another architecture, the stand-in base for this host is used.
    """
    plan = work.plan
    if plan.build_arch is plan.recipe.target.arch:
        return image
    found = work.place.find(plan.build_reference) if plan.recipe.base.kind is BaseKind.STANDIN else None
    return found.id if found else None


@contextmanager
def open_assembly(work: Work, image: str) -> Iterator[Assembly]:
    """Yield an assembly that compiles with the Python of the image `image`. Its files are removed at the end."""
    context, recipe = work.context, work.plan.recipe
    python = f"{python_home(recipe.base.tag)}/bin/python3"
    worker = python_worker(work.place, python_image(work, image) or image, python, context.cache)
    with ExitStack() as stack:
        yield Assembly(work, worker, Place(recipe.target.python, work.plan.epoch), stack)


def wheels_of(work: Work, packages: Sequence[LockedPackage]) -> tuple[Wheel, ...]:
    """Return the wheels of packages. Missing ones are fetched. Raises `NetworkError`."""
    files = fetch_wheels(work.context.downloads, work.catalog.indexes, packages)
    return tuple(Wheel(files[package.name], package.sha256) for package in packages)


def content_of(work: Work, layer: Layer) -> Content:
    """Return the content of a layer of wheels, of a source tree, of links or of files."""
    return replace(_content(work, layer), stage=stage_name(layer))


def _content(work: Work, layer: Layer) -> Content:
    plan = work.plan
    if layer.kind is LayerKind.LINKS:
        return Content(links={link.path: link.target for link in plan.links})
    if layer.kind is LayerKind.FILES:
        return Content(texts=files_layer(plan, work.context.templates, work.catalog.compatibility))
    if layer.kind is LayerKind.TREE:
        (step,) = (step for step in plan.sources if step.name == layer.name)
        tar = work.context.out / plan.folder / "sources" / step.file
        patched = tuple(file for tree in plan.patched if tree.component == step.name for file in tree.files)
        return Content(trees=(Tree(tar, step.path, patched),))
    (group,) = (group for group in plan.groups if group.name == layer.name)
    return Content(wheels=wheels_of(work, group.packages))


def make_layers(assembly: Assembly, contents: Sequence[Content]) -> list[Made]:
    """Make layers, one per core at a time, in the image store or, for an engine, in files of the assembly.

    Raises `BuildFailedError` for a wheel that cannot be installed or is damaged, and `UnableError`.
    """
    modules = [modules_in(content, assembly.place.python) for content in contents]
    store = assembly.work.place.store if isinstance(assembly.work.place, StorePlace) else None

    def write(content: Content, code: Sequence[Modules]) -> Made:
        begun = time.time()
        found = _write_layer(assembly, content, code) if store is None else _stored(assembly, store, content, code)
        assembly.work.spans.append(Span(content.stage, begun, time.time() - begun))
        return found

    what = "making 1 layer" if len(contents) == 1 else f"making {len(contents)} layers"
    try:
        with (
            heartbeat(assembly.work.context.say, lambda: what),
            ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
        ):
            begun = time.time()
            make_code([one for some in modules for one in some], assembly.worker, assembly.cache)
            assembly.work.spans.append(Span("byte code", begun, time.time() - begun))
            return list(pool.map(write, contents, modules))
    except WheelError as error:
        hint = "the same command downloads a damaged file again; otherwise ask the package's makers for a correct wheel"
        raise BuildFailedError(str(error), where="a wheel of the lock", hint=hint) from error


def _stored(assembly: Assembly, store: Store, content: Content, modules: Sequence[Modules]) -> Made:
    """Write a layer into the image store, as gzip."""
    layer = store.write(lambda part: write_layer(content, assembly.place, _code(assembly, modules), part, GzipSink))
    return Made(layer.diff_id, layer.raw)


def _write_layer(assembly: Assembly, content: Content, modules: Sequence[Modules]) -> Made:
    """Write a layer into a file of the assembly."""
    folder = assembly.cache / "layers"
    folder.mkdir(parents=True, exist_ok=True)
    stream = assembly.stack.enter_context(_new_file(folder))
    found = write_layer(content, assembly.place, _code(assembly, modules), stream)
    assembly.files[found.diff_id] = stream
    return found


def _new_file(folder: Path) -> IO[bytes]:
    # It has no name, so that a killed run leaves nothing behind.
    return tempfile.TemporaryFile(dir=folder)


def _code(assembly: Assembly, modules: Sequence[Modules]) -> list[Path]:
    return [code_path(one, assembly.worker, assembly.cache) for one in modules]


def diff_ids(assembly: Assembly, layers: Sequence[Layer]) -> dict[str, Layer]:
    """Return {DiffID: layer} in the order of `layers`. Layers without a cached DiffID are made."""
    # The digests of the other kinds do not cover all of their content. They are small and made in each run.
    kept = [layer for layer in layers if layer.kind in {LayerKind.GROUP, LayerKind.TREE}]
    known = {layer: one for layer in kept if (one := made_before(assembly.cache, _name(assembly, layer)))}
    wanted = [layer for layer in layers if layer not in known]
    new = dict(zip(wanted, make_layers(assembly, [content_of(assembly.work, layer) for layer in wanted]), strict=True))
    for layer in kept:
        if layer in new:
            remember(assembly.cache, _name(assembly, layer), new[layer])
    return {{**known, **new}[layer].diff_id: layer for layer in layers}


def _name(assembly: Assembly, layer: Layer) -> str:
    return f"{layer.digest}-{assembly.worker.key}"


def store_image(assembly: Assembly, config: Mapping[str, Any], reference: str, layers: Mapping[str, Layer]) -> None:
    """Store the image of `config` under a name in the engine or image store, with the layers that are missing there.

    `layers` are those that this host can make, by DiffID. Raises like `make_layers` and the place's `take`.
    """
    work = assembly.work
    found = work.place.find(reference)
    if found and found.id == digest_of(config_text(config)):
        return
    missing = work.place.missing(config["rootfs"]["diff_ids"])
    make_layers(assembly, [content_of(work, layers[diff_id]) for diff_id in missing if diff_id not in assembly.files])
    add_image(
        work, config, reference, {diff_id: assembly.files[diff_id] for diff_id in missing if diff_id in assembly.files}
    )


def add_image(work: Work, config: Mapping[str, Any], reference: str, layers: Mapping[str, IO[bytes]]) -> None:
    """Store the image of `config` under a name in the engine or image store; `layers` are those missing there.

    Raises like the place's `take`, or the store's `add`.
    """
    place, context = work.place, work.context
    if isinstance(place, StorePlace):
        for diff_id, stream in layers.items():
            place.store.add(stream, diff_id)
        place.store.put(config_text(config), reference)
        return
    total = sum(stream.seek(0, os.SEEK_END) for stream in layers.values())
    what = f"loading {len(layers)} layer{'' if len(layers) == 1 else 's'}"
    with transfer(what, total, sys.stderr, is_terminal=context.is_terminal) as view:
        place.take(config, reference, layers, view, context.pip.redact)


def source_ids(
    assembly: Assembly, base: Mapping[str, Any], lower: Mapping[str, Layer], make: Callable[[Part], None]
) -> list[str]:
    """Return the DiffIDs of the layers of sources, which are built on the foundation `base` and the wheels.

    `lower` are the layers of wheels by DiffID. `make` builds a part of the rendered folder. Layers that an earlier run
    built are reused if the engine or image store still has them.
    """
    work = assembly.work
    layers = [layer for layer in work.plan.layers if layer.kind is LayerKind.SOURCE]
    known = [made_before(assembly.cache, _name(assembly, layer)) for layer in layers]
    below = [*base["RootFS"]["Layers"], *lower]
    ids = [one.diff_id for one in known if one is not None]
    if len(ids) == len(layers) and not work.place.missing([*below, *ids]):
        return ids
    wheels, sources = part_references(below, layers)
    empty = Settings({}, {}, {})
    config = image_config(base, list(lower), layer_words(lower.values()), empty, work.plan.epoch)
    store_image(assembly, config, wheels, lower)
    make(Part("sources", sources, {"wheels": wheels}))
    found = work.place.attributes(sources)["RootFS"]["Layers"]
    if found[: len(below)] != below:
        raise UnableError("the sources were built on other layers", hint="build with `--with bake`")
    ids = found[len(below) :]
    for layer, diff_id in zip(layers, ids, strict=True):
        remember(assembly.cache, _name(assembly, layer), Made(diff_id, 0))
    return list(ids)


def forget_parts(assembly: Assembly, base: Mapping[str, Any], lower: Mapping[str, Layer]) -> None:
    """Remove the names of the intermediate images of sources. The final image has their layers."""
    layers = [layer for layer in assembly.work.plan.layers if layer.kind is LayerKind.SOURCE]
    for name in part_references([*base["RootFS"]["Layers"], *lower], layers):
        if assembly.work.place.find(name) is not None:
            assembly.work.place.remove(name)
