"""What an engine says of itself and of its images, as shipping needs it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cannery.engine.io.client import answer, request

if TYPE_CHECKING:
    from collections.abc import Mapping

    import docker

# The first API with which an engine that stores images by containerd takes a platform: to push, to save.
PUSH_PLATFORM, SAVE_PLATFORM = (1, 46), (1, 48)


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


def find_image(client: docker.DockerClient, reference: str) -> EngineImage | None:
    """Return an image that the engine has, None where it has it not. Raises `UnableError` when it does not answer."""
    response = request(client, "GET", f"/images/{quote(reference, safe='/:@')}/json")
    with response:
        if response.status_code == 404:
            return None
        found = answer(response)
    config = found.get("Config") or {}
    return EngineImage(
        id=str(found["Id"]),
        arch=str(found.get("Architecture")),
        size=int(found.get("Size") or 0),
        layers=tuple((found.get("RootFS") or {}).get("Layers") or ()),
        labels=dict(config.get("Labels") or {}),
        digests=tuple(found.get("RepoDigests") or ()),
        tags=tuple(found.get("RepoTags") or ()),
    )


def engine_info(client: docker.DockerClient) -> Mapping[str, Any]:
    """Return what `docker info` says."""
    with request(client, "GET", "/info") as response:
        return answer(response)


def stores_by_containerd(info: Mapping[str, Any]) -> bool:
    """Whether the engine keeps images in containerd's store, where one name holds several platforms."""
    return any("io.containerd.snapshotter" in " ".join(map(str, pair)) for pair in info.get("DriverStatus") or ())


def plain_registries(info: Mapping[str, Any]) -> frozenset[str]:
    """Return the registries that the engine may ask without TLS."""
    config = info.get("RegistryConfig") or {}
    return frozenset(name for name, one in (config.get("IndexConfigs") or {}).items() if not one.get("Secure", True))


def platform_parameter(
    client: docker.DockerClient, info: Mapping[str, Any], arch: str, since: tuple[int, int]
) -> dict[str, str]:
    """Return the parameter that names the platform, {} where the engine's store has one platform a name anyway.

    An engine with containerd's store that is too old to be told (Docker 25 to 27) gives all that it has under a name.
    That is the one platform, since the name is found by its own platform first; what it gives is looked at afterwards.
    """
    if not stores_by_containerd(info) or tuple(map(int, str(client.api.api_version).split(".")[:2])) < since:
        return {}
    return {"platform": json.dumps({"os": "linux", "architecture": arch})}
