"""What the engine has of a base image, and what it learns from a registry that this host does not reach itself.

A daemon has proxies, certificates and mirrors of its own; it is the one that will fetch the base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cannery.engine.io.find import docker_client, find_engine
from cannery.engine.io.registry import Answer
from cannery.engine.io.registry_errors import RefusedError, refuse_lacking
from cannery.engine.oci import ImageConfig, image_config
from cannery.errors import CanneryError
from cannery.util.image_reference import DIGEST, parse_reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.context import Context
    from cannery.engine.io.images import ImageClient
    from cannery.vocab import Arch


def running_client(context: Context) -> ImageClient | None:
    """Return a client of the engine that runs, None where none does. Nothing is started."""
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used

    try:
        return docker_client(find_engine(context.env, context.cache, start=False, say=context.say))
    except (CanneryError, docker.errors.DockerException):
        return None  # the build says why, if it comes to that


def held(client: ImageClient, reference: str, arches: Sequence[Arch]) -> Answer | None:
    """Return an image that the engine has; its digest is "" where it came from no registry. None: it has it not.

    Raises `OtherArchError` for an image of another architecture: under one name an engine has one.
    """
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        attributes: dict[str, Any] = client.images.get(reference).attrs
    except (docker.errors.DockerException, requests.RequestException):
        return None
    config: ImageConfig = image_config(str(attributes.get("Architecture")), attributes.get("Config"))
    refuse_lacking((config.architecture,), arches)
    return Answer(_digest(reference, attributes.get("RepoDigests") or ()), config)


def asked(client: ImageClient, reference: str, arches: Sequence[Arch]) -> Answer:
    """Return what the engine learns from the registry of `reference`. Raises `RefusedError`."""
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        attributes = client.images.get_registry_data(reference).attrs
    except docker.errors.APIError as error:
        raise RefusedError(str(error.explanation or error)) from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise RefusedError("the engine does not answer") from error
    digest = str(attributes.get("Descriptor", {}).get("digest"))
    if not DIGEST.fullmatch(digest):
        raise RefusedError("the engine gives no digest")
    platforms = attributes.get("Platforms") or ()
    refuse_lacking([str(p.get("architecture")) for p in platforms if p.get("os") == "linux"], arches)
    return Answer(digest, None, "only the engine reaches the registry")


def _digest(reference: str, digests: Sequence[str]) -> str:
    """Return the digest that the image has in the repository of `reference`."""
    mine = parse_reference(reference)
    others = map(parse_reference, digests)
    here = (mine.registry, mine.repository)
    return next((one.digest or "" for one in others if (one.registry, one.repository) == here), "")
