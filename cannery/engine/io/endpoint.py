"""Where the user's own docker commands would go: DOCKER_HOST, else the docker context, else the default socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.engine.io.probe import Endpoint
from cannery.errors import CanneryError, UnableError
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_SOCKET = "/var/run/docker.sock"
INSTALL = "install Docker Engine 23 or newer with its buildx plugin (0.13 or newer)"


def resolve_endpoint(env: Mapping[str, str], client: Path | None) -> Endpoint:
    """Where docker's own commands would go: DOCKER_HOST, else the context, else the default socket."""
    host = env.get("DOCKER_HOST", "")
    if host:
        secure = bool(env.get("DOCKER_TLS_VERIFY"))
        folder = Path(env.get("DOCKER_CERT_PATH") or docker_config(env)) if secure else None
        return Endpoint(host if "://" in host else f"tcp://{host}", f"DOCKER_HOST={host}", folder)
    name = env.get("DOCKER_CONTEXT") or _current_context(env)
    if name and name != "default":
        return _context_endpoint(name, env, client)
    return Endpoint(f"unix://{DEFAULT_SOCKET}", DEFAULT_SOCKET, chosen=False)


def docker_config(env: Mapping[str, str]) -> Path:
    """Return the folder of docker's own settings."""
    return Path(env.get("DOCKER_CONFIG") or Path(env.get("HOME", "/")) / ".docker")


def _current_context(env: Mapping[str, str]) -> str:
    try:
        settings = json.loads((docker_config(env) / "config.json").read_text())
        return str(settings.get("currentContext", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _context_endpoint(name: str, env: Mapping[str, str], client: Path | None) -> Endpoint:
    if client is None:
        raise UnableError(f"the docker context {name} is set, but this host has no docker client", hint=INSTALL)
    try:
        context = json.loads(run((client, "context", "inspect", name), env=env, timeout=10).stdout)[0]
        host = str(context["Endpoints"]["docker"]["Host"])
        tls = Path(context["Storage"]["TLSPath"]) / "docker" if context.get("TLSMaterial") else None
    except (CanneryError, ValueError, LookupError, TypeError) as error:
        raise UnableError(
            f"the docker context {name} cannot be read: {error}", hint="see `docker context ls`, or unset it"
        ) from error
    return Endpoint(host, f"docker context {name} ({host})", tls, builder=name)
