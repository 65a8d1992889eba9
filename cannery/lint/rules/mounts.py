"""Mounts: the driver's files, which are the host's, and what hides a part of the image."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from cannery.host.facts import NPU_SMI
from cannery.lint.container import DRIVER, Remark
from cannery.vocab import Chip, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.container import Case, Mount

NO_DRIVER = "NODRV"  # of ASCEND_RUNTIME_OPTIONS: the ascend runtime brings nodes, and no files
ASCEND = "/usr/local/Ascend"


class Place(NamedTuple):
    """A folder of an image that no mount may cover, what is lost then, and whether only Cannery's images have it."""

    path: str
    lost: str
    severity: Severity = Severity.ERROR
    ours: bool = False


# In the order of their weight.
PLACES = (
    Place(f"{ASCEND}/cann", "CANN"),
    Place(f"{ASCEND}/ascend-toolkit", "CANN"),
    Place(f"{ASCEND}/nnal", "NNAL (ATB)"),
    Place("/opt/venv", "every package of the stack", ours=True),
    Place("/opt/src", "every source tree: packages are installed from there", ours=True),
    Place("/opt/cannery", "the manifest and the verify script", ours=True),
    Place("/usr/local/lib", "jemalloc, which LD_PRELOAD names, and other libraries", ours=True),
    Place("/usr/local/bin", "programs", Severity.WARNING),
    Place("/vllm-workspace", "vllm and vllm-ascend, which are installed from there", Severity.WARNING),
    Place("/sgl-workspace", "sglang, which is installed from there", Severity.WARNING),
)
# Trees that are installed from their place: of the makers' images (their Dockerfiles), and of ours.
TREES = re.compile(r"(/(?:vllm|sgl)-workspace/(?:vllm|vllm-ascend|sglang|sgl-kernel-npu))(?:/.*)?")
OUR_TREES = re.compile(r"(/opt/src/[^/]+)")


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
    other = next((m.word for m in case.container.mounts if m.source.rstrip("/") == path), "")
    part = next((m.word for m in case.container.mounts if m.source.startswith(f"{path}/")), "")
    word = case.first_card()
    what = f"{path} is not mounted beside {word}{case.unread}"
    why = "libascend_hal.so is in it; without it no NPU is found (vllm-project/vllm-ascend issue 1440)"
    if other:
        word, what = other, f"{other} mounts the driver's libraries where nothing looks for them"
    elif part and case.chip is Chip.A5:
        word, what = part, f"{part}: chip {case.chip} needs the whole {path}"
        why = "HCCL reads the topology files in it (vllm-project/recipes pull 907)"
    # The runtime with NODRV is written on purpose; a cluster's runtime may mount the driver.
    is_unsure = case.unread or case.runtime or case.plugin or case.gives(f"{path}/driver")
    severity = Severity.WARNING if is_unsure else Severity.ERROR
    return Remark(severity, "driver.missing", word, what, why, f"-v {path}:{path}:ro")


def smi_mount(case: Case) -> Iterator[Remark]:
    """Note that npu-smi is not there: the host's is the only one that fits its driver."""
    is_there = any(map(case.gives, NPU_SMI)) or any(m.source.endswith("/npu-smi") for m in case.container.mounts)
    if case.uses_npu and not (case.runtime or case.cdi or is_there):
        word = case.first_card()
        what = f"npu-smi is not mounted beside {word}"
        why = "programs that ask it which NPU there is fall back or fail (LMCache/LMCache-Ascend pull 136)"
        fix = f"-v $(command -v npu-smi):{NPU_SMI[0]}:ro"
        yield Remark(Severity.NOTE, "driver.smi", word, what, why, fix)


def hidden(case: Case) -> Iterator[Remark]:
    """Name mounts that hide what the image has: CANN, the packages, a tree that is installed from its place."""
    for mount in case.container.mounts:
        target = mount.target.rstrip("/")
        places = [place for place in PLACES if mount.hides(place.path) and (case.image.ours or not place.ours)]
        if target.startswith(f"{ASCEND}/cann-") and target.count("/") == 4:
            places.append(Place(target, "CANN"))
        tree = TREES.fullmatch(target) or (OUR_TREES.fullmatch(target) if case.image.ours else None)
        if target and places:
            yield _hides(case, mount, places)
        elif tree:
            what = f"{mount.word} replaces {'a part of ' if tree[1] != target else ''}the image's tree {tree[1]}"
            why = "the package is installed from there, with its patches, generated and compiled files"
            fix = "on purpose: a tree of the same commit, built in this image; else mount it elsewhere"
            yield Remark(Severity.WARNING, "mount.source", mount.word, what, why, fix)


def _hides(case: Case, mount: Mount, places: list[Place]) -> Remark:
    worst = places[0]
    lost = ", ".join(dict.fromkeys(place.lost for place in places if place.severity is worst.severity))
    severity, fix = worst.severity, "mount it at another place"
    if worst.path.startswith(ASCEND):
        fix = f"mount what of it is the host's: {' '.join(case.access.mounts)}"
        # The host's CANN may be what the image is to run with, whatever its name is: some images have none.
        is_hosts = mount.source.rstrip("/") == mount.target.rstrip("/") and mount.target.startswith(ASCEND)
        is_sure = not is_hosts and (case.image.ours or case.image.ascend)
        severity = Severity.ERROR if is_sure else Severity.WARNING
    what = f"{mount.word} hides what the image has there: {lost}"
    return Remark(severity, "mount.hides", mount.word, what, "a mount covers what the image has below it", fix)
