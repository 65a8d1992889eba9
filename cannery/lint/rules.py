"""The rules for containers: small pure functions that yield remarks.

They do not look at a host; `doctor` does that. `npus` has the rules about nodes and mounts, this module those about
image, variables and engine. `RULES` lists all of them.

ASCEND_VISIBLE_DEVICES has card numbers of the host. Only the ascend runtime reads it, before the container starts.
ASCEND_RT_VISIBLE_DEVICES counts the cards of the container from 0. CANN reads it in the container.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from cannery.compat.subject import RANK
from cannery.errors import UsageError
from cannery.host.facts import card_text, parse_cards
from cannery.lint import npus
from cannery.lint.container import RUNTIME_DEVICES, VISIBLE, Case, Remark, is_open
from cannery.lint.files import WHOLE
from cannery.run.container import REPORT
from cannery.vocab import Arch, Severity, size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cannery.lint.container import Container, Ground

# Docker options that users often write after the image.
BEHIND = frozenset({"--device", "-v", "--volume", "--privileged", "--shm-size", "--rm", "--name", "-it", "-itd", "-d"})
# The usual shared memory of a profile, used if the profile is not known.
USUAL_SHM = "16g"
SHM_WHY = "Ray and data loaders stop when it is full (gpustack/gpustack issue 5014)"
# The driver's installer gives the nodes to HwHiAiUser (uid and gid 1000), with mode 0660.
OWNER = "1000"
# Every distribution has this user in /etc/passwd.
NOBODY = "65534"


def platform(case: Case) -> Iterator[Remark]:
    """Compare --platform with the host's CPU, if the user names that."""
    setting = case.container.last("platform")
    arch = case.ground.arch
    named = setting.value.split("/")[1:2] if setting and setting.value else []
    if setting is None or arch is None or named not in [[other] for other in Arch if other is not arch]:
        return
    what = f"{setting.word}: the host is {arch}"
    why = "the driver's libraries are the host's, and no process of another architecture can load them"
    fix = f"an image for {arch} (vllm-project/vllm-ascend issue 2521)"
    yield Remark(Severity.ERROR, "run.arch", what, why, fix, setting.word)


def shared_memory(case: Case) -> Iterator[Remark]:
    """Warn if /dev/shm is smaller than the stack needs, or has docker's default size."""
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
            yield Remark(Severity.WARNING, "run.shm", what, SHM_WHY, fix, container.image)
        return
    given, least = size_bytes(setting.value or ""), size_bytes(wanted) or 0
    # With one card and no profile, little memory is shared.
    is_for_one = len(container.cards) == 1 and not case.image.profile and not container.opaque
    if given is None:
        what = f"{setting.word} is not a size"
        yield Remark(Severity.ERROR, "run.shm", what, "docker refuses it", fix, setting.word)
    elif given < least and not (is_for_one and given >= 1 << 30):
        whose = f"profile {case.image.profile}" if case.image.profile else "training and serving on several cards"
        what = f"{setting.word} is small: {whose} takes {wanted}"
        yield Remark(Severity.WARNING, "run.shm", what, SHM_WHY, fix, setting.word)


def group(case: Case) -> Iterator[Remark]:
    """Warn about a user without the group of the device nodes, and about one without a name."""
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
        yield Remark(Severity.NOTE, "run.user.name", what, why, fix, setting.word)
    if not is_owner and not case.container.all("group-add") and main in {"", "0"}:
        what = f"{setting.word} without --group-add: the device nodes are closed to that user"
        why = f"they belong to HwHiAiUser, mode 0660; no NPU is seen then ({REPORT})"
        fix = '--group-add "$(stat -c %g /dev/davinci_manager)"'
        yield Remark(Severity.WARNING, "run.user.group", what, why, fix, setting.word)


def chip(case: Case) -> Iterator[Remark]:
    """Refuse an image for another chip than the host's, if the user names that."""
    image, host = case.container.image, case.ground.chip
    if case.image.chip and host and case.image.chip is not host:
        what = f"{image} is for chip {case.image.chip}, and the host has {host}"
        why = "kernels of one chip do not run on another; at times only a log line shows it (vllm-ascend issue 2725)"
        yield Remark(Severity.ERROR, "run.chip", what, why, f"the image for {host}", image)


def standin(case: Case) -> Iterator[Remark]:
    """Refuse NPUs for an image on the stand-in base, which has no CANN."""
    if case.image.standin and case.uses_npu:
        image = case.container.image
        what = f"{image} is built on the stand-in base, and NPUs are given to it"
        fix = "an image on a real base: its tag has no -standin"
        yield Remark(Severity.ERROR, "run.standin", what, "it has no CANN: nothing runs there", fix, image)


def strange_image(case: Case) -> Iterator[Remark]:
    """Report a word in place of the image that is not an image: a value, or an option with a typographic dash."""
    image = case.container.image
    if not re.match(r"[\w$`<{(]", image):
        what = f"{image or 'an empty word'} is where the image goes"
        why = "docker takes the first word that is neither an option nor an option's value as the image"
        fix = "write the option before it, with two hyphens, such as --device; it takes one value each time"
        yield Remark(Severity.ERROR, "run.image.path", what, why, fix, image)


def behind(case: Case) -> Iterator[Remark]:
    """Report a docker option directly after the image. Docker only reads its options before the image."""
    words, image = case.container.command, case.container.image
    is_dockers = words and words[0].partition("=")[0] in BEHIND
    if is_dockers and not case.container.value("entrypoint"):
        what = f"{words[0]} is after {image}: it is the container's command, not an option"
        why = "docker reads its own options before the image alone"
        yield Remark(Severity.ERROR, "run.image.behind", what, why, "put it before the image", words[0])


# "" and `void` mean no card (Ascend Docker Runtime, usage on the client). `OTHER_FORMS` are not card numbers.
NO_CARD = frozenset({"", "void"})
CARD_NUMBER = re.compile(r"[0-9]{1,4}")
OTHER_FORMS = re.compile(r"(?:npu|Ascend)[\w-]*\d", re.IGNORECASE)
# Path lists in the ENV of CANN's and Cannery's images, and what is lost if they are replaced.
LISTS = {
    "LD_LIBRARY_PATH": "the folders of CANN's and the driver's libraries",
    "PATH": "the folders of the image's Python and of CANN's tools",
    "PYTHONPATH": "CANN's own Python packages and the trees of the image",
}
# A value with one of these repeats the image's own entries.
KEPT = re.compile(r"/usr/local/Ascend/(?!driver)|/opt/venv")


def runtime_cards(case: Case) -> tuple[int, ...] | None:
    """Return the host's cards in ASCEND_VISIBLE_DEVICES; None if there are none or they cannot be read."""
    text = case.env(RUNTIME_DEVICES)
    if text in NO_CARD or is_open(text):
        return None
    try:
        return parse_cards(text)
    except UsageError:
        return None


def runtime_variable(case: Case) -> Iterator[Remark]:
    """Compare ASCEND_VISIBLE_DEVICES with the mapped nodes and the runtime."""
    variable, runtime = case.container.env.get(RUNTIME_DEVICES), case.container.last("runtime")
    if variable is None and runtime and case.names_runtime:
        what = f"{runtime.word} without {RUNTIME_DEVICES}: the runtime gives no card, unless the image's ENV names it"
        why = "it maps the cards that the variable names, and no other (Ascend Docker Runtime, usage)"
        yield Remark(Severity.WARNING, "run.visible.none", what, why, f"-e {RUNTIME_DEVICES}=0,1", runtime.word)
    if variable is None or variable.value in {None, *NO_CARD} or is_open(variable.value or ""):
        return
    named, cards, word = runtime_cards(case), case.container.cards, variable.word
    if named is None and not OTHER_FORMS.match(variable.value or ""):
        what, fix = f"{word}: {variable.value!r} names no cards", "written like 0,1,4-7"
        yield Remark(Severity.ERROR, "run.visible.text", what, "numbers of the host's cards", fix, word)
    elif named is None or case.names_runtime:
        return  # the runtime adds its cards to the nodes: `mixed` reports it
    elif cards and not case.has_open_card and set(named) != set(cards):
        what = f"{word} names cards {card_text(named)}, and the nodes are those of {card_text(cards)}"
        why = "the ascend runtime alone reads the variable; without it the nodes decide"
        fix = f"leave {RUNTIME_DEVICES} out, or name the same cards"
        yield Remark(Severity.ERROR, "run.visible.nodes", what, why, fix, word)
    elif runtime is None:
        what = f"{word} is read by the ascend runtime alone, and the command does not name it"
        fix = f"leave {RUNTIME_DEVICES} out" if cards else "--runtime ascend, unless it is the engine's default runtime"
        yield Remark(Severity.NOTE, "run.visible.unread", what, "the nodes that are mapped are what counts", fix, word)


def own_variable(case: Case) -> Iterator[Remark]:
    """Check ASCEND_RT_VISIBLE_DEVICES: a list of numbers below the number of the container's cards."""
    variable = case.container.env.get(VISIBLE)
    if variable is None or not variable.value or is_open(variable.value):
        return
    word, parts = variable.word, [part.strip() for part in variable.value.split(",")]
    if not all(CARD_NUMBER.fullmatch(part) for part in parts):
        what = f"{word}: not a list of cards' numbers"
        why = "CANN reads numbers with commas between them, and no ranges"
        yield Remark(Severity.ERROR, "run.visible.text", what, why, f"-e {VISIBLE}=0,1", word)
        return
    yield from _index(case, word, [int(part) for part in parts])


def _index(case: Case, word: str, numbers: list[int]) -> Iterator[Remark]:
    """Report a number without a card in the container."""
    nodes, named = case.container.cards, runtime_cards(case)
    cards = sorted({*nodes, *(named or ())}) if case.names_runtime else list(nodes or named or ())
    # The image's ENV, a file or a shell may name more cards.
    is_unknown = (case.names_runtime and named is None) or case.has_open_card
    beyond = [number for number in numbers if number >= len(cards)]
    if not cards or is_unknown or case.container.opaque or not beyond:
        return
    what = f"{word}: index {beyond[0]} is outside 0..{len(cards) - 1}"
    why = "it counts the container's cards, from 0, not the host's (Project-HAMi/HAMi issue 1894)"
    meant = [cards.index(number) for number in numbers] if set(numbers) <= set(cards) else []
    fix = f"-e {VISIBLE}={','.join(map(str, meant))}" if meant else f"numbers of 0..{len(cards) - 1}, or leave it out"
    # A privileged container sees the host's cards.
    severity = Severity.WARNING if case.container.privileged else Severity.ERROR
    yield Remark(severity, "run.visible.index", what, why, fix, word)


def lists(case: Case) -> Iterator[Remark]:
    """Warn if a variable replaces a path list of the image."""
    for name, lost in LISTS.items():
        variable = case.container.env.get(name)
        if variable is None or not (case.image.ascend or case.uses_npu):
            continue
        word = variable.word
        if variable.value and re.search(r"/devlib(/|:|$)", variable.value):
            what = f"{word}: devlib has a stub of the driver's library"
            why = "it is for builds on machines without a driver; at run time no NPU is found (vllm-ascend pull 661)"
            yield Remark(Severity.ERROR, "run.env.devlib", what, why, "leave it out", word)
        elif not KEPT.search(variable.value or ""):
            what = f"{word} replaces the image's {name}: {lost} are gone"
            why = "docker does not join it with the ENV of the image"
            fix = f"set it in the container, where the image's own is known: sh -c 'export {name}=DIR:${name}; exec …'"
            # Cannery's images set all in ENV. Other images may set it again in their entry point or shell files.
            is_sure = name == "PATH" or (name == "LD_LIBRARY_PATH" and case.image.is_cannery)
            yield Remark(Severity.ERROR if is_sure else Severity.WARNING, "run.env.lost", what, why, fix, word)


def not_read(case: Case) -> Iterator[Remark]:
    """Report each word that only a shell can evaluate, and each reference to another file."""
    at = f" in the command of line {case.container.line}" if case.container.line else ""
    for word in case.container.opaque:
        what = f"{word}{at} is not read: only a shell, or the file that is named, shows what it brings"
        fix = WHOLE if case.container.where else "write its options out to have them judged"
        yield Remark(Severity.NOTE, "run.text.unread", what, "it may bring any option", fix, word)


RULES: tuple[Callable[[Case], Iterable[Remark]], ...] = (
    not_read,
    strange_image,
    behind,
    npus.unknown_nodes,
    npus.missing_managers,
    npus.missing_cards,
    npus.foreign_nodes,
    npus.mounted_nodes,
    npus.driver_mounts,
    npus.smi_mount,
    runtime_variable,
    own_variable,
    npus.privileged,
    npus.mixed,
    npus.gpus,
    platform,
    shared_memory,
    npus.hidden,
    lists,
    chip,
    standin,
    group,
)


def lint_container(container: Container, ground: Ground) -> tuple[Remark, ...]:
    """Return all remarks about one container without repeats: errors first, then in the order of the rules."""
    case = Case(container, ground)
    found = (*container.misread, *(one for rule in RULES for one in rule(case)))
    found = tuple(replace(one, fix=_for_a_pod(one.fix, case)) for one in found) if container.is_pod else found
    return tuple(sorted(dict.fromkeys(found), key=lambda one: RANK[one.severity]))


# Docker options in a fix, and the same for a Pod.
_OF_A_POD = (
    (re.compile(r"-v \$\(command -v npu-smi\):(\S+?)(:ro)?(?=\s|$)"), r"a hostPath volume of npu-smi at \1"),
    (re.compile(r"-v (\S+?):(\S+?)(:ro)?(?=\s|$)"), r"a hostPath volume of \1 at \2"),
    (re.compile(r"--shm-size (\S+)"), r"an emptyDir of medium Memory and sizeLimit \1 at /dev/shm"),
    (re.compile(r"--group-add \S+(?: [^\s-]\S*)*"), "supplementalGroups with the group of the nodes"),
    (re.compile(r"-e (\S+?)=(\S+)"), r"env \1=\2"),
    (re.compile(r"--runtime (\S+)"), r"runtimeClassName \1"),
)
_NODES = re.compile(r"--device (?!for)\S+.*|--device for each.*")


def _for_a_pod(fix: str, case: Case) -> str:
    """Return a fix in terms of a manifest instead of docker's options."""
    resource = case.access.resource or "huawei.com/Ascend910"
    fix = _NODES.sub(f"ask for {resource} in resources.limits: the device plugin brings the nodes", fix)
    for option, words in _OF_A_POD:
        fix = option.sub(words, fix)
    return fix
