"""The programs of the engine: packages of the distribution, fetched by the host's apt and unpacked, not installed."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.standin.io.apt import HostRelease, fetch_debs, host_release, unpack
from cannery.util.io.files import write_atomic
from cannery.util.io.process import run

if TYPE_CHECKING:
    from docker_engine.daemon import Layout

ENGINE = ("docker.io", "docker-cli", "docker-buildx", "containerd", "tini")
ENGINE_UBUNTU = ("docker.io", "docker-buildx", "containerd")  # its docker.io has the client and needs no tini
# From the host's own release: they use its libseccomp and talk to its kernel. The libraries are those of iptables.
HOST_SIDE = (
    *("runc", "iptables", "libxtables12", "libip4tc2", "libip6tc2", "libmnl0", "libnftnl11"),
    *("libnetfilter-conntrack3", "libnfnetlink0"),
)
# Debian 12 has docker.io 20.10 and no docker-buildx; Debian 13's programs need glibc 2.34, Debian 12 has 2.36.
NEWER_RELEASE = {"bookworm": "trixie"}
DOCKERD, DOCKER, BUILDX = "usr/sbin/dockerd", "usr/bin/docker", "usr/libexec/docker/cli-plugins/docker-buildx"
# The unpacked client does not find the plugin unpacked beside it; `build` too would look for buildx and refuse.
WRAPPER = """\
#!/bin/sh
# Docker's client as the engine of tools/engine.py brought it; written at every start of that engine.
case "${{1-}}" in
buildx) shift && exec {buildx} "$@" ;;
build) exec {buildx} "$@" ;;
*) exec {docker} "$@" ;;
esac
"""


def package_sets(release: HostRelease) -> dict[str, tuple[str, ...]]:
    """Return {suite: packages} for this host."""
    engine = ENGINE if release.id == "debian" else ENGINE_UBUNTU
    newer = NEWER_RELEASE.get(release.codename)
    return {newer: engine, release.codename: HOST_SIDE} if newer else {release.codename: engine + HOST_SIDE}


def installed(layout: Layout) -> Path | None:
    """Return the folder of the unpacked programs, None where there is none. It has its name only when it is whole."""
    return next((layout.root / "versions").glob("[0-9]*"), None)


def install(layout: Layout) -> Path:
    """Fetch and unpack the newest packages in place of older ones; return their folder. Raises as `fetch_debs`."""
    release, arch = host_release(), run(("dpkg", "--print-architecture")).stdout.strip()
    debs: list[Path] = []
    for suite, names in package_sets(release).items():
        print(f"fetching from {suite}: {' '.join(names)}", file=sys.stderr)
        debs += fetch_debs(names, suite=suite, arch=arch, cache=layout.root.parent)
    docker = next(deb for deb in debs if deb.name.startswith("docker.io_"))
    version = docker.name.split("_")[1].rpartition("%3a")[2]  # without epoch
    folder = layout.root / "versions"
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".unpack-", dir=folder))
    scratch.chmod(0o755)
    try:
        for deb in debs:
            unpack(deb, scratch)
        for older in folder.iterdir():  # also what a killed run left; this one holds the engine's lock
            if older != scratch:
                shutil.rmtree(older)
        return scratch.rename(folder / version)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_wrapper(layout: Layout, programs: Path) -> None:
    """Write `<cache>/engine/bin/docker` for these programs, whole or not at all."""
    quoted = {"docker": shlex.quote(str(programs / DOCKER)), "buildx": shlex.quote(str(programs / BUILDX))}
    write_atomic(layout.bin / "docker", WRAPPER.format(**quoted), mode=0o755)
