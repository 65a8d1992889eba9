"""Processes, control groups and mounts of Cannery's own engine: found in /proc, ended one by one.

Nothing relies on a pid file: after `kill -9` or a reboot its number may belong to anybody. A process is ours when its
program lies below our folder and its command line names our paths, or when it sits in our control group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cannery.engine.own.layout import Layout

# What runs on the server's side; a client of the same packages belongs to whoever started it.
SERVERS = ("dockerd", "containerd", "containerd-shim", "containerd-shim-runc-v2", "docker-proxy", "runc")
PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
NOTICE = 2.0  # seconds that an end may take without a word

# The daemon gets a mount namespace of its own: layers and network namespaces that it mounts are never seen on the host
# and vanish with it, even after kill -9. In there an empty /run/containerd hides a containerd that belongs to another
# engine (dockerd would use it) and holds the shims' sockets. Arguments arrive as "$@"; nothing is spliced in.
LAUNCH = """\
mkdir -p /run/containerd
mount -t tmpfs -o mode=711 cannery /run/containerd
if ! grep -q ' cgroup2\\? ' /proc/self/mounts; then mount -t cgroup2 cgroup2 /sys/fs/cgroup; fi
exec "$@"
"""


def launch(command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
    """Start a daemon that outlives the caller: own session, own mount namespace, output to `log`, nothing inherited."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    outer = ("setsid", "--fork", "unshare", "--mount", "--propagation", "slave", "--")
    with log.open("wb") as stream:
        try:
            subprocess.run(
                (*outer, "sh", "-eu", "-c", LAUNCH, "cannery-engine", *command),
                env=dict(env),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=True,
            )
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            raise UnableError(f"the engine cannot be launched: {error}", hint="install util-linux") from error


def daemons(layout: Layout) -> tuple[int, ...]:
    """Process ids of our dockerd (normally one or none)."""
    return tuple(
        pid
        for pid in _pids()
        if str(layout.config) in _command(pid) and _program(pid).endswith("/dockerd")
        if _is_below(_program(pid), layout.root)
    )


def starting(layout: Layout, patience: float = 0.0) -> bool:
    """Whether the daemon or the launcher that becomes it is alive; looked for again until `patience` seconds are over.

    A process that is just becoming another program (setsid, unshare, sh, dockerd) has no command line for a moment,
    which a slow disk makes long: one look that finds nothing does not tell that it is gone.
    """
    deadline = time.monotonic() + patience
    while not any(str(layout.config) in _command(pid) for pid in _pids()):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def remnants(layout: Layout) -> tuple[int, ...]:
    """Everything else of the engine: containerd, shims, port forwarders, and processes in its containers."""
    return tuple(
        pid
        for pid in _pids()
        if (_is_server(_program(pid), layout.root) or _in_cgroup(pid, layout.cgroup)) and _alive(pid)
    )


def end(pids: Iterable[int], *, patience: float, slow: Callable[[], None] | None = None) -> None:
    """Ask processes to end, wait `patience` seconds, then kill those left. `slow` is called once after 2 s of that."""
    left = set(pids)
    notice = time.monotonic() + NOTICE
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + (patience if number == signal.SIGTERM else 5.0)
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            if slow is not None and time.monotonic() >= notice:
                slow()
                slow = None
            left = {pid for pid in left if _alive(pid)}


def end_remnants(layout: Layout) -> None:
    """Kill what a daemon that is gone has left behind. Ending a shim can leave orphans, so go round until none is."""
    for _ in range(5):
        pids = remnants(layout)
        if not pids:
            return
        end(pids, patience=0.5)
    if left := remnants(layout):
        raise UnableError(f"processes of the engine do not end: {' '.join(map(str, left))}")


def remove_cgroups(layout: Layout) -> None:
    """Remove the empty control groups of our containers, in every hierarchy."""
    name = layout.cgroup.strip("/")
    for top in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")):
        for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()
        with contextlib.suppress(OSError):
            top.rmdir()


def unmount_below(*folders: Path) -> None:
    """Detach mounts below `folders` in this namespace, deepest first. Normally there are none."""
    lines = (PROC / "self/mounts").read_text().splitlines()
    points = [line.split()[1].replace("\\040", " ") for line in lines]
    for point in sorted((p for p in points if any(_is_below(p, folder) for folder in folders)), reverse=True):
        run(("umount", "--lazy", point))


def _pids() -> tuple[int, ...]:
    return tuple(int(path.name) for path in PROC.iterdir() if path.name.isdigit() and int(path.name) != os.getpid())


def _program(pid: int) -> str:
    try:
        return str((PROC / str(pid) / "exe").readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""


def _command(pid: int) -> tuple[str, ...]:
    try:
        return tuple((PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0"))
    except OSError:
        return ()


def _in_cgroup(pid: int, cgroup: str) -> bool:
    return any(f"{group}/".startswith(f"{cgroup}/") for group in _cgroups(pid))


def _cgroups(pid: int) -> tuple[str, ...]:
    """The process's control group in every hierarchy."""
    try:
        text = (PROC / str(pid) / "cgroup").read_text()
    except OSError:
        return ()
    return tuple(line.split(":", 2)[-1] for line in text.splitlines())


def _alive(pid: int) -> bool:
    """Whether the process runs: one that waits for its parent to notice (a zombie) does not."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def _is_below(path: str, folder: Path) -> bool:
    return path.startswith(f"{folder}/")


def _is_server(program: str, folder: Path) -> bool:
    return _is_below(program, folder) and Path(program).name in SERVERS
