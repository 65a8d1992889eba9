"""Finds the Docker engine in the user's settings.

`find_engine` looks once and returns a frozen `Engine`, which everything else uses. The docker command resolves
DOCKER_HOST, contexts, TLS and ssh. Nothing here changes images, settings or the current builder of an engine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.errors import CanneryError, UnableError, UsageError
from cannery.util.io.files import home_of, read_json
from cannery.util.io.process import CommandError, run
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Mapping

    import docker

DEFAULT_SOCKET = "/var/run/docker.sock"
MIN_DOCKER = (23,)  # the first whose BuildKit has COPY --link
MIN_BUILDX = (0, 13)  # the first with --progress=rawjson
INSTALL = "install Docker Engine 23 or newer with its buildx plugin (0.13 or newer)"
WITHOUT = f"{INSTALL}; in a checkout, `make engine-start` starts one without installing it"
# Seconds for the engine to answer. Over ssh, or during a build, it may be slow.
ANSWERS = 15.0
# The start of Docker's message if nothing listens, in its various versions.
_NOBODY = ("cannot connect to the docker daemon", "failed to connect to the docker api")
# Security options of `docker info`.
_USER_MAPS = {"name=rootless": "rootless", "name=userns": "userns-remap"}


class NoEngineError(UnableError):
    """No engine runs, and no setting names one."""


@dataclass(frozen=True)
class Engine:
    """A reachable engine with BuildKit and buildx.

    - `host` is its DOCKER_HOST, `docker` the client's program, `builder` buildx's name for the engine's own builder.
    - `arch` is its architecture as Docker names it (amd64).
    - `data_root` is its folder on this host, None if it stores elsewhere.
    - `cert_path` is the folder with ca.pem, cert.pem and key.pem for TLS.
    - `user_map` is "rootless" or "userns-remap" if users in containers are not the host's users, else "".
    - `runtimes` are its container runtimes, `plain` are the registries that it uses without TLS.
    - `is_classic`: it has the classic image store, which can load an archive without the layers that it already has.
    """

    host: str
    docker: Path
    server_version: str
    arch: str
    data_root: Path | None
    storage_driver: str = ""
    builder: str = "default"
    cert_path: Path | None = None
    user_map: str = ""
    runtimes: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
    is_classic: bool = True

    def foreign(self, arch: str) -> str | None:
        """Return the platform of an image for `arch` as docker writes it; None for the engine's own architecture.

        Without a platform, an engine with containerd's image store looks for an image for its own.
        """
        return None if arch == self.arch else f"linux/{arch}"

    def command(self, *args: str) -> tuple[str, ...]:
        """Return a command line of docker's client, to be run in the user's environment."""
        return (str(self.docker), *args)

    def buildx_command(self, *args: str, builder: str = "") -> tuple[str, ...]:
        """Return a command line of buildx, to be run in the user's environment.

        `builder` is the user's BUILDER; "" names the engine's own one. The user's *current* builder may be another,
        which would leave no image in the engine.
        """
        return (str(self.docker), "buildx", "--builder", builder or self.builder, *args)


@dataclass(frozen=True)
class _Endpoint:
    """Where docker's commands go. `origin` is the user's setting, for messages; "" for the default socket."""

    host: str
    origin: str = ""
    cert_path: Path | None = None
    builder: str = "default"


def find_engine(env: Mapping[str, str]) -> Engine:
    """Return the engine that DOCKER_HOST, the docker context or the default socket reaches.

    Raises `NoEngineError` if no setting names an engine and none listens. Raises `UnableError` if the named engine does
    not answer (no other one is used instead), or if it has no BuildKit or buildx.
    """
    found = shutil.which("docker", path=env.get("PATH", os.defpath))
    if found is None:
        raise _without_client(env)
    client = Path(found)
    info, silent = _info(client, env)
    context = (info.get("ClientInfo") or {}).get("Context") or env.get("DOCKER_CONTEXT")
    if not context and silent:
        context = _current_context(env)
    endpoint = _endpoint(client, env, str(context or "default"))
    if silent:
        raise _unreachable(endpoint, silent)
    _require_buildkit(info, endpoint)
    _require_buildx(client, endpoint, env)
    root = Path(str(info.get("DockerRootDir") or "/nowhere"))
    options = {str(option).partition(",")[0] for option in info.get("SecurityOptions") or ()}
    machine = str(info.get("Architecture"))
    registries = (info.get("RegistryConfig") or {}).get("IndexConfigs") or {}
    status = json.dumps(info.get("DriverStatus"))
    return Engine(
        host=endpoint.host,
        docker=client,
        server_version=str(info["ServerVersion"]),
        arch=next((str(arch) for arch in Arch if arch.machine == machine), machine),
        data_root=root if endpoint.host.startswith("unix://") and root.is_dir() else None,
        storage_driver=str(info.get("Driver") or ""),
        builder=endpoint.builder,
        cert_path=endpoint.cert_path,
        user_map=next((word for name, word in _USER_MAPS.items() if name in options), ""),
        runtimes=frozenset(info.get("Runtimes") or ()),
        plain=frozenset(name for name, one in registries.items() if not one.get("Secure", True)),
        is_classic="io.containerd.snapshotter" not in status,
    )


def docker_config(env: Mapping[str, str]) -> Path:
    """Return the folder of docker's settings."""
    return Path(env.get("DOCKER_CONFIG") or (home_of(env) or Path("/")) / ".docker")


def docker_client(engine: Engine) -> docker.DockerClient:
    """Return a client of the docker SDK for `engine`, without a time limit: exports and pushes take minutes.

    Raises `UsageError` if the SDK cannot read docker's config.json. Raises `UnableError` if docker's command reaches
    the engine and the SDK does not: a certificate is missing, or the engine has ended.
    """
    import docker  # noqa: PLC0415 - 0.2 s that most commands need not spend
    from docker.errors import DockerException, InvalidConfigFile  # noqa: PLC0415
    from docker.utils.config import find_config_file  # noqa: PLC0415

    tls: docker.tls.TLSConfig | bool = False
    ssh = engine.host.startswith("ssh://")
    try:
        if engine.cert_path is not None:
            cert, key = engine.cert_path / "cert.pem", engine.cert_path / "key.pem"
            tls = docker.tls.TLSConfig(
                client_cert=(str(cert), str(key)) if cert.is_file() and key.is_file() else None,
                ca_cert=str(engine.cert_path / "ca.pem"),
                verify=True,
            )
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
    except DockerException as error:
        raise lost_connection(error) from error


def lost_connection(error: Exception) -> UnableError:
    """Return the user's error for an error of the SDK that is not a response of the engine."""
    what = f"the connection to the engine was lost: {str(error)[:300] or type(error).__name__}"
    return UnableError(what, hint="check that it runs (`docker info`), then run the same command again")


def require_builder(engine: Engine, name: str, env: Mapping[str, str]) -> None:
    """Raise `UnableError` if buildx has no builder of that name, before anything is fetched for it."""
    done = run(engine.buildx_command("inspect", name), env=env, timeout=30, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        what = f"buildx has no builder {name!r}: {lines[-1] if lines else 'no reason given'}"
        hint = "`docker buildx ls` lists the builders; without BUILDER the engine's own one is used"
        raise UnableError(what, where="BUILDER", hint=hint)


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: `26.1.5+dfsg1` → (26, 1, 5)."""
    found = takewhile(str.isdecimal, re.split(r"[.+-]", version.lstrip("v")))
    return tuple(map(int, found))


def _without_client(env: Mapping[str, str]) -> UnableError:
    """Return the error for a host without the docker command."""
    named = next((f"{name}={env[name]}" for name in ("DOCKER_HOST", "DOCKER_CONTEXT") if env.get(name)), "")
    if not named and not Path(DEFAULT_SOCKET).exists():
        return NoEngineError("no Docker engine is running", hint=WITHOUT)
    what = "this host has no docker client, which reaches the engine"
    return UnableError(what, where=named or DEFAULT_SOCKET, hint=f"{INSTALL} (Debian: docker-cli and docker-buildx)")


def _info(client: Path, env: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Return the output of `docker info`, and the reason if no engine answers."""
    try:
        done = run((client, "info", "--format", "{{json .}}"), env=env, timeout=ANSWERS, check=False)
    except CommandError:
        return {}, f"no answer within {ANSWERS:g} s"
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    info: dict[str, Any] = found if isinstance(found, dict) else {}
    if info.get("ServerVersion") or "host" in info:
        return info, ""
    lines = info.get("ServerErrors") or done.stderr.strip().splitlines() or ["no reason given"]
    return info, str(lines[-1]).strip()


def _current_context(env: Mapping[str, str]) -> str:
    """Return the context in docker's settings, or "". It is used if docker cannot report it."""
    return read_json(docker_config(env) / "config.json", lambda value: str(value.get("currentContext") or "")) or ""


def _endpoint(client: Path, env: Mapping[str, str], context: str) -> _Endpoint:
    """Return where docker's commands go: DOCKER_HOST, else the context, else the default socket."""
    if host := env.get("DOCKER_HOST", ""):
        folder = Path(env.get("DOCKER_CERT_PATH") or docker_config(env)) if env.get("DOCKER_TLS_VERIFY") else None
        return _Endpoint(host if "://" in host else f"tcp://{host}", f"DOCKER_HOST={host}", folder)
    if context == "default":
        return _Endpoint(f"unix://{DEFAULT_SOCKET}")
    try:
        about = json.loads(run((client, "context", "inspect", context), env=env, timeout=ANSWERS).stdout)[0]
        host = str(about["Endpoints"]["docker"]["Host"])
        tls = Path(about["Storage"]["TLSPath"]) / "docker" if about.get("TLSMaterial") else None
    except (CanneryError, ValueError, LookupError, TypeError) as error:
        what = f"the docker context {context} cannot be read: {error}"
        raise UnableError(what, hint="see `docker context ls`, or unset it") from error
    return _Endpoint(host, f"docker context {context} ({host})", tls, builder=context)


def _unreachable(endpoint: _Endpoint, reason: str) -> UnableError:
    if not endpoint.origin and reason.lower().startswith(_NOBODY) and "permission denied" not in reason:
        return NoEngineError("no Docker engine is running", hint=WITHOUT)
    if "permission denied" in reason:
        hint = "join the group docker (`sudo usermod -aG docker $USER`, then log in again), or run as root"
    elif endpoint.origin:
        hint = "start that engine, or unset the setting"
    else:
        hint = "restart the Docker engine of this host (its socket is there, but it does not answer as Docker does)"
    return UnableError(f"no Docker engine is running: {reason}", where=endpoint.origin or endpoint.host, hint=hint)


def _require_buildkit(info: Mapping[str, Any], endpoint: _Endpoint) -> None:
    where, version = endpoint.origin or endpoint.host, str(info.get("ServerVersion", ""))
    # `podman info` has another shape. Podman's API for docker's command shows a folder of Podman's.
    if "host" in info or str(info.get("DockerRootDir")).endswith("containers/storage"):
        what = " ".join(f"Podman {version} answers there; it has no BuildKit".split())
        raise UnableError(what, where=where, hint=INSTALL)
    known = numbers(version)  # () for "dev", which Docker's builds between releases report
    if known and known < MIN_DOCKER:
        what = f"Docker {version} is too old: its BuildKit does not know COPY --link"
        raise UnableError(what, where=where, hint=INSTALL)


def _require_buildx(client: Path, endpoint: _Endpoint, env: Mapping[str, str]) -> None:
    try:
        words = run((client, "buildx", "version"), env=env, timeout=ANSWERS).stdout.split()
    except CanneryError as error:
        raise UnableError(
            f"{endpoint.origin or endpoint.host} answers, but the docker client has no buildx plugin",
            where=str(client),
            hint="install docker-buildx (Debian, Ubuntu) or docker-buildx-plugin (Docker's packages)",
        ) from error
    version = words[1] if len(words) > 1 else ""
    if numbers(version)[:2] < MIN_BUILDX:
        wanted = ".".join(map(str, MIN_BUILDX))
        what = f"buildx {version or 'of unknown version'} is older than {wanted}"
        raise UnableError(what, hint="update docker-buildx")
