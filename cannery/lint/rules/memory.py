"""Shared memory: docker's own 64 MB are too little for Ray and for HCCL between processes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.lint.case import add, remark, replace
from cannery.lint.shell_words import is_open
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark

SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmgtp]?)i?b?", re.IGNORECASE)
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
# What the profiles of this kind of work ask for, where none is known.
USUAL = "16g"
REPORT = "gpustack/gpustack issue 5014"


def size(text: str) -> int | None:
    """Return bytes of a size as docker writes it (`16g`, `512MB`, `1024`); None for what is none."""
    match = SIZE.fullmatch(text.strip())
    return int(float(match[1]) * UNITS[match[2].lower()]) if match else None


def _is_for_one(case: Case) -> bool:
    """Whether it is one card's, and no profile's: nothing there shares much."""
    return len(case.container.cards) == 1 and not case.told.profile and not case.container.opaque


def shared_memory(case: Case) -> Iterator[Remark]:
    """Warn where /dev/shm is smaller than the stack asks for, or is left at docker's own size."""
    container = case.container
    wanted = case.ground.shm.get(case.told.profile, USUAL)
    setting = container.last("shm-size")
    ipc = container.value("ipc")
    if any(mount.target.rstrip("/") == "/dev/shm" for mount in container.mounts):  # noqa: S108 - not a file of ours
        return
    if ipc == "host":
        if setting is not None:
            what = f"{setting.word} counts for nothing beside --ipc host, which takes the host's /dev/shm"
            yield remark(
                Severity.NOTE, "shm", setting.word, what, "there is one /dev/shm then, the host's", "leave one out"
            )
        return
    if ipc.startswith("container:") or is_open(container.value("shm-size")):
        return
    if setting is None:
        if case.uses_npu or case.told.ascend:
            what = f"no --shm-size for {container.image}: /dev/shm has docker's own 64 MB"
            why = f"Ray and data loaders stop when it is full ({REPORT})"
            fix = f"--shm-size {wanted}"
            yield remark(Severity.WARNING, "shm", container.image, what, why, fix, add("--shm-size", wanted))
        return
    given, least = size(setting.value or ""), size(wanted) or 0
    if given is None:
        what = f"{setting.word}: no size is written so"
        edit = replace(setting, "--shm-size", wanted)
        yield remark(Severity.ERROR, "shm", setting.word, what, "docker refuses it", f"--shm-size {wanted}", edit)
    elif given < least and not (_is_for_one(case) and given >= UNITS["g"]):
        whose = f"profile {case.told.profile}" if case.told.profile else "training and serving on several cards"
        unit = " (a number without a unit is bytes)" if (setting.value or "").isdecimal() else ""
        what = f"{setting.word} is small{unit}: {whose} takes {wanted}"
        edit = replace(setting, "--shm-size", wanted)
        why = f"Ray and data loaders stop when it is full ({REPORT})"
        yield remark(Severity.WARNING, "shm", setting.word, what, why, f"--shm-size {wanted}", edit)
