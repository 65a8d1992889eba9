"""Credentials for registries as `docker login` stored them in docker's config.json or in credential helpers."""

from __future__ import annotations

import base64
import json
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cannery.engine.io.find import docker_config

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Login:
    """Docker's entry for a registry ({}: none), and why a file or helper that should have it cannot be read.

    Never show the entry.
    """

    entry: Mapping[str, Any] = field(default_factory=dict, repr=False)
    fault: str = ""

    @property
    def password(self) -> tuple[str, str] | None:
        """User and password; None where there are none (an identity token is no password)."""
        # Entries of the file are in lower case, those of a helper are not.
        values = {str(name).lower(): value for name, value in self.entry.items()}
        user, password = values.get("username"), values.get("password")
        return (user, password) if user and password else None

    @property
    def header(self) -> str:
        """The value of `X-Registry-Auth`, with which an engine logs in."""
        return base64.urlsafe_b64encode(json.dumps(dict(self.entry)).encode()).decode()


def read_login(registry: str, env: Mapping[str, str]) -> Login:
    """Return what docker's settings have for `registry`.

    A file or helper that does not work is only a fault: an image that anyone may read needs neither.
    """
    file = docker_config(env) / "config.json"
    if not file.is_file():
        return Login()
    from docker.auth import AuthConfig  # noqa: PLC0415 - 0.2 s that a host without a login does not pay for
    from docker.errors import DockerException  # noqa: PLC0415

    helper = None
    try:
        json.loads(file.read_text(encoding="utf-8"))  # the SDK reads a file that is no JSON as one without logins
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = AuthConfig.load_config(str(file), None, dict(env))
            helper = config.get_credential_store(registry)
            return Login(dict(config.resolve_authconfig(registry) or {}))
    except (DockerException, OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        # Its message may have what a helper printed, which may be secret.
        return Login(fault=f"docker-credential-{helper} does not work" if helper else f"{file} cannot be read")
