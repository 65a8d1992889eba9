"""Shares parts of an image through a registry, so that a machine that cannot run programs can assemble the image.

The parts are those that run commands: the foundation, `REGISTRY/cannery-foundation:<digest>`, and the sources that are
compiled on it, `REGISTRY/cannery-sources:<digest>`. Several profiles may share them. An engine pulls a foundation. In
the image store, layers stay in the registry until something reads them. A push to that registry does not need them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cannery.assemble.image import PYTHON_LABEL, Settings, foundation_reference, image_config, part_references
from cannery.assemble.io.code import known_python, python_note
from cannery.errors import NetworkError
from cannery.host.io.place import EnginePlace
from cannery.making.assemble import add_image
from cannery.plan import LayerKind
from cannery.ship.io.registry import published, pulled, push_as
from cannery.ship.published import published_reference
from cannery.util.io.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.engine.oci import EngineImage
    from cannery.pipeline import Work
    from cannery.ship.io.registry import Dock


# A `sys.version`. It begins with the release, from which the name of a Python on this host is derived.
_PYTHON = re.compile(r"[0-9]+(\.[0-9]+){2}[a-z0-9+]*\s[\s\S]*")


def take_foundation(work: Work, dock: Dock) -> None:
    """Get the plan's foundation from a registry, if it is there and not here. A failure is only reported."""
    place, name = work.place, foundation_reference(work.plan)
    here = place.find(name)
    if here and (isinstance(place, EnginePlace) or all(map(place.store.is_on_disk, here.layers))):
        return
    found = take_part(work, dock, name)
    if found and _PYTHON.fullmatch(python := found.labels.get(PYTHON_LABEL, "")):
        write_atomic(python_note(work.context.cache, found.id), python)


def take_part(work: Work, dock: Dock, name: str) -> EngineImage | None:
    """Get the part of an image with that name from a registry; None if it is not there. A failure is only reported."""
    reference, word = published_reference(dock.registry, name), _word(name)
    try:
        if published(dock, reference) is None:
            dock.say(f"{word}: {reference} is not there")
            return None
        found = pulled(dock, reference, lazily=True)
    except NetworkError as error:
        dock.say(f"{word}: not from {reference}: {error}")
        return None
    work.place.tag(found.id, name)
    work.place.remove(reference)
    where = "" if isinstance(work.place, EnginePlace) else "; its layers stay there until they are needed"
    dock.say(f"{word}: {reference}{where}")
    return found


def share_parts(work: Work, dock: Dock) -> None:
    """Push the foundation and the compiled sources of the plan's image, if they are not in the registry.

    Nothing is pushed if the foundation is not here. A failure is only reported. The foundation gets a label with the
    version of its Python, on which the byte code depends.
    """
    name, place = foundation_reference(work.plan), work.place
    found = place.find(name)
    if found is None:
        return
    base, python = place.attributes(name), known_python(work.context.cache, found.id)
    _share(work, dock, name, _config(work, base, [], {PYTHON_LABEL: python} if python else {}))
    image, upper = place.find(work.plan.reference), work.plan.upper
    above = list(image.layers[len(found.layers) :]) if image else []
    sources = [layer for layer in upper if layer.kind is LayerKind.SOURCE]
    if sources and len(above) == len(upper):  # a trial has one more layer
        wheels = sum(layer.kind is LayerKind.GROUP for layer in upper)
        _, name = part_references([*found.layers, *above[:wheels]], sources)
        _share(work, dock, name, _config(work, base, above[: wheels + len(sources)], {}))


def _config(work: Work, base: Mapping[str, Any], layers: Sequence[str], labels: Mapping[str, str]) -> dict[str, Any]:
    words = ["cannery: a part of an image"] * len(layers)
    return image_config(base, layers, words, Settings({}, labels, {}), work.plan.epoch)


def _share(work: Work, dock: Dock, name: str, config: Mapping[str, Any]) -> None:
    """Push the image of `config` under the name of a part, if the registry does not have the part."""
    reference = published_reference(dock.registry, name)
    try:
        if published(dock, reference) is None:
            add_image(work, config, reference, {})
            try:
                push_as(dock, work.place.attributes(reference)["Id"], reference)
            finally:
                work.place.remove(reference)
    except NetworkError as error:  # the image itself was pushed
        dock.say(f"{_word(name)}: not pushed as {reference}: {error}")


def _word(name: str) -> str:
    """Return the part that a name is for: `foundation` or `sources`."""
    return name.partition(":")[0].removeprefix("cannery-")
