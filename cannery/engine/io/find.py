"""The Docker engine that the user's settings reach.

`find_engine` decides once; everything after works with the frozen `Engine` it gives. The engine is called exactly as
the user's own docker commands would call it; its images, settings and current builder are never changed.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.engine.io.endpoint import INSTALL, resolve_endpoint
from cannery.engine.io.probe import Endpoint, Server, UnreachableError, numbers, probe
from cannery.errors import CanneryError, UnableError, UsageError
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    import docker

MIN_API_BUILDKIT = (1, 39)  # Docker 18.09, the first with BuildKit
MIN_API = (1, 42)  # Docker 23: the first whose BuildKit knows COPY --link
MIN_BUILDX = (0, 13)  # the first with --progress=rawjson
WITHOUT = f"{INSTALL}; in a checkout, `make engine-start` starts one without installing it"


class NoEngineError(UnableError):
    """No engine runs, and no setting names one."""


@dataclass(frozen=True)
class Engine:
    """A reachable engine with BuildKit and buildx.

    `host` is its DOCKER_HOST, `docker` the client's program, `builder` buildx's name for the engine's own builder,
    `arch` as Docker names it (amd64), `data_root` a folder of this host, or None when the engine stores elsewhere,
    `cert_path` the TLS folder, `user_map` as of `Server`, `origin` what names it: a setting, or the default socket.
    """

    host: str
    docker: Path
    server_version: str
    api_version: str
    arch: str
    data_root: Path | None
    storage_driver: str = ""
    builder: str = "default"
    cert_path: Path | None = None
    user_map: str = ""
    origin: str = ""

    def foreign(self, arch: str) -> str | None:
        """Return the platform of an image for `arch`, as docker writes it, where it is not the engine's own.

        Without it an engine with containerd's store looks for its own platform in an index, and asks a registry for it.
        """
        return None if arch == self.arch else f"linux/{arch}"

    def command(self, *args: str) -> tuple[str, ...]:
        """Return a command line of docker's client, to be run in the user's environment."""
        return (str(self.docker), *args)

    def buildx_command(self, *args: str, builder: str = "") -> tuple[str, ...]:
        """Return a command line of buildx, to be run in the user's environment.

        `builder` is the user's BUILDER. Without it the engine's own one is named, because the user's *current* builder
        may be another that leaves no image in the engine.
        """
        return (str(self.docker), "buildx", "--builder", builder or self.builder, *args)


def find_engine(env: Mapping[str, str]) -> Engine:
    """Return the engine that DOCKER_HOST, the docker context or the default socket reaches.

    Raises `NoEngineError` where no setting names an engine and none listens, `UnableError` where a named one does not
    answer (another is never used silently) and where one has no BuildKit or buildx.
    """
    client = _docker_client_program(env)
    endpoint = resolve_endpoint(env, client)
    try:
        server = probe(endpoint, env, client)
    except UnreachableError as error:
        if endpoint.chosen or not error.absent:
            raise _unreachable(endpoint, error) from error
        raise NoEngineError("no Docker engine is running", hint=WITHOUT) from error
    _require_buildkit(server, endpoint)
    if client is None:
        raise UnableError(
            f"{endpoint.origin} answers (Docker {server.version}), but this host has no docker client",
            hint="install docker-cli and docker-buildx (their names on Debian)",
        )
    _require_buildx(client, env, endpoint)
    root = Path(server.data_root) if server.data_root else None
    local = endpoint.host.startswith("unix://") and root is not None and root.is_dir()
    return Engine(
        host=endpoint.host,
        docker=client,
        server_version=server.version,
        api_version=server.api_version,
        arch=server.arch,
        data_root=root if local else None,
        storage_driver=server.storage_driver,
        builder=endpoint.builder,
        cert_path=endpoint.cert_path,
        user_map=server.user_map,
        origin=endpoint.origin,
    )


def docker_client(engine: Engine) -> docker.DockerClient:
    """A docker SDK client of `engine`, without time limit: exports and pushes take minutes.

    Raises `UsageError` for settings of docker's (config.json) that the SDK cannot read.
    """
    import docker  # noqa: PLC0415 - 0.2 s that most commands need not spend
    from docker.errors import InvalidConfigFile  # noqa: PLC0415
    from docker.utils.config import find_config_file  # noqa: PLC0415

    tls: docker.tls.TLSConfig | bool = False
    if engine.cert_path is not None:
        tls = docker.tls.TLSConfig(
            client_cert=(str(engine.cert_path / "cert.pem"), str(engine.cert_path / "key.pem")),
            ca_cert=str(engine.cert_path / "ca.pem"),
            verify=True,
        )
    ssh = engine.host.startswith("ssh://")
    try:
        # the SDK reads None as "no limit"; its stubs do not know that
        return docker.DockerClient(base_url=engine.host, timeout=None, tls=tls, use_ssh_client=ssh)  # type: ignore[arg-type]
    except (InvalidConfigFile, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        # The SDK does not check the file's shape. Its message may quote the file, which has secrets.
        path = find_config_file()
        if path is None:
            raise
        hint = "move it away and `docker login` writes a new one; DOCKER_CONFIG names its folder"
        what = "docker's settings cannot be read (check auths and proxies)"
        raise UsageError(what, where=str(path), hint=hint) from error


def require_builder(engine: Engine, name: str, env: Mapping[str, str]) -> None:
    """Raise `UnableError` where buildx has no builder of that name: before anything is fetched for it."""
    done = run(engine.buildx_command("inspect", name), env=env, timeout=30, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        what = f"buildx has no builder {name!r}: {lines[-1] if lines else 'no reason given'}"
        raise UnableError(
            what, where="BUILDER", hint="`docker buildx ls` lists them; leave BUILDER out for the engine's"
        )


def free_disk(engine: Engine) -> int | None:
    """Free bytes where the engine stores images, or None when that is not on this host."""
    return None if engine.data_root is None else shutil.disk_usage(engine.data_root).free


def _docker_client_program(env: Mapping[str, str]) -> Path | None:
    found = shutil.which("docker", path=env.get("PATH", os.defpath))
    return Path(found) if found else None


def _unreachable(endpoint: Endpoint, error: UnreachableError) -> UnableError:
    if error.denied:
        hint = "join the group docker (`sudo usermod -aG docker $USER`, then log in again), or run as root"
    elif endpoint.chosen:
        hint = "start that engine, or unset the setting"
    else:
        hint = "restart the Docker engine of this host (its socket is there, but it does not answer as Docker does)"
    return UnableError(f"no Docker engine is running: {error}", where=endpoint.origin, hint=hint)


def _require_buildkit(server: Server, endpoint: Endpoint) -> None:
    if server.podman:
        raise UnableError(
            f"Podman {server.version} answers there; it has no BuildKit", where=endpoint.origin, hint=INSTALL
        )
    if server.api < MIN_API_BUILDKIT:
        raise UnableError(f"Docker {server.version} has no BuildKit", where=endpoint.origin, hint=INSTALL)
    if server.api < MIN_API:
        raise UnableError(
            f"Docker {server.version} is too old: its BuildKit does not know COPY --link",
            where=endpoint.origin,
            hint=INSTALL,
        )


def _require_buildx(client: Path, env: Mapping[str, str], endpoint: Endpoint) -> None:
    try:
        words = run((client, "buildx", "version"), env=env, timeout=10).stdout.split()
    except CanneryError as error:
        raise UnableError(
            f"{endpoint.origin} answers, but the docker client has no buildx plugin",
            where=str(client),
            hint="install docker-buildx (Debian, Ubuntu) or docker-buildx-plugin (Docker's packages)",
        ) from error
    version = words[1] if len(words) > 1 else ""
    if numbers(version)[:2] < MIN_BUILDX:
        wanted = ".".join(map(str, MIN_BUILDX))
        raise UnableError(
            f"buildx {version or 'of unknown version'} is older than {wanted}", hint="update docker-buildx"
        )
