"""Mounts: the driver's files, which are the host's, and what hides a part of the image."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.host.npus import NPU_SMI
from cannery.lint.case import DRIVER
from cannery.lint.container import Remark
from cannery.vocab import Chip, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case
    from cannery.lint.container import Mount

NO_DRIVER = "NODRV"  # of ASCEND_RUNTIME_OPTIONS: the ascend runtime brings nodes, and no files
ASCEND = "/usr/local/Ascend"
SOURCES = "/opt/src"


@dataclass(frozen=True)
class Place:
    """A folder of an image that a mount must not cover, what is lost then, and in whose images it is."""

    path: str
    lost: str
    severity: Severity = Severity.ERROR
    ours: bool = False


PLACES = (
    Place(f"{ASCEND}/cann", "CANN"),
    Place(f"{ASCEND}/ascend-toolkit", "CANN"),
    Place(f"{ASCEND}/nnal", "NNAL (ATB)"),
    Place("/opt/venv", "every package of the stack", ours=True),
    Place(SOURCES, "every source tree: packages are installed from there", ours=True),
    Place("/opt/cannery", "the manifest and the verify script", ours=True),
    Place("/usr/local/lib", "jemalloc, which LD_PRELOAD names, and other libraries", ours=True),
    Place("/usr/local/bin", "programs", Severity.WARNING),
    Place("/usr/local/sbin", "programs", Severity.NOTE),
    Place("/vllm-workspace", "vllm and vllm-ascend, which are installed from there", Severity.WARNING),
    Place("/sgl-workspace", "sglang, which is installed from there", Severity.WARNING),
)
# Trees of the makers' images that are installed from their place (vllm-ascend's and sglang's Dockerfiles).
TREES = re.compile(r"(/(?:vllm|sgl)-workspace/(?:vllm|vllm-ascend|sglang|sgl-kernel-npu))(?:/.*)?")


def driver_mounts(case: Case) -> Iterator[Remark]:
    """Name what of the driver is not mounted: an error for its libraries, a warning for what describes it."""
    if not case.uses_npu or case.cdi or (case.runtime and NO_DRIVER not in case.env("ASCEND_RUNTIME_OPTIONS")):
        return
    lacking = [path for path in case.access.mounts if not case.gives(path)]
    libraries = [path for path in lacking if path.startswith(DRIVER) and path != f"{DRIVER}/version.info"]
    yield from (_libraries(case, path) for path in libraries if not _in_parts(case, path))
    rest = [path for path in lacking if path not in libraries]
    if rest:
        word = case.first_card()
        what = f"not mounted beside {word}: {', '.join(rest)}{case.unread}"
        why = "npu-smi, CANN and verify read there what driver the host has"
        fix = " ".join(f"-v {path}:{path}:ro" for path in rest)
        yield Remark(Severity.WARNING, "driver.files", word, what, why, fix)


def _in_parts(case: Case, path: str) -> bool:
    """Whether what is needed of the folder lib64 is mounted folder by folder, as old guides have it."""
    return path.endswith("/lib64") and all(case.gives(f"{path}/{folder}") for folder in ("driver", "common"))


def _libraries(case: Case, path: str) -> Remark:
    """Return the remark about libraries: not mounted, mounted elsewhere, or in part where the whole is needed."""
    other = next((m for m in case.container.mounts if m.source.rstrip("/") == path), None)
    part = next((m for m in case.container.mounts if m.source.startswith(f"{path}/")), None)
    fix = f"-v {path}:{path}:ro"
    word, severity = case.first_card(), Severity.ERROR
    what = f"{path} is not mounted beside {word}{case.unread}"
    why = "libascend_hal.so is in it; without it no NPU is found (vllm-project/vllm-ascend issue 1440)"
    if other is not None:
        word = other.setting.word
        what = f"{word} mounts the driver's libraries where nothing looks for them"
    elif case.gives(f"{path}/driver"):
        what = f"of {path} the folder common is not mounted beside {word}{case.unread}"
        why, severity = "libascend_hal.so, in the folder driver, needs libraries of it", Severity.WARNING
    elif part is not None and case.chip is Chip.A5:
        word = part.setting.word
        what = f"{word}: chip {case.chip} needs the whole {path}"
        why = "HCCL reads the topology files in it (vllm-project/recipes pull 907)"
    # The runtime with NODRV is written on purpose; a cluster's runtime may mount the driver.
    if case.unread or case.runtime or case.plugin:
        severity = Severity.WARNING
    return Remark(severity, "driver.missing", word, what, why, fix)


def smi_mount(case: Case) -> Iterator[Remark]:
    """Note that npu-smi is not there: the host's is the only one that fits its driver."""
    is_there = any(case.gives(path) for path in NPU_SMI) or any(
        m.source.endswith("/npu-smi") for m in case.container.mounts
    )
    if case.uses_npu and not (case.runtime or case.cdi or is_there):
        word = case.first_card()
        what = f"npu-smi is not mounted beside {word}"
        why = "programs that ask it which NPU there is fall back or fail (LMCache/LMCache-Ascend pull 136)"
        fix = f"-v $(command -v npu-smi):{NPU_SMI[0]}:ro"
        yield Remark(Severity.NOTE, "driver.smi", word, what, why, fix)


def empty_volumes(case: Case) -> Iterator[Remark]:
    """Name a path of the host that is given alone: docker makes an empty volume at that place."""
    for mount in case.container.mounts:
        if mount.setting.key == "volume" and not mount.source and _is_host_path(mount.target):
            word, fix = mount.setting.word, f"-v {mount.target}:{mount.target}"
            what = f"{word}: one path alone is an empty volume of that name, not the host's folder"
            why = "the engine makes a new volume at each start"
            yield Remark(Severity.ERROR, "mount.single", word, what, why, fix)


def _is_host_path(path: str) -> bool:
    return path.startswith((ASCEND, "/usr/local/dcmi", "/etc/")) or path.endswith("/npu-smi")


def hidden(case: Case) -> Iterator[Remark]:
    """Name mounts that hide what the image has: CANN, the packages, a tree that is installed from its place."""
    for mount in case.container.mounts:
        target = mount.target.rstrip("/")
        places = [place for place in PLACES if mount.hides(place.path) and (case.image.ours or not place.ours)]
        if target.startswith(f"{ASCEND}/cann-") and target.count("/") == 4:
            places.append(Place(target, "CANN"))
        if target and places:
            yield _hides(case, mount, places)
        elif case.image.ours and PurePosixPath(target).parent == PurePosixPath(SOURCES):
            word = mount.setting.word
            what = f"{word} replaces the image's tree"
            why = "its patches and generated files are gone, and verify fails at sources.*"
            fix = "on purpose: build with SRC_<component>=DIR, which the manifest records; else mount it elsewhere"
            yield Remark(Severity.WARNING, "mount.source", word, what, why, fix)
        elif tree := TREES.fullmatch(target):
            word = mount.setting.word
            what = f"{word} replaces {'a part of ' if tree[1] != target else ''}the image's tree {tree[1]}"
            why = "the package is installed from there, with its generated and compiled files"
            fix = "on purpose: a tree of the same commit, built in this image; else mount it elsewhere"
            yield Remark(Severity.WARNING, "mount.source", word, what, why, fix)


def _hides(case: Case, mount: Mount, places: list[Place]) -> Remark:
    worst = min(places, key=lambda place: list(Severity).index(place.severity))
    lost = ", ".join(dict.fromkeys(place.lost for place in places if place.severity is worst.severity))
    word, severity, fix = mount.setting.word, worst.severity, "mount it at another place"
    is_hosts = mount.source.rstrip("/") == mount.target.rstrip("/")
    if worst.path.startswith(ASCEND):
        fix = f"mount what of it is the host's: {' '.join(case.access.mounts)}"
        # The host's CANN may be what the image is to run with, whatever its name is: some images have none.
        is_hosts_cann = is_hosts and mount.target.startswith(ASCEND)
        is_sure = not is_hosts_cann and (case.image.ours or case.image.ascend)
        severity = Severity.ERROR if is_sure else Severity.WARNING
    elif worst.path in {"/usr/local/bin", "/usr/local/sbin"} and is_hosts:
        fix = f"mount what is needed of it: -v {worst.path}/npu-smi:{worst.path}/npu-smi:ro"
    what = f"{word} hides what the image has there: {lost}"
    return Remark(severity, "mount.hides", word, what, "a mount covers what the image has below it", fix)
