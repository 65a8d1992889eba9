"""What an engine has and knows: its images, what it learns from a registry, and itself."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cannery.engine.oci import engine_image
from cannery.errors import UnableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import docker

    from cannery.engine.oci import EngineImage


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
