"""Credentials for registries as `docker login` left them: auths, credsStore and credHelpers of docker's config.json."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def login(registry: str, env: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (user, password) for `registry`; None when there is none, or it is no password (an identity token).

    A file or helper that does not work counts as none: an image that anyone may read needs neither.
    """
    folder = Path(env["DOCKER_CONFIG"]) if env.get("DOCKER_CONFIG") else Path(env.get("HOME") or "~") / ".docker"
    file = folder.expanduser() / "config.json"
    if not file.is_file():
        return None
    from docker.auth import AuthConfig  # noqa: PLC0415 - 0.2 s that a host without a login need not spend
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a helper that is not installed
            found = AuthConfig.load_config(str(file), None, dict(env)).resolve_authconfig(registry) or {}
    except (DockerException, OSError, ValueError, TypeError, AttributeError, KeyError):
        return None
    # Entries of the file are spelt in lower case, those of a helper are not.
    values = {str(name).lower(): value for name, value in found.items()}
    user, password = values.get("username"), values.get("password")
    return (user, password) if user and password else None
