"""The driver's files, which are the host's: what has to be mounted, and what has to be mounted whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.host.npus import NPU_SMI
from cannery.lint.case import DRIVER, add, remark, replace
from cannery.vocab import Chip, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark

NO_DRIVER = "NODRV"  # of ASCEND_RUNTIME_OPTIONS: the ascend runtime brings nodes, and no files


def driver_mounts(case: Case) -> Iterator[Remark]:
    """Name what of the driver is not mounted: an error for its libraries, a warning for what describes it."""
    if not case.uses_npu or case.cdi or (case.runtime and NO_DRIVER not in case.env("ASCEND_RUNTIME_OPTIONS")):
        return
    lacking = [path for path in case.access.mounts if not case.gives(path)]
    unread = f" (unless {' '.join(case.container.opaque)} brings it)" if case.container.opaque else ""
    for path in lacking:
        if path.startswith(DRIVER) and path != f"{DRIVER}/version.info" and not _in_parts(case, path):
            yield _libraries(case, path, unread)
    rest = [path for path in lacking if not path.startswith(DRIVER) or path == f"{DRIVER}/version.info"]
    if rest:
        yield remark(
            Severity.WARNING,
            "driver.files",
            case.first_card(),
            f"not mounted beside {case.first_card()}: {', '.join(rest)}{unread}",
            "npu-smi, CANN and verify read there what driver the host has",
            " ".join(f"-v {path}:{path}:ro" for path in rest),
            *([] if unread else [add("-v", f"{path}:{path}:ro") for path in rest]),
        )


def _in_parts(case: Case, path: str) -> bool:
    """Whether what is needed of the folder lib64 is mounted folder by folder, as old guides have it."""
    return path.endswith("/lib64") and all(case.gives(f"{path}/{folder}") for folder in ("driver", "common"))


def _libraries(case: Case, path: str, unread: str) -> Remark:
    """Return the remark about libraries: not mounted, mounted elsewhere, or in part where the whole is needed."""
    other = next((m for m in case.container.mounts if m.source.rstrip("/") == path), None)
    part = next((m for m in case.container.mounts if m.source.startswith(f"{path}/")), None)
    wanted = f"{path}:{path}:ro"
    word, edit, severity = case.first_card(), add("-v", wanted), Severity.ERROR
    what = f"{path} is not mounted beside {word}{unread}"
    why = "libascend_hal.so stands there; without it no NPU is found (vllm-project/vllm-ascend issue 1440)"
    if other is not None:
        word, edit = other.setting.word, replace(other.setting, "-v", wanted)
        what = f"{word} mounts the driver's libraries where nothing looks for them"
    elif case.gives(f"{path}/driver") is not None:
        what = f"of {path} the folder common is not mounted beside {word}{unread}"
        why, severity = "libascend_hal.so, in the folder driver, needs libraries of it", Severity.WARNING
    elif part is not None and case.chip is Chip.A5:
        word, edit = part.setting.word, replace(part.setting, "-v", wanted)
        what = f"{word}: chip {case.chip} needs the whole {path}"
        why = "HCCL reads the topology files in it (vllm-project/recipes pull 907)"
    if unread or case.runtime:  # with NODRV, which somebody wrote on purpose
        severity = Severity.WARNING
    return remark(severity, "driver.missing", word, what, why, f"-v {wanted}", *([] if unread else [edit]))


def smi_mount(case: Case) -> Iterator[Remark]:
    """Note that npu-smi is not there: the host's is the only one that fits its driver."""
    if not case.uses_npu or case.runtime or case.cdi or any(case.gives(path) for path in NPU_SMI):
        return
    if any(mount.source.endswith("/npu-smi") for mount in case.container.mounts):
        return
    word = case.first_card()
    fix = f"-v $(command -v npu-smi):{NPU_SMI[0]}:ro"
    yield remark(
        Severity.NOTE,
        "driver.smi",
        word,
        f"npu-smi is not mounted beside {word}",
        "programs that ask it which NPU there is fall back or fail (LMCache/LMCache-Ascend pull 136)",
        fix,
    )
