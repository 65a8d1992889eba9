"""What is asked of the engine: runtime, privileges, another maker's devices, shared memory, the user."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.lint.case import RUNTIME_DEVICES
from cannery.lint.container import Remark
from cannery.lint.shell import is_open
from cannery.run.user import REPORT
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case

SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmgtp]?)i?b?", re.IGNORECASE)
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
# What profiles of this kind of work ask for, where none is known.
USUAL_SHM = "16g"
SHM_WHY = "Ray and data loaders stop when it is full (gpustack/gpustack issue 5014)"
# Who owns the nodes: HwHiAiUser, uid and gid 1000 on a host as the driver sets it up, mode 0660.
OWNER = "1000"
# Every distribution has this user in /etc/passwd.
NOBODY = "65534"


def privileged(case: Case) -> Iterator[Remark]:
    """Warn that --privileged shows every card, whatever nodes are named beside it."""
    setting = case.privileged
    if setting is None:
        return
    cards = case.container.cards
    beside = f"; the nodes of {', '.join(map(str, cards))} beside it are no limit" if cards else ""
    what = f"{setting.word} exposes every card of the host{beside}"
    why = "two such containers take each other's cards (vllm-project/vllm-ascend issue 6942); no NPU needs it"
    fix = "leave it out" if cards else "leave it out, and name the cards: --device /dev/davinci0 …, and the managers"
    yield Remark(Severity.WARNING, "privileged", setting.word, what, why, fix)


def mixed(case: Case) -> Iterator[Remark]:
    """Warn of two ways to the NPUs at once: the ascend runtime, and device nodes by hand."""
    runtime = case.container.last("runtime")
    if runtime is None:
        return
    value, word = runtime.value or "", runtime.word
    nodes = [d for d in case.container.devices if d.card is not None or d.source in case.managers]
    if value == "ascend" and nodes:
        what = f"{word} and {nodes[0].setting.word}: two ways to the NPUs at once"
        why = f"the runtime maps the cards of {RUNTIME_DEVICES} and mounts the driver; the nodes come on top"
        fix = f"leave {'its nodes' if case.env(RUNTIME_DEVICES) else 'the runtime'} out (gpustack/gpustack issue 1378)"
        yield Remark(Severity.WARNING, "runtime.mixed", word, what, why, fix)


def gpus(case: Case) -> Iterator[Remark]:
    """Refuse --gpus: it asks for another maker's devices, and the container does not start without them."""
    setting = case.container.last("gpus")
    if setting is not None:
        what = f"{setting.word} asks for GPUs"
        why = "the engine looks for NVIDIA's runtime and does not start the container; an NPU is a device node"
        if case.container.is_pod:
            why = "no node with NPUs offers it, so the Pod waits for one for ever"
        # Without a card of its own the line asks for some by this option, and only its writer knows which.
        fix = "leave it out: --device /dev/davinci0 … and the manager nodes"
        yield Remark(Severity.ERROR, "gpus", setting.word, what, why, fix)


def platform(case: Case) -> Iterator[Remark]:
    """Compare --platform with the CPU of the host, where the user names that."""
    setting = case.container.last("platform")
    arch = case.ground.arch
    named = setting.value.split("/")[1:2] if setting and setting.value else []
    if setting is None or arch is None or named not in [[other] for other in Arch if other is not arch]:
        return
    what = f"{setting.word}: the host is {arch}"
    why = "the driver's libraries are the host's, and no process of another architecture can load them"
    fix = f"an image for {arch} (vllm-project/vllm-ascend issue 2521)"
    yield Remark(Severity.ERROR, "arch", setting.word, what, why, fix)


def size(text: str) -> int | None:
    """Return bytes of a size as docker writes it (`16g`, `512MB`, `1024`); None for any other text."""
    match = SIZE.fullmatch(text.strip())
    return int(float(match[1]) * UNITS[match[2].lower()]) if match else None


def shared_memory(case: Case) -> Iterator[Remark]:
    """Warn where /dev/shm is smaller than the stack asks for, or is left at docker's own size."""
    container, setting = case.container, case.container.last("shm-size")
    ipc = container.value("ipc")
    is_mounted = any(mount.target.rstrip("/") == "/dev/shm" for mount in container.mounts)  # noqa: S108 - not ours
    if is_mounted or ipc == "host" or ipc.startswith("container:") or is_open(container.value("shm-size")):
        return
    wanted = case.ground.shm.get(case.image.profile, USUAL_SHM)
    fix = f"--shm-size {wanted}"
    if setting is None:
        if case.uses_npu or case.image.ascend:
            what = f"{container.image} gets the default /dev/shm of 64 MB"
            yield Remark(Severity.WARNING, "shm", container.image, what, SHM_WHY, fix)
        return
    given, least = size(setting.value or ""), size(wanted) or 0
    # One card, and no profile: nothing there shares much.
    is_for_one = len(container.cards) == 1 and not case.image.profile and not container.opaque
    if given is None:
        what = f"{setting.word} is not a size"
        yield Remark(Severity.ERROR, "shm", setting.word, what, "docker refuses it", fix)
    elif given < least and not (is_for_one and given >= UNITS["g"]):
        whose = f"profile {case.image.profile}" if case.image.profile else "training and serving on several cards"
        unit = " (a number without a unit is bytes)" if (setting.value or "").isdecimal() else ""
        what = f"{setting.word} is small{unit}: {whose} takes {wanted}"
        yield Remark(Severity.WARNING, "shm", setting.word, what, SHM_WHY, fix)


def group(case: Case) -> Iterator[Remark]:
    """Warn of a user without the group of the device nodes, and of one without a name."""
    setting = case.container.last("user")
    if setting is None or not setting.value or not case.uses_npu or is_open(setting.value):
        return
    user, _, main = setting.value.partition(":")
    if user in {"0", "root"}:
        return
    is_owner = user in {OWNER, "HwHiAiUser"}
    if is_owner or (user.isdecimal() and user != NOBODY):
        what = f"{setting.word}: needs a line in the image's /etc/passwd"
        why = f"HCCL between several cards fails for a user without a name ({REPORT})"
        fix = "an image that has the user (`user` in its profile), or -v /etc/passwd:/etc/passwd:ro"
        yield Remark(Severity.NOTE, "user.name", setting.word, what, why, fix)
    if not is_owner and not case.container.all("group-add") and main in {"", "0"}:
        what = f"{setting.word} without --group-add: the device nodes are closed to that user"
        why = f"they belong to HwHiAiUser, mode 0660; no NPU is seen then ({REPORT})"
        fix = '--group-add "$(stat -c %g /dev/davinci_manager)"'
        yield Remark(Severity.WARNING, "user.group", setting.word, what, why, fix)


def caches(case: Case) -> Iterator[Remark]:
    """Warn of caches that are mounted below /root for another user, who cannot reach them."""
    user = case.container.value("user").partition(":")[0]
    if user in {"", "0", "root"} or is_open(user):
        return
    for mount in case.container.mounts:
        if mount.target == "/root" or mount.target.startswith("/root/"):
            word = mount.setting.word
            what = f"{word}: user {user} cannot enter /root"
            fix = "mount it into that user's home, and set HOME"
            yield Remark(Severity.WARNING, "user.cache", word, what, "vllm-project/vllm-ascend issue 10698", fix)
