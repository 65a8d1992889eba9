"""The user in the container, who has to be let to the device nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.lint.case import Edit, remark
from cannery.lint.shell_words import is_open
from cannery.run.user import REPORT
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark

# Who owns the nodes: HwHiAiUser, uid and gid 1000 on a host as the driver sets it up, mode 0660.
OWNER = "1000"
GROUP = ("--group-add", '"$(stat -c %g /dev/davinci_manager)"')
# Every distribution has this one in /etc/passwd.
NOBODY = "65534"


def group(case: Case) -> Iterator[Remark]:
    """Warn of a user without the group of the device nodes."""
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
        yield remark(Severity.NOTE, "user.name", setting.word, what, why, fix)
    if not is_owner and not case.container.all("group-add") and main in {"", "0"}:
        what = f"{setting.word} without --group-add: the device nodes are closed to that user"
        why = f"they belong to HwHiAiUser, mode 0660; no NPU is seen then ({REPORT})"
        # Not quoted again: the shell has to fill it in.
        yield remark(Severity.WARNING, "user.group", setting.word, what, why, " ".join(GROUP), Edit(-1, GROUP))


def caches(case: Case) -> Iterator[Remark]:
    """Warn of caches that are mounted below /root for another user, who cannot reach them."""
    user = case.container.value("user").partition(":")[0]
    if user in {"", "0", "root"} or is_open(user):
        return
    for mount in case.container.mounts:
        if mount.target == "/root" or mount.target.startswith("/root/"):
            what = f"{mount.setting.word}: user {user} cannot enter /root"
            fix = "mount it into that user's home, and set HOME"
            why = "vllm-project/vllm-ascend issue 10698"
            yield remark(Severity.WARNING, "user.cache", mount.setting.word, what, why, fix)
