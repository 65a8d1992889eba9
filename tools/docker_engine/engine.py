"""A Docker engine for tests, and for who wants one: the distribution's packages on a private socket and data root.

Nothing is installed on the host, and no other engine is touched. `start` may be called by any number of processes at
once: one starts the daemon, the others wait for it and share it. It outlives them until `stop`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from cannery.errors import CanneryError, UnableError
from cannery.util.io.files import write_atomic
from cannery.util.io.process import CommandError, run
from docker_engine.daemon import Layout, clear, daemon_config, end, launch, processes
from docker_engine.network import network_down, network_up, tool_env
from docker_engine.packages import DOCKER, DOCKERD, install, installed, write_wrapper

if TYPE_CHECKING:
    from collections.abc import Mapping

READY_TIMEOUT = 60.0  # seconds until a launched daemon must answer
EXEC_PATIENCE = 3.0  # seconds without a process until it counts as ended: none is seen while one becomes another
# The build cache may take this part of the space that is free at the start: BuildKit removes what was not used for
# longest when a build ends with more. A build of the largest profile adds about 20 GB.
CACHE_SHARE = 3
# What the daemon sees of the caller's environment: proxies and certificates for pulls, not its Python or Docker.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
DAEMON_ENV = {"PATH", "HOME", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", *PROXIES, *map(str.lower, PROXIES)}
# Settings of a shell that would lead its docker commands to another engine.
REDIRECTING = (
    *("DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_API_VERSION"),
    *("BUILDX_BUILDER", "BUILDKIT_HOST"),
)


def start(layout: Layout, env: Mapping[str, str], *, upgrade: bool = False) -> str:
    """Return the version of the running engine, started (and fetched) first where needed; `upgrade` gets a newer one.

    Raises `UnableError` (not root, not Debian or Ubuntu, no answer within 60 s: with the log's last lines) and
    `NetworkError` (the package mirror). What an engine that was killed left is cleared away.
    """
    if os.geteuid() != 0:
        raise UnableError("this engine needs root", hint="run as root, or install Docker Engine")
    if upgrade:
        stop(layout, env)
    with _locked(layout):
        programs = (None if upgrade else installed(layout)) or install(layout)
        write_wrapper(layout, programs)
        server = answer(layout)
        if server is not None:
            network_up(layout, programs, env)  # a firewall's reload may have flushed the rules
        elif not processes(layout):
            _launch(layout, programs, env)
        return server or _wait_ready(layout)


def answer(layout: Layout) -> str | None:
    """Return the daemon's version, None where it does not answer. Docker gets no setting of the caller's shell."""
    command = (layout.bin / "docker", "-H", layout.host, "version", "--format", "{{.Server.Version}}")
    with suppress(CanneryError):
        return run(command, env={}, timeout=3).stdout.strip()
    return None


def stop(layout: Layout, env: Mapping[str, str]) -> bool:
    """End the engine with its containers, bridges and rules; return whether there was one. Images and cache stay."""
    if not layout.root.is_dir():
        return False
    with _locked(layout):
        programs, networks = installed(layout), ""
        if programs and answer(layout):
            networks = run((programs / DOCKER, "-H", layout.host, "network", "ls", "-q"), env={}, check=False).stdout
        existed = end(layout) or layout.run.exists()
        clear(layout)
        network_down(layout, programs, env, [f"br-{one}" for one in networks.split()])
        with suppress(OSError):  # made by the launcher where no containerd has one; any other has files in it
            Path("/run/containerd").rmdir()
        return existed


def remove(layout: Layout, env: Mapping[str, str]) -> None:
    """Stop the engine and delete its images, containers, build cache and programs: of many GB it takes minutes.

    What a user has mounted below its folder stays, and its mount point with it: that is an `UnableError`.
    """
    stop(layout, env)
    try:
        run(("rm", "-rf", "--one-file-system", "--", *layout.root.glob("*"), layout.root))
    except CommandError as error:
        raise UnableError(f"not everything can be removed\n{error.stderr.strip()}", where=str(layout.root)) from error


def shell_text(layout: Layout) -> str:
    """Return text for `eval` in a POSIX shell, with which its docker commands reach the engine."""
    names, path = " ".join(REDIRECTING), shlex.quote(str(layout.bin))
    return f'unset {names}\nexport DOCKER_HOST={shlex.quote(layout.host)}\nexport PATH={path}:"$PATH"\n'


def _locked(layout: Layout) -> FileLock:
    layout.root.mkdir(parents=True, exist_ok=True)
    return FileLock(layout.root / "engine.lock")


def _launch(layout: Layout, programs: Path, env: Mapping[str, str]) -> None:
    clear(layout)
    shutil.rmtree(layout.data / "network", ignore_errors=True)  # it would give the bridge its earlier address
    network_up(layout, programs, env)
    layout.data.mkdir(exist_ok=True, mode=0o710)
    proxy = next(map(str, programs.glob("usr/**/docker-proxy")), "docker-proxy")
    keep = shutil.disk_usage(layout.data).free // CACHE_SHARE
    write_atomic(layout.config, json.dumps(daemon_config(layout, proxy, keep), indent=2) + "\n", mode=0o600)
    launch(layout, programs / DOCKERD, tool_env(programs, {name: env[name] for name in DAEMON_ENV if name in env}))


def _wait_ready(layout: Layout) -> str:
    begun, gone = time.monotonic(), 0.0
    while (now := time.monotonic()) < begun + READY_TIMEOUT and not (gone and now > gone + EXEC_PATIENCE):
        if server := answer(layout):
            return server
        gone = 0.0 if processes(layout) else gone or time.monotonic()
        time.sleep(0.1)
    state = "does not answer" if processes(layout) else "ended while starting"
    lines = [line for line in layout.log.read_text(errors="replace").splitlines() if "level=info" not in line]
    raise UnableError("\n".join((f"the engine {state}", *lines[-15:])), where=str(layout.log))
