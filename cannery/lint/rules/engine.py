"""The image, and what is asked of the engine: its chip and CPU, shared memory, the user."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.lint.container import Remark
from cannery.lint.shell import is_open
from cannery.run.container import REPORT
from cannery.vocab import Arch, Severity, size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.container import Case

# Options of docker's that people write after the image.
BEHIND = frozenset({"--device", "-v", "--volume", "--privileged", "--shm-size", "--rm", "--name", "-it", "-itd", "-d"})
# What profiles of this kind of work ask for, where none is known.
USUAL_SHM = "16g"
SHM_WHY = "Ray and data loaders stop when it is full (gpustack/gpustack issue 5014)"
# Who owns the nodes: HwHiAiUser, uid and gid 1000 on a host as the driver sets it up, mode 0660.
OWNER = "1000"
# Every distribution has this user in /etc/passwd.
NOBODY = "65534"


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
    given, least = size_bytes(setting.value or ""), size_bytes(wanted) or 0
    # One card, and no profile: nothing there shares much.
    is_for_one = len(container.cards) == 1 and not case.image.profile and not container.opaque
    if given is None:
        what = f"{setting.word} is not a size"
        yield Remark(Severity.ERROR, "shm", setting.word, what, "docker refuses it", fix)
    elif given < least and not (is_for_one and given >= 1 << 30):
        whose = f"profile {case.image.profile}" if case.image.profile else "training and serving on several cards"
        what = f"{setting.word} is small: {whose} takes {wanted}"
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


def chip(case: Case) -> Iterator[Remark]:
    """Refuse an image of another chip than the host's, where the user names that."""
    image, host = case.container.image, case.ground.chip
    if case.image.chip and host and case.image.chip is not host:
        what = f"{image} is for chip {case.image.chip}, and the host has {host}"
        why = "kernels of one chip do not run on another; at times only a log line shows it (vllm-ascend issue 2725)"
        yield Remark(Severity.ERROR, "chip", image, what, why, f"the image for {host}")


def standin(case: Case) -> Iterator[Remark]:
    """Refuse NPUs to an image on the stand-in base, which has no CANN."""
    if case.image.standin and case.uses_npu:
        image = case.container.image
        what = f"{image} is built on the stand-in base, and NPUs are given to it"
        fix = "an image on a real base: its tag has no -standin"
        yield Remark(Severity.ERROR, "standin", image, what, "it has no CANN: nothing runs there", fix)


def strange_image(case: Case) -> Iterator[Remark]:
    """Name a word in the image's place that is none: an option's value, or an option behind a dash of an editor."""
    image = case.container.image
    if not re.match(r"[\w$`<{(]", image):
        what = f"{image or 'an empty word'} is where the image goes"
        why = "docker takes the first word that is no option, and no option's value, for the image"
        fix = "write the option before it, with two hyphens, such as --device; it takes one value each time"
        yield Remark(Severity.ERROR, "image.path", image, what, why, fix)


def behind(case: Case) -> Iterator[Remark]:
    """Name an option that comes directly after the image: docker reads its own options before it alone."""
    words, image = case.container.command, case.container.image
    is_dockers = words and words[0].partition("=")[0] in BEHIND
    if is_dockers and not case.container.value("entrypoint"):
        what = f"{words[0]} is after {image}: it is the container's command, not an option"
        why = "docker reads its own options before the image alone"
        yield Remark(Severity.ERROR, "image.behind", words[0], what, why, "put it before the image")
