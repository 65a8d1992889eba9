"""Where Cannery's own engine lives: paths and names, all derived from the cache folder.

Data, packages and logs are below `<cache>/engine`. Sockets are below /run, because a unix socket's path holds at most
107 bytes and a cache may lie deep; the short hash keeps engines of two caches apart.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN_BASE = Path("/run")


@dataclass(frozen=True)
class Layout:
    """Paths and names of the engine of one cache. `root` is `<cache>/engine`, `run` is gone after a reboot."""

    root: Path
    run: Path
    tag: str

    @classmethod
    def of(cls, cache: Path, run_base: Path = RUN_BASE) -> Layout:
        """Layout of the engine that belongs to `cache` (also when it is named by another relative path)."""
        root = (cache / "engine").resolve()
        tag = hashlib.sha256(str(root).encode()).hexdigest()[:8]
        return cls(root, run_base / f"cannery-{tag}", tag)

    @property
    def socket(self) -> Path:
        """Docker's API."""
        return self.run / "docker.sock"

    @property
    def host(self) -> str:
        """DOCKER_HOST of this engine."""
        return f"unix://{self.socket}"

    @property
    def network_state(self) -> Path:
        """What was changed in the host's network, to take it back."""
        return self.run / "network.json"

    @property
    def config(self) -> Path:
        """The daemon's configuration file; its path in a command line marks the daemon as ours."""
        return self.root / "daemon.json"

    @property
    def log(self) -> Path:
        """What the daemon prints."""
        return self.root / "engine.log"

    @property
    def lock(self) -> Path:
        """Held while one process starts, stops or removes."""
        return self.root / "engine.lock"

    @property
    def data(self) -> Path:
        """Images, containers, build cache."""
        return self.root / "data"

    @property
    def bin(self) -> Path:
        """Folder with the `docker` that a user's shell calls."""
        return self.root / "bin"

    @property
    def packages(self) -> Path:
        """Unpacked engines, one folder a version."""
        return self.root / "versions"

    @property
    def bridge(self) -> str:
        """Name of the network bridge: 15 bytes at the most (IFNAMSIZ)."""
        return f"cannery{self.tag}"

    @property
    def cgroup(self) -> str:
        """Parent of all containers' control groups: it tells their processes from other engines'."""
        return f"/cannery-{self.tag}"


def daemon_config(layout: Layout, proxy: Path, keep_storage: int, taken_over: dict[str, Any]) -> dict[str, Any]:
    """The daemon.json of the own engine. `keep_storage`: bytes of build cache that are kept; `proxy`: docker-proxy.

    `taken_over` are settings of the host's own daemon.json (registry mirrors) that stay in force.
    """
    return taken_over | {
        "data-root": str(layout.data),
        "exec-root": str(layout.run / "exec"),
        "pidfile": str(layout.run / "docker.pid"),
        "hosts": [layout.host],
        "group": "root",
        # Another engine on this machine rebuilds and flushes the chains that dockerd uses, and this one would flush
        # its. So dockerd touches no rule; engine_network adds two of its own, and published ports go by docker-proxy.
        "bridge": layout.bridge,
        "iptables": False,
        "ip6tables": False,
        "ip-masq": False,
        "ip-forward": False,
        "userland-proxy-path": str(proxy),
        # No systemd unit stands behind this daemon; cgroupfs works on every host, with v1 and v2.
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": layout.cgroup,
        # Docker 29 changes the default; layers, ids and sizes are those of the classic store here.
        "features": {"containerd-snapshotter": False},
        "log-opts": {"max-size": "20m", "max-file": "2"},
        # The default keeps a tenth of the disk: less than one image's stages on most machines.
        "builder": {"gc": {"enabled": True, "defaultKeepStorage": f"{keep_storage}B"}},
    }
