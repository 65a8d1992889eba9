"""Ask a Docker engine who it is, within seconds: over unix socket, TCP or TLS; over ssh through the docker client."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cannery.errors import CanneryError
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TIMEOUT = 3.0  # seconds, for each answer of a local or TCP engine
SSH_TIMEOUT = 15.0


@dataclass(frozen=True)
class Endpoint:
    """Where an engine is expected. `origin` is what the user set (or the default socket), for messages.

    `cert_path` holds ca.pem, cert.pem and key.pem for TLS; `builder` is buildx's name for this endpoint's own builder;
    `chosen`: the user named it, so that no answer is an error.
    """

    host: str
    origin: str
    cert_path: Path | None = None
    builder: str = "default"
    chosen: bool = True


# Security options of `docker info`.
USER_MAPS = {"name=rootless": "rootless", "name=userns": "userns-remap"}


@dataclass(frozen=True)
class Server:
    """What an engine reports of itself. `data_root` is a path on the engine's machine, "" where it is not known.

    `user_map` is "rootless" or "userns-remap" where users of its containers are not those of the host, else "".
    """

    version: str
    api_version: str
    arch: str
    podman: bool
    data_root: str
    storage_driver: str
    user_map: str = ""

    @property
    def api(self) -> tuple[int, ...]:
        """The API version as numbers."""
        return numbers(self.api_version)


class UnreachableError(Exception):
    """No engine answers. `absent`: nothing listens there at all; `denied`: this user may not ask."""

    def __init__(self, reason: str, *, absent: bool = False, denied: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent
        self.denied = denied


def numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: `26.1.5+dfsg1` → (26, 1, 5)."""
    found = []
    for part in version.lstrip("v").replace("+", ".").replace("-", ".").split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


def probe(endpoint: Endpoint, env: Mapping[str, str], docker: Path | None = None, timeout: float = TIMEOUT) -> Server:
    """Version and data root of the engine at `endpoint`. Raises `UnreachableError`. `timeout` in seconds."""
    try:
        if urlsplit(endpoint.host).scheme in {"unix", "tcp", "http", "https"}:
            return _server(_get(endpoint, "/version", timeout), _info(endpoint, timeout))
        return _probe_by_client(env, docker)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise UnreachableError(error.strerror or "nothing listens there", absent=True) from error
    except PermissionError as error:
        raise UnreachableError("permission denied", denied=True) from error
    except TimeoutError as error:
        raise UnreachableError(f"no answer within {timeout:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(str(error) or type(error).__name__) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UnreachableError("what answers there is not Docker") from error


def tls_context(cert_path: Path) -> ssl.SSLContext:
    """Client TLS as the docker client does it: own CA, own certificate."""
    context = ssl.create_default_context(cafile=str(cert_path / "ca.pem"))
    context.load_cert_chain(cert_path / "cert.pem", cert_path / "key.pem")
    return context


def _get(endpoint: Endpoint, path: str, timeout: float) -> Any:  # noqa: ANN401 - a daemon's JSON
    connection = _connection(endpoint, timeout)
    try:
        connection.request("GET", path, headers={"Host": "docker"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise UnreachableError(f"it answered {answer.status} {answer.reason} to {path}")
        return json.loads(body)
    finally:
        connection.close()


def _connection(endpoint: Endpoint, timeout: float) -> http.client.HTTPConnection:
    parts = urlsplit(endpoint.host)
    if parts.scheme == "unix":
        return UnixConnection(endpoint.host.removeprefix("unix://"), timeout)
    name = parts.hostname or "localhost"
    if endpoint.cert_path is not None:
        return http.client.HTTPSConnection(
            name, parts.port or 2376, timeout=timeout, context=tls_context(endpoint.cert_path)
        )
    return http.client.HTTPConnection(name, parts.port or 2375, timeout=timeout)


class UnixConnection(http.client.HTTPConnection):
    """HTTP to the socket of an engine; `timeout` is in seconds."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _info(endpoint: Endpoint, timeout: float) -> dict[str, Any]:
    """Return details that are not essential; an engine in the middle of a build can be slow to count its images."""
    try:
        return dict(_get(endpoint, "/info", 2 * timeout))
    except TimeoutError:
        return {}


def _probe_by_client(env: Mapping[str, str], docker: Path | None) -> Server:
    """Ask through `docker version`, which resolves the environment and the context as the user's own calls do."""
    if docker is None:
        raise UnreachableError("there is no docker client on this host to reach it with")
    answers = []
    for what, template in (("version", "{{json .Server}}"), ("info", "{{json .}}")):
        try:
            answers.append(json.loads(run((docker, what, "--format", template), env=env, timeout=SSH_TIMEOUT).stdout))
        except CanneryError as error:
            raise UnreachableError(error.what.strip().splitlines()[-1]) from error
    return _server(*answers)


def _server(version: dict[str, Any], info: dict[str, Any]) -> Server:
    components = version.get("Components") or []
    options = {str(option).partition(",")[0] for option in info.get("SecurityOptions") or ()}
    return Server(
        version=str(version["Version"]) if "Version" in version else str(version.get("version", "")),
        api_version=str(version.get("ApiVersion") or version.get("APIVersion") or ""),
        arch=str(version.get("Arch", "")),
        podman=any("podman" in str(part.get("Name", "")).lower() for part in components),
        data_root=str(info.get("DockerRootDir") or ""),
        storage_driver=str(info.get("Driver") or ""),
        user_map=next((word for name, word in USER_MAPS.items() if name in options), ""),
    )
