"""Credentials for registries as `docker login` stored them in docker's config.json or in credential helpers."""

from __future__ import annotations

import base64
import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.errors import CanneryError, UnableError
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping

# Seconds that a credential helper may take; one that asks a cloud for a token takes one or two.
HELPER_SECONDS = 10.0


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
    folder = Path(env["DOCKER_CONFIG"]) if env.get("DOCKER_CONFIG") else Path(env.get("HOME") or "~") / ".docker"
    file = folder.expanduser() / "config.json"
    if not file.is_file():
        return Login()
    from docker.auth import AuthConfig  # noqa: PLC0415 - 0.2 s that a host without a login does not pay for
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        json.loads(file.read_text(encoding="utf-8"))  # the SDK reads a file that is no JSON as one without logins
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = AuthConfig.load_config(str(file), None, dict(env))
            helper = config.get_credential_store(registry)
            found = _ask_helper(str(helper), registry, env) if helper else Login()
            if found.entry:
                return found
            return Login(dict(AuthConfig({"auths": config.auths}).resolve_authconfig(registry) or {}), found.fault)
    except (DockerException, OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return Login(fault=f"{file} cannot be read")


def _ask_helper(name: str, registry: str, env: Mapping[str, str]) -> Login:
    """Return what docker's credential helper `name` has for `registry`.

    The SDK's own call has no time-out, and shows what the helper prints, which may be secret.
    """
    from docker.auth import INDEX_NAME, INDEX_URL, TOKEN_USERNAME  # noqa: PLC0415 - as above

    program = f"docker-credential-{name}"
    server = INDEX_URL if registry == INDEX_NAME else registry
    try:
        done = run((program, "get"), env=env, stdin=server, timeout=HELPER_SECONDS, check=False)
        if done.returncode:
            is_absent = "credentials not found" in done.stdout.lower()
            return Login(fault="" if is_absent else f"{program} failed (status {done.returncode})")
        value: Any = json.loads(done.stdout)
        user, secret = str(value["Username"]), str(value["Secret"])
    except UnableError:
        return Login(fault=f"{program} is not on PATH")
    except CanneryError:
        return Login(fault=f"{program} does not answer within {HELPER_SECONDS:g} s")
    except OSError as error:
        return Login(fault=f"{program} cannot be started: {error.strerror}")
    except (ValueError, KeyError, TypeError, RecursionError):
        return Login(fault=f"{program} does not answer as a credential helper does")
    secrets = {"IdentityToken": secret} if user == TOKEN_USERNAME else {"Username": user, "Password": secret}
    return Login({"ServerAddress": server, **secrets})
