"""Cannery's own Docker engine: the distribution's packages, unpacked in the cache, on a private socket and data root.

Nothing is installed on the host, and no other engine is touched. `start` may be called by any number of processes at
once: one starts the daemon, the others wait for it and share it. It outlives them until `stop`.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from cannery.engine.io.probe import Endpoint, Server, UnreachableError, probe
from cannery.engine.own import network as engine_network
from cannery.engine.own import process as engine_process
from cannery.engine.own.layout import Layout, daemon_config
from cannery.engine.own.packages import Binaries, install, installed
from cannery.engine.own.requirements import refuse_unless_possible
from cannery.engine.own.shell import write_wrapper
from cannery.errors import UnableError
from cannery.util.io.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

READY_TIMEOUT = 60.0  # seconds until a launched daemon must answer
# Of the space that is free when the daemon starts, the part that its build cache may take: BuildKit removes the records
# that were not used for longest when a build ends with more. A build of the largest profile adds about 20 GB.
CACHE_SHARE = 3
LOCK_TIMEOUT = 600.0  # another process may be downloading 80 MB
EXEC_PATIENCE = 3.0  # seconds without a process of ours until it counts as ended; there is none to see while it execs
STOP_PATIENCE = 30.0  # dockerd gives containers 15 s
HOST_CONFIG = Path("/etc/docker/daemon.json")
TAKEN_OVER = ("registry-mirrors", "insecure-registries", "proxies", "dns")
# What the daemon may see of the caller's environment: proxies and certificates for pulls, not its Python or Docker.
PROXY_ENV = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
DAEMON_ENV = (
    *("PATH", "HOME", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *PROXY_ENV,
    *(name.lower() for name in PROXY_ENV),
)


@dataclass(frozen=True)
class OwnedEngine:
    """A running engine of ours."""

    layout: Layout
    binaries: Binaries
    server: Server


@dataclass(frozen=True)
class Status:
    """State of the own engine; `pid` is 0 when it does not run, `version` "" when nothing is unpacked.

    `cache_limit` are the bytes that its build cache may take, 0 before its first start.
    """

    running: bool
    pid: int
    version: str
    host: str
    data_root: Path
    log: Path
    storage_driver: str = ""
    cache_limit: int = 0


def start(cache: Path, env: Mapping[str, str], say: Callable[[str], None]) -> OwnedEngine:
    """Give the running engine of `cache`, started (and fetched) first where needed.

    Raises `UnableError` (not root, not Debian or Ubuntu, a program missing, no answer within 60 s: with the log's last
    lines) and `NetworkError` (the package mirror). Stale sockets, pid files, control groups and shims of an engine that
    was killed are cleared away. `<cache>/engine/bin/docker` is kept fit for the unpacked version.
    """
    layout = Layout.of(cache)
    refuse_unless_possible(env, layout.root)
    with _locked(layout, say):
        binaries = installed(layout) or install(layout, cache, say)
        write_wrapper(layout, binaries)
        server = _answer(layout)
        if server is None:
            server = _launch(layout, binaries, env, say)
        else:
            engine_network.network_up(layout, binaries, env, say)  # a firewall's reload may have flushed the rules
        return OwnedEngine(layout, binaries, server)


def running(cache: Path) -> OwnedEngine | None:
    """The engine of `cache` if it answers; starts nothing, writes nothing."""
    layout = Layout.of(cache)
    binaries = installed(layout)
    server = _answer(layout) if binaries else None
    return OwnedEngine(layout, binaries, server) if binaries and server else None


def status(cache: Path) -> Status:
    """What there is of the own engine."""
    layout = Layout.of(cache)
    binaries = installed(layout)
    pids = engine_process.daemons(layout)
    server = _answer(layout) if pids else None
    return Status(
        running=server is not None,
        pid=pids[0] if pids else 0,
        version=server.version if server else binaries.version if binaries else "",
        host=layout.host,
        data_root=layout.data,
        log=layout.log,
        storage_driver=server.storage_driver if server else "",
        cache_limit=cache_limit(cache),
    )


def cache_limit(cache: Path) -> int:
    """Bytes that the build cache of the engine of `cache` may take, as it was started last; 0 before that."""
    try:
        return int(json.loads(Layout.of(cache).config.read_text())["builder"]["gc"]["defaultKeepStorage"].rstrip("B"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0


def stop(cache: Path, env: Mapping[str, str], say: Callable[[str], None]) -> bool:
    """End the engine of `cache`, with its containers, mounts, bridge and rules; return whether there was one.

    Images and build cache stay (see `remove_data`). Only processes of exactly this engine are ended.
    """
    layout = Layout.of(cache)
    if not layout.root.is_dir():
        return False
    with _locked(layout, say):
        return _stop(layout, env, say)


def remove_data(cache: Path, env: Mapping[str, str], say: Callable[[str], None], *, packages: bool = False) -> None:
    """Stop the engine and delete its images, containers and build cache; with `packages` the unpacked programs too."""
    layout = Layout.of(cache)
    if not layout.root.is_dir():
        return
    say("removing the engine with its images, containers, build cache: of many GB it takes minutes")
    with _locked(layout, say):
        _stop(layout, env, say)
        for folder in (layout.data, *((layout.bin, layout.packages) if packages else ())):
            if folder.is_dir():
                shutil.rmtree(folder)


@contextmanager
def _locked(layout: Layout, say: Callable[[str], None]) -> Iterator[None]:
    layout.root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(layout.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("waiting for another run that holds the engine")
        try:
            lock.acquire(timeout=LOCK_TIMEOUT)
        except Timeout as error:
            raise UnableError("another run holds the engine for too long", where=str(layout.lock)) from error
    try:
        yield
    finally:
        lock.release()


def _answer(layout: Layout) -> Server | None:
    """What our daemon says, or None when it does not answer."""
    try:
        return probe(Endpoint(layout.host, "Cannery's engine"), {})
    except UnreachableError:
        return None


def _launch(layout: Layout, binaries: Binaries, env: Mapping[str, str], say: Callable[[str], None]) -> Server:
    if not engine_process.starting(layout):
        _clear(layout)
        engine_network.network_up(layout, binaries, env, say)
        layout.data.mkdir(parents=True, exist_ok=True, mode=0o710)
        keep = shutil.disk_usage(layout.data).free // CACHE_SHARE
        config = daemon_config(layout, binaries.proxy, keep, _host_settings(HOST_CONFIG))
        write_atomic(layout.config, json.dumps(config, indent=2) + "\n", mode=0o600)
        daemon_env = {key: env[key] for key in DAEMON_ENV if key in env}
        command = (str(binaries.dockerd), "--config-file", str(layout.config))
        engine_process.launch(command, layout.log, engine_network.tool_env(binaries, daemon_env))
    server = _wait_ready(layout)
    if server.storage_driver not in {"overlay2", "btrfs", "zfs"}:
        say(
            f"warning: {layout.data} has no overlay filesystem, so the engine stores with {server.storage_driver}: "
            "slow and large; set CANNERY_CACHE to a folder on ext4 or xfs"
        )
    return server


def _wait_ready(layout: Layout) -> Server:
    deadline = time.monotonic() + READY_TIMEOUT
    while time.monotonic() < deadline:
        server = _answer(layout)
        if server is not None:
            return server
        if not engine_process.starting(layout, patience=EXEC_PATIENCE):
            raise UnableError(f"Cannery's engine ended while starting:\n{_log_tail(layout)}", where=str(layout.log))
        time.sleep(0.1)
    raise UnableError(
        f"Cannery's engine does not answer within {READY_TIMEOUT:g} s:\n{_log_tail(layout)}",
        where=str(layout.log),
        hint="stop it with `build.py engine stop` and try again",
    )


def _stop(layout: Layout, env: Mapping[str, str], say: Callable[[str], None]) -> bool:
    pids = engine_process.daemons(layout)
    engine_process.end(
        pids, patience=STOP_PATIENCE, slow=lambda: say("waiting for the engine and its containers to end")
    )
    existed = bool(pids) or layout.run.exists()
    _clear(layout)
    engine_network.network_down(layout, installed(layout), env)
    if layout.run.is_dir():
        shutil.rmtree(layout.run)
    with suppress(OSError):  # made by the launcher where no containerd has one; any other has files in it
        Path("/run/containerd").rmdir()
    return existed


def _clear(layout: Layout) -> None:
    """Clear away what a daemon that is gone left: processes, control groups, mounts, sockets. The network stays."""
    engine_process.end_remnants(layout)
    engine_process.remove_cgroups(layout)
    engine_process.unmount_below(layout.root, layout.run)
    for path in (layout.socket, layout.run / "docker.pid"):
        path.unlink(missing_ok=True)
    shutil.rmtree(layout.run / "exec", ignore_errors=True)


def _host_settings(path: Path) -> dict[str, Any]:
    """Registry settings of the host's own daemon.json: they hold for pulls by whichever engine."""
    try:
        settings = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {key: settings[key] for key in TAKEN_OVER if key in settings} if isinstance(settings, dict) else {}


def _log_tail(layout: Layout) -> str:
    lines = layout.log.read_text(errors="replace").splitlines() if layout.log.is_file() else []
    wanted = [line for line in lines if "level=info" not in line] or lines
    return "\n".join(wanted[-15:])
