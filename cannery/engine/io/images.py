"""Which images an engine has, by the docker SDK."""

from __future__ import annotations

from typing import Any, Protocol

from cannery.errors import UnableError, UsageError


class ImageClient(Protocol):
    """The part of docker's `DockerClient` used here."""

    @property
    def images(self) -> Any: ...  # noqa: ANN401, D102 - docker has no types


def image_id(client: ImageClient, reference: str) -> str | None:
    """Return the id of an image, None where the engine has it not; raise `UnableError` when it does not answer."""
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        return str(client.images.get(reference).id)
    except docker.errors.ImageNotFound:
        return None
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise UnableError(f"the engine does not answer: {error}") from error


def needed_image(client: ImageClient, reference: str, profile: str) -> str:
    """Return the id of an image that `profile` builds; raise `UsageError` saying how when the engine has it not."""
    found = image_id(client, reference)
    if found is None:
        hint = f"build.py image {profile}, with the same options"
        raise UsageError(f"no image {reference} on this engine", hint=hint)
    return found


def image_labels(client: ImageClient, reference: str) -> dict[str, str]:
    """Return the labels of an image that the engine has; of one that is gone by now, none."""
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        return dict(client.images.get(reference).labels)
    except (docker.errors.DockerException, requests.RequestException):
        return {}
