"""An image, as an engine and the image store of this host both know it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class EngineImage:
    """An image as the engine knows it; `layers` are diff ids, lowest first; `digests` its `RepoDigests`."""

    id: str
    arch: str
    size: int
    layers: tuple[str, ...]
    labels: Mapping[str, str]
    digests: tuple[str, ...]
    tags: tuple[str, ...] = ()

    @property
    def platform(self) -> str:
        """As OCI writes it."""
        return f"linux/{self.arch}"


def engine_image(found: Mapping[str, Any]) -> EngineImage:
    """Return an image from what `docker inspect` shows of it."""
    return EngineImage(
        id=str(found["Id"]),
        arch=str(found.get("Architecture")),
        size=int(found.get("Size") or 0),
        layers=tuple((found.get("RootFS") or {}).get("Layers") or ()),
        labels=dict((found.get("Config") or {}).get("Labels") or {}),
        digests=tuple(found.get("RepoDigests") or ()),
        tags=tuple(found.get("RepoTags") or ()),
    )
