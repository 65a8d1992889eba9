"""Which container runtimes an engine knows."""

from __future__ import annotations

from typing import Any, Protocol

from cannery.errors import UnableError


class InfoClient(Protocol):
    """The part of docker's `DockerClient` used here."""

    def info(self) -> dict[str, Any]:
        """Return what `docker info` shows."""


def require_runtime(client: InfoClient, name: str) -> None:
    """Raise `UnableError` unless the engine knows the runtime called `name` (case D08)."""
    import docker.errors  # noqa: PLC0415 - the SDK is imported when an engine is used
    import requests  # noqa: PLC0415

    try:
        known = sorted(client.info().get("Runtimes") or ())
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise UnableError(f"the engine does not answer: {error}") from error
    if name not in known:
        hint = "install the Ascend Docker runtime, or leave --runtime out: the devices then come in one by one"
        raise UnableError(f"the engine has no runtime {name!r}, only {', '.join(known) or 'none'}", hint=hint)
