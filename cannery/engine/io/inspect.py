"""What an engine has and knows: its images, what it learns from a registry, and itself."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cannery.engine.oci import engine_image
from cannery.errors import UnableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import docker

    from cannery.engine.oci import EngineImage

# The first API with which an engine that stores images by containerd takes a platform: to push, to save.
PUSH_PLATFORM, SAVE_PLATFORM = (1, 46), (1, 48)


def find_image(client: docker.DockerClient, reference: str) -> EngineImage | None:
    """Return an image of the engine, None where it has none. Raises `UnableError` when it does not answer."""
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used

    with _answers():
        try:
            return engine_image(client.images.get(reference).attrs)
        except docker.errors.NotFound:
            return None


def image_layers(client: docker.DockerClient) -> list[list[str]]:
    """Return the layers of each image that the engine has, lowest first."""
    return [(found.attrs.get("RootFS") or {}).get("Layers") or [] for found in client.images.list()]


def needed_image(client: docker.DockerClient, reference: str, profile: str) -> EngineImage:
    """Return an image that `profile` builds; raise `UsageError` where the engine does not have it."""
    found = find_image(client, reference)
    if found is None:
        hint = f"build.py image {profile}, with the same options"
        raise UsageError(f"no image {reference} on this engine", hint=hint)
    return found


@contextmanager
def _answers() -> Iterator[None]:
    """Raise `UnableError` in place of the SDK's errors, as of an engine that does not answer."""
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        yield
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise UnableError(f"the engine does not answer: {error}") from error


def engine_info(client: docker.DockerClient) -> dict[str, Any]:
    """Return what `docker info` shows. Raises `UnableError` when the engine does not answer."""
    with _answers():
        found: dict[str, Any] = client.info()
        return found


def require_runtime(client: docker.DockerClient, name: str) -> None:
    """Raise `UnableError` unless the engine knows the container runtime `name` (case D08)."""
    known = sorted(engine_info(client).get("Runtimes") or ())
    if name not in known:
        hint = "install the Ascend Docker runtime, or leave --runtime out: the devices are then passed one by one"
        raise UnableError(f"the engine has no runtime {name!r}, only {', '.join(known) or 'none'}", hint=hint)


def plain_registries(info: Mapping[str, Any]) -> frozenset[str]:
    """Return the registries that the engine may ask without TLS."""
    config = info.get("RegistryConfig") or {}
    return frozenset(name for name, one in (config.get("IndexConfigs") or {}).items() if not one.get("Secure", True))


def has_classic_store(client: docker.DockerClient) -> bool:
    """Whether the engine has its own image store, not containerd's: that one loads archives without layers it has."""
    status = engine_info(client).get("DriverStatus") or ()
    return not any("io.containerd.snapshotter" in " ".join(map(str, pair)) for pair in status)


def platform_parameter(client: docker.DockerClient, arch: str, since: tuple[int, int]) -> dict[str, str]:
    """Return the parameter that names the platform, {} where the engine's store has one platform a name.

    With containerd's store one name holds several platforms. Such an engine that is too old for the parameter (Docker
    25 to 27) gives the one that its own platform finds first; the caller checks what it got.
    """
    if has_classic_store(client):
        return {}
    if tuple(map(int, str(client.api.api_version).split(".")[:2])) < since:
        return {}
    return {"platform": json.dumps({"os": "linux", "architecture": arch})}
