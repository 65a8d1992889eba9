"""What an engine has still to be given of a base, in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.engine.io.client import StreamError, answer, request
from cannery.engine.io.images import image_id
from cannery.errors import UnableError
from cannery.util.image_reference import BASE_DIGEST

if TYPE_CHECKING:
    import docker

    from cannery.base.real import BaseImage
    from cannery.plan.plan import Plan


def base_bytes(client: docker.DockerClient, plan: Plan, base: BaseImage | None) -> int | None:
    """Return the bytes that a registry has to give of a plan's base: 0 where the engine has it, None: not known."""
    if base is None or not (base.held or base.size):
        return None
    # The stages stand on the image for the build host.
    images = len({plan.recipe.target.arch, plan.build_arch})
    return 0 if base.held or _is_there(client, plan.base_reference, base.digest) else base.size * images


def _is_there(client: docker.DockerClient, reference: str, digest: str | None) -> bool:
    """Whether an engine has an image, by name, below an image that was built upon it, or in the cache of its builds."""
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        if image_id(client, reference) is not None:
            return True
        if digest is None:
            return False
        if client.images.list(filters={"label": f"{BASE_DIGEST}={digest}"}):
            return True
        kept = answer(request(client, "GET", "/system/df", params={"type": "build-cache"})).get("BuildCache") or ()
    except (docker.errors.DockerException, requests.RequestException, StreamError, UnableError):
        return False  # the build says what is wrong
    # BuildKit gives a base no name: `pulled from quay.io/ascend/cann:tag@sha256:…` is all that tells of it.
    return any(digest in str(one.get("Description")) for one in kept if isinstance(one, dict))
