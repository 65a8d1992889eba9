"""The engine's daemon: where it is, its settings, how it is launched, found in /proc and ended.

Nothing relies on a pid file: after `kill -9` or a reboot its number may be another's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.errors import UnableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RUN_BASE = Path("/run")
PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
STOP_PATIENCE, KILL_PATIENCE = 30.0, 10.0  # seconds; dockerd gives containers 15
# With a pid namespace of its own, nothing outlives the daemon: containers, shims and port forwarders end with the shell
# that is its process 1 (and which, unlike dockerd, waits for what others leave behind). With a mount namespace, what
# the daemon mounts is never seen on the host and is gone with it: nothing has to be unmounted. An empty /run/containerd
# hides another engine's containerd, which dockerd would use. Arguments arrive as "$@".
NAMESPACES = ("unshare", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--")
LAUNCH = """\
mount -t proc proc /proc
mkdir -p /run/containerd
mount -t tmpfs -o mode=711 cannery /run/containerd
if ! grep -q ' cgroup2\\? ' /proc/self/mounts; then mount -t cgroup2 cgroup2 /sys/fs/cgroup; fi
"$@" &
wait
"""


@dataclass(frozen=True)
class Layout:
    """Paths and names of one engine, all derived from the folder of its cache.

    `config`, in a command line, marks a process as this engine's. `state` is what was changed in the host's network.
    `data` are images, containers and build cache. `bin` has the `docker` that a user's shell calls.
    """

    root: Path
    config: Path
    log: Path
    data: Path
    bin: Path
    run: Path
    host: str
    state: Path
    bridge: str
    cgroup: str

    @classmethod
    def of(cls, cache: Path, run_base: Path = RUN_BASE) -> Layout:
        """Return the layout of a cache, whichever relative path names it.

        Sockets are below /run: a socket's path has at most 107 bytes, and a cache may be deep. A bridge's name has 15.
        """
        root = (cache / "engine").resolve()
        tag = hashlib.sha256(str(root).encode()).hexdigest()[:8]
        run = run_base / f"cannery-{tag}"
        of_root = (root, root / "daemon.json", root / "engine.log", root / "data", root / "bin")
        names = (run_base / f"cannery-{tag}.json", f"cannery{tag}", f"/cannery-{tag}")
        return cls(*of_root, run, f"unix://{run}/docker.sock", *names)


def daemon_config(layout: Layout, proxy: str, keep_storage: int) -> dict[str, Any]:
    """Return the daemon.json. `proxy` is docker-proxy; `keep_storage` are the bytes of build cache that are kept."""
    return {
        "data-root": str(layout.data),
        "exec-root": str(layout.run / "exec"),
        "pidfile": str(layout.run / "docker.pid"),
        "hosts": [layout.host],
        "group": "root",
        # Another engine on this machine rebuilds and flushes the chains that dockerd uses, and this one would flush
        # its. So dockerd changes no rule; network.py adds three of its own, and docker-proxy publishes ports.
        "bridge": layout.bridge,
        **dict.fromkeys(("iptables", "ip6tables", "ip-masq", "ip-forward"), False),
        "userland-proxy-path": proxy,
        # There is no systemd unit of this daemon; cgroupfs works on every host, with v1 and v2.
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": layout.cgroup,
        # Docker 29 changes the default; the tests compare ids and sizes of the classic store.
        "features": {"containerd-snapshotter": False},
        # The default keeps a tenth of the disk: less than one image's stages on most machines.
        "builder": {"gc": {"enabled": True, "defaultKeepStorage": f"{keep_storage}B"}},
    }


def launch(layout: Layout, dockerd: Path, env: Mapping[str, str]) -> None:
    """Start the daemon, which outlives the caller and inherits nothing; its output goes to the log."""
    if layout.log.exists():
        layout.log.replace(layout.log.with_suffix(".log.1"))
    shell = ("sh", "-eu", "-c", LAUNCH, "cannery-engine", str(dockerd), "--config-file", str(layout.config))
    with layout.log.open("wb") as log:
        command = ("setsid", "--fork", *NAMESPACES, *shell)
        subprocess.run(command, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)


def processes(layout: Layout) -> dict[int, str]:
    """Return {process id: name of its program} of the daemon and of what launched it."""
    mark = os.fsencode(f"\0--config-file\0{layout.config}\0")
    found = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "cmdline").read_bytes().endswith(mark):
                found[int(folder.name)] = (folder / "exe").readlink().name.removesuffix(" (deleted)")
    return found


def daemons(layout: Layout) -> tuple[int, ...]:
    """Return the process ids of dockerd: one, or none."""
    return tuple(pid for pid, name in processes(layout).items() if name == "dockerd")


def end(layout: Layout) -> bool:
    """End the daemon and everything that it has started; return whether there was one.

    Raises `UnableError` where it does not end even when it is killed.
    """
    existed = bool(processes(layout))
    _kill(daemons(layout), signal.SIGTERM)
    deadline = time.monotonic() + STOP_PATIENCE
    while daemons(layout) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + KILL_PATIENCE
    while left := processes(layout):
        if time.monotonic() > deadline:
            raise UnableError(f"processes of the engine do not end: {' '.join(map(str, left))}")
        # Not unshare: it ends when everything in the namespace has.
        _kill((pid for pid, name in left.items() if name != "unshare"), signal.SIGKILL)
        time.sleep(0.05)
    return existed


def clear(layout: Layout) -> None:
    """Clear away what a daemon that is gone left on the host: sockets, and empty control groups in every hierarchy."""
    shutil.rmtree(layout.run, ignore_errors=True)
    name = layout.cgroup.strip("/")
    for top in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")):
        for folder in (*sorted(top.rglob("*/"), reverse=True), top):
            with suppress(OSError):
                folder.rmdir()


def _kill(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
