"""Credentials for registries as `docker login` left them: auths, credsStore and credHelpers of docker's config.json."""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.engine.io.credential_helper import ask_helper

if TYPE_CHECKING:
    from collections.abc import Mapping


def login(registry: str, env: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (user, password) for `registry`; None when there is none, or it is no password (an identity token)."""
    # Entries of the file are spelt in lower case, those of a helper are not.
    values = {str(name).lower(): value for name, value in _entry(registry, env).items()}
    user, password = values.get("username"), values.get("password")
    return (user, password) if user and password else None


def login_state(registry: str, env: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether docker's settings have anything to log in to `registry` with, and why they may not be read."""
    entry, fault = _read(registry, env)
    return bool(entry), fault


def auth_header(registry: str, env: Mapping[str, str]) -> str:
    """Return what an engine is handed to log in to `registry` with (`X-Registry-Auth`); never to be shown."""
    return base64.urlsafe_b64encode(json.dumps(_entry(registry, env)).encode()).decode()


def _entry(registry: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Return docker's entry for `registry`, {} where there is none.

    A file or helper that does not work counts as none: an image that anyone may read needs neither.
    """
    return _read(registry, env)[0]


def _read(registry: str, env: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Return docker's entry for `registry`, and what is wrong with the file or helper that should have it."""
    folder = Path(env["DOCKER_CONFIG"]) if env.get("DOCKER_CONFIG") else Path(env.get("HOME") or "~") / ".docker"
    file = folder.expanduser() / "config.json"
    if not file.is_file():
        return {}, ""
    from docker.auth import AuthConfig  # noqa: PLC0415 - 0.2 s that a host without a login need not spend
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        json.loads(file.read_text(encoding="utf-8"))  # the SDK takes what is no JSON for a file without logins
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = AuthConfig.load_config(str(file), None, dict(env))
            name = config.get_credential_store(registry)
            entry, fault = ask_helper(str(name), registry, env) if name else ({}, "")
            return entry or dict(AuthConfig({"auths": config.auths}).resolve_authconfig(registry) or {}), fault
    except (DockerException, OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return {}, f"{file} cannot be read"
