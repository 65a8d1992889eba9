"""The packages of Cannery's own engine: which ones, from which release, and where they lie unpacked."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import UnableError
from cannery.standin.io.apt import HostRelease, distribution_sources, fetch_debs, host_release, unpack
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cannery.engine.own.layout import Layout

# docker.io before 23 has no BuildKit that knows COPY --link.
MIN_MAJOR = 23
ENGINE = ("docker.io", "docker-cli", "docker-buildx", "containerd", "tini")
ENGINE_UBUNTU = ("docker.io", "docker-buildx", "containerd")  # its docker.io holds the client and needs no tini
HOST_SIDE = (
    "runc",
    "iptables",
)  # linked against the host's libseccomp, and talking to its kernel: from its own release
# Debian 12 has docker.io 20.10 and no docker-buildx; Debian 13's binaries need glibc 2.34, Debian 12 has 2.36.
NEWER_RELEASE = {"bookworm": "trixie"}
TOO_OLD = ("buster", "bullseye", "bionic", "focal")  # glibc below 2.34, or no docker-buildx


@dataclass(frozen=True)
class PackageSet:
    """Packages to be taken from one release."""

    suite: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Binaries:
    """One unpacked engine."""

    root: Path

    @property
    def version(self) -> str:
        """Debian version of docker.io."""
        return self.root.name

    @property
    def docker(self) -> Path:
        """The client."""
        return self.root / "usr/bin/docker"

    @property
    def buildx(self) -> Path:
        """The buildx plugin, which runs by itself too."""
        return self.root / "usr/libexec/docker/cli-plugins/docker-buildx"

    @property
    def dockerd(self) -> Path:
        """The daemon."""
        return self.root / "usr/sbin/dockerd"

    @property
    def proxy(self) -> Path:
        """Program that forwards published ports."""
        folders = (self.root / "usr" / name for name in ("sbin", "bin", "libexec/docker"))
        return next((f / "docker-proxy" for f in folders if (f / "docker-proxy").is_file()), Path("docker-proxy"))

    @property
    def links(self) -> Path:
        """Folder with `iptables` and `ip6tables`, which the package leaves to update-alternatives."""
        return self.root / "links"

    @property
    def libraries(self) -> tuple[Path, ...]:
        """Folders of the libraries that came along for iptables."""
        return tuple(sorted(p.parent for p in self.root.glob("usr/lib/*/libxtables.so.*") if p.is_symlink()))


def package_sets(release: HostRelease) -> tuple[PackageSet, ...]:
    """What is taken from where on this host. Raises `UnableError` on a release whose packages cannot do."""
    if release.codename in TOO_OLD:
        raise UnableError(
            f"{release.id} {release.codename} is too old for an engine of Cannery's own",
            hint="install Docker Engine 23 or newer with docker-buildx, or point DOCKER_HOST at one",
        )
    engine = ENGINE if release.id == "debian" else ENGINE_UBUNTU
    newer = NEWER_RELEASE.get(release.codename)
    if newer:
        return PackageSet(newer, engine), PackageSet(release.codename, HOST_SIDE)
    return (PackageSet(release.codename, engine + HOST_SIDE),)


def installed(layout: Layout) -> Binaries | None:
    """The newest engine that lies unpacked, or None. A folder named by a version is whole: it was moved there last."""
    folders = [path for path in layout.packages.glob("[0-9]*") if path.is_dir()]
    return Binaries(max(folders, key=lambda path: _version_key(path.name))) if folders else None


def install(layout: Layout, cache: Path, say: Callable[[str], None]) -> Binaries:
    """Fetch and unpack the engine's packages. Raises as `fetch_debs`, and `UnableError` when docker.io is too old."""
    release = host_release()
    arch = run(("dpkg", "--print-architecture")).stdout.strip()
    sets = package_sets(release)
    parts = "; ".join(f"{wanted.suite}: {' '.join(wanted.names)}" for wanted in sets)
    say(f"fetching the engine's packages ({parts})")
    sources = distribution_sources(release)

    def fetch(wanted: PackageSet) -> tuple[Path, ...]:
        return fetch_debs(wanted.names, suite=wanted.suite, arch=arch, cache=cache, sources=sources)

    with ThreadPoolExecutor(len(sets)) as pool:
        debs = [deb for found in pool.map(fetch, sets) for deb in found]
    libraries = missing_libraries(next(deb for deb in debs if deb.name.startswith("iptables_")))
    if libraries:
        debs += fetch_debs(libraries, suite=release.codename, arch=arch, cache=cache, sources=sources)
    version = deb_version(next(deb for deb in debs if deb.name.startswith("docker.io_")))
    if _version_key(version)[0] < MIN_MAJOR:
        raise UnableError(
            f"docker.io {version} of {release.codename} is too old", hint=f"install Docker Engine {MIN_MAJOR} or newer"
        )
    return _unpack_all(layout, debs, version)


def deb_version(deb: Path) -> str:
    """Version in a package file's name, without epoch, fit for a folder's name."""
    return deb.name.split("_")[1].rpartition("%3a")[2]


def missing_libraries(deb: Path) -> tuple[str, ...]:
    """Libraries that a package names directly, without libc: they are unpacked beside it."""
    depends = run(("dpkg-deb", "-f", deb, "Depends")).stdout
    names = (re.match(r"\s*([a-z0-9.+-]+)", part) for part in depends.split(","))
    return tuple(match[1] for match in names if match and match[1].startswith("lib") and match[1] != "libc6")


def _unpack_all(layout: Layout, debs: Sequence[Path], version: str) -> Binaries:
    target = layout.packages / version
    layout.packages.mkdir(parents=True, exist_ok=True)
    for stale in layout.packages.glob(".unpack-*"):  # of a run that was killed: this one holds the engine's lock
        shutil.rmtree(stale, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=".unpack-", dir=layout.packages))
    try:
        scratch.chmod(0o755)
        with ThreadPoolExecutor(2) as pool:  # one core a package: decompression is all the time it takes
            list(pool.map(lambda deb: unpack(deb, scratch), debs))
        for folder in ("sbin", "bin", "lib"):  # packages older than the merge of / and /usr
            if (scratch / folder).is_dir() and not (scratch / folder).is_symlink():
                shutil.copytree(scratch / folder, scratch / "usr" / folder, symlinks=True, dirs_exist_ok=True)
        link_iptables(Binaries(scratch), "nft")
        if target.exists():
            shutil.rmtree(target)
        _sync(scratch)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Binaries(target)


def _sync(folder: Path) -> None:
    """Let programs reach the disk before their folder has the name that says they are whole: a host may lose power."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())


def link_iptables(binaries: Binaries, kind: str) -> None:
    """Make `iptables` mean the nft or the legacy variant of the unpacked package."""
    binaries.links.mkdir(exist_ok=True)
    for name in ("iptables", "ip6tables"):
        link = binaries.links / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"../usr/sbin/xtables-{kind}-multi")


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)) or (0,)
