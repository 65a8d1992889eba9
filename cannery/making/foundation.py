"""Shares foundations through a registry, so that a machine that cannot run programs can still assemble an image.

A foundation is `REGISTRY/cannery-foundation:<digest>`. Several profiles may share it. An engine pulls it. In the image
store, its layers stay in the registry until something reads them. A push to that registry does not need them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.assemble.image import PYTHON_LABEL, Settings, foundation_reference, image_config
from cannery.assemble.io.code import known_python, python_note
from cannery.errors import NetworkError
from cannery.host.io.place import EnginePlace
from cannery.making.assemble import add_image
from cannery.ship.io.registry import published, pulled, push_as
from cannery.ship.published import published_reference
from cannery.util.io.files import write_atomic

if TYPE_CHECKING:
    from cannery.pipeline import Work
    from cannery.ship.io.registry import Dock


# A `sys.version`. It begins with the release, from which the name of a Python on this host is derived.
_PYTHON = re.compile(r"[0-9]+(\.[0-9]+){2}[a-z0-9+]*\s[\s\S]*")


def take_foundation(work: Work, dock: Dock) -> None:
    """Get the plan's foundation from a registry, if it is there and not here. A failure is only reported."""
    place, name = work.place, foundation_reference(work.plan)
    here = place.find(name)
    if here and (isinstance(place, EnginePlace) or all(map(place.store.is_here, here.layers))):
        return
    reference = published_reference(dock.registry, name)
    try:
        if published(dock, reference) is None:
            dock.say(f"foundation: {reference} is not there")
            return
        found = pulled(dock, reference, lazily=True)
    except NetworkError as error:
        dock.say(f"foundation: not from {reference}: {error}")
        return
    if _PYTHON.fullmatch(python := found.labels.get(PYTHON_LABEL, "")):
        write_atomic(python_note(work.context.cache, found.id), python)
    place.tag(found.id, name)
    place.remove(reference)
    where = "" if isinstance(place, EnginePlace) else "; its layers stay there until they are needed"
    dock.say(f"foundation: {reference}{where}")


def share_foundation(work: Work, dock: Dock) -> None:
    """Push the plan's foundation, if it is here and not in the registry. A failure is only reported.

    It gets a label with the version of its Python, on which the byte code depends.
    """
    name = foundation_reference(work.plan)
    found, reference = work.place.find(name), published_reference(dock.registry, name)
    try:
        if found is not None and published(dock, reference) is None:
            _push(work, dock, found.id, reference)
    except NetworkError as error:  # the image itself was pushed
        dock.say(f"foundation: not pushed as {reference}: {error}")


def _push(work: Work, dock: Dock, foundation: str, reference: str) -> None:
    python = known_python(work.context.cache, foundation)
    settings = Settings({}, {PYTHON_LABEL: python} if python else {}, {})
    config = image_config(work.place.attributes(foundation), [], [], settings, work.plan.epoch)
    add_image(work, config, reference, {})
    try:
        push_as(dock, work.place.attributes(reference)["Id"], reference)
    finally:
        work.place.remove(reference)
