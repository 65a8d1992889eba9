"""Paths of a host and folders of the user that are mounted into a container, if they exist."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.host.facts import NPU_SMI, RANKTABLE, place_of
from cannery.recipe.environment import CACHE_HOME
from cannery.sandbox.box import Mount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cannery.catalog.catalog import ChipAccess, ImageUser
    from cannery.host.facts import HostNpus

# The cache folder of root. In images with a user, environment variables name CACHE_HOME.
ROOTS = "/root/.cache"
# Folder below ~/.cache → the variable that moves it elsewhere. The rest of ~/.cache is not mounted: root would write
# files there that the user cannot remove.
CACHES = {"huggingface": "HF_HOME", "modelscope": "MODELSCOPE_CACHE"}


@dataclass(frozen=True)
class Found:
    """The mounts that a host has, and notes or warnings on those that are missing or left out."""

    mounts: tuple[Mount, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def beside(mounts: Iterable[Mount], volumes: Iterable[str]) -> tuple[Mount, ...]:
    """Return the mounts that are not at or below the target of a volume (a value of docker's -v).

    Docker refuses two mounts at one place, and the user's own has priority.
    """
    targets = [PurePosixPath(volume.split(":")[min(1, volume.count(":"))]) for volume in volumes]
    return tuple(mount for mount in mounts if not any(PurePosixPath(mount.target).is_relative_to(t) for t in targets))


def driver_mounts(access: ChipAccess, host: HostNpus) -> Found:
    """Return the mounts of the driver's files and of npu-smi, which is mounted where the image's PATH finds it."""
    found = _existing(access.mounts, host)
    if host.npu_smi is not None:
        return Found((*found.mounts, Mount(host.npu_smi, NPU_SMI[0], read_only=True)), found.notes)
    hidden = [path for path in NPU_SMI if path in host.hidden]
    why = f"you cannot read {', '.join(hidden)}" if hidden else "this host has no npu-smi"
    return Found(found.mounts, (*found.notes, f"{why}: not mounted"))


def network_mounts(access: ChipAccess, host: HostNpus) -> Found:
    """Return the mounts of the files that HCCL needs to reach other hosts."""
    found = _existing(access.network, host)
    return Found(found.mounts, warnings=tuple(f"{note}; HCCL between hosts needs it" for note in found.notes))


def ranktable_mounts(access: ChipAccess, host: HostNpus, runtime: str | None) -> Found:
    """Return the mount of the host's ranktable if it has the chip's version: any other stops every job (case D10).

    The Ascend Docker runtime mounts it itself, in any version.
    """
    if RANKTABLE not in host.paths:
        return Found()
    if host.ranktable and host.ranktable == access.ranktable:
        return Found() if runtime else Found((Mount(RANKTABLE, RANKTABLE, read_only=True),))
    version = f"of version {host.ranktable}" if host.ranktable else "of no version that can be read"
    wanted = f"HCCL takes {access.ranktable} on this chip" if access.ranktable else "none is known for this chip"
    outcome = f"the runtime {runtime} mounts it anyway, so move it away" if runtime else "not mounted"
    return Found((), (f"{RANKTABLE} is {version}, {wanted}: {outcome}",))


def _existing(paths: Iterable[str], host: HostNpus) -> Found:
    wanted = tuple(paths)
    absent = [place_of(path, host.install) for path in wanted if path not in host.paths | host.hidden]
    hidden = [place_of(path, host.install) for path in wanted if path in host.hidden]
    notes = [f"this host has no {place}: not mounted" for place in absent]
    if hidden:
        notes.append(
            f"you cannot read {', '.join(hidden)}: mounted anyway; docker reports what is missing, and "
            "`build.py doctor` as root can read all of it"
        )
    mounts = (mount for path in wanted if path in host.paths | host.hidden for mount in _mounts_of(path, host))
    return Found(tuple(mounts), tuple(notes))


def _mounts_of(path: str, host: HostNpus) -> Iterator[Mount]:
    """Yield the mounts of a path of the driver: at the usual place, and at the place in its install.info."""
    place = place_of(path, host.install)
    for target in dict.fromkeys((path, place)):
        yield Mount(place, target, read_only=True)


def user_caches(env: Mapping[str, str], user: ImageUser | None = None) -> tuple[Mount, ...]:
    """Return the mounts of the caches in `env` of the host's user, for the image's `user` (None: root).

    A cache with a relative path is left out, and so are all without a home.
    """
    base = env.get("XDG_CACHE_HOME") or (f"{env['HOME']}/.cache" if env.get("HOME") else "")
    places = {name: env.get(variable) or (f"{base}/{name}" if base else "") for name, variable in CACHES.items()}
    return tuple(
        Mount(str(PurePosixPath(place)), f"{ROOTS if user is None else CACHE_HOME}/{name}")
        for name, place in places.items()
        if place.startswith("/")
    )
