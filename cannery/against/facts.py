"""An inventory: what is in an image, as values that a profile can be held against."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cannery.against.git_trees import GitTree, git_trees
from cannery.against.pythons import Python, pythons
from cannery.against.system import TOOLKIT, CannPart, Leftover, cann_parts, leftovers, os_name
from cannery.plan.manifest import MANIFEST_PATH, MANIFEST_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.against.pythons import Distribution
    from cannery.against.seen import Seen
    from cannery.catalog.catalog import BaseLine


@dataclass(frozen=True)
class Inventory:
    """What is in an image. `manifest` is Cannery's own, None of an image of others or of another schema."""

    seen: Seen
    os: str
    pythons: tuple[Python, ...]
    trees: tuple[GitTree, ...]
    cann: tuple[CannPart, ...]
    leftovers: tuple[Leftover, ...]
    manifest: Mapping[str, Any] | None = None

    @property
    def python(self) -> Python:
        """The Python that has the stack; one without anything where there is none."""
        return self.pythons[0] if self.pythons else Python("", "", {})

    @property
    def distributions(self) -> Mapping[str, Distribution]:
        """What that Python can import, by normalised name."""
        return self.python.distributions

    @property
    def toolkit(self) -> str:
        """The version of the CANN in use; "" where there is none."""
        return next((part.version for part in self.cann if part.name == TOOLKIT), "")


def take_inventory(seen: Seen, bases: Mapping[str, BaseLine]) -> Inventory:
    """Return what is in an image; `bases` say where CANN writes its versions."""
    return Inventory(
        seen=seen,
        os=os_name(seen),
        pythons=pythons(seen),
        trees=git_trees(seen),
        cann=cann_parts(seen, bases),
        leftovers=tuple(leftovers(seen)),
        manifest=_manifest(seen.text(MANIFEST_PATH)),
    )


def _manifest(text: str | None) -> Mapping[str, Any] | None:
    """Return a manifest of this schema; None of a text that is none, as somebody may have edited it."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("schema") != MANIFEST_SCHEMA:
        return None
    texts = [value.get("profile"), value.get("plan"), *_values(value.get("target"))]
    entries = [value.get("sources"), value.get("patches")]
    is_whole = all(isinstance(one, str) for one in texts) and all(
        isinstance(many, list) and all(isinstance(one, dict) for one in many) for many in entries
    )
    return value if is_whole else None


def _values(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else [None]
