"""Device nodes: mistyped, missing, mounted in place of mapped, or of another chip."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from cannery.host.facts import CARD
from cannery.lint.container import Remark, is_open_card
from cannery.lint.shell import is_open
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case

# Other nodes that NPU hosts have (Ascend Docker Runtime, default mounted content; 950: ummu, uburma).
OTHERS = frozenset(
    f"/dev/{name}"
    for name in (
        *("dvpp_cmdlist", "svm0", "ts_aisle", "upgrade", "sys", "vdec", "vpc", "pngd", "venc", "log_drv", "xsmem_dev"),
        *("event_sched", "spi_smbus", "user_config", "memory_bandwidth", "ummu", "uburma"),
    )
)
NUMBERED = re.compile(r"/dev/davinci\d+")
VIRTUAL = re.compile(r"/dev/vdavinci\d+")
# Several cards in one word: `/dev/davinci0-3`, `/dev/davinci[0-3]`, `/dev/davinci*`.
SEVERAL = re.compile(r"/?(?:dev/)?davinci(?:\[?\d+(?:[-,]\d+)+\]?|[^\w${]+)")
NEAR = 0.7
NOT_THERE = "docker refuses to start a container with a node that is not there (vllm-project/vllm-ascend issue 1440)"
NUMBERS = "number the cards as `ls /dev/davinci*` does"


def unknown_nodes(case: Case) -> Iterator[Remark]:
    """Name each node that no NPU host has and that is spelt like one that it has."""
    for device in case.container.devices:
        word = device.setting.word
        if SEVERAL.fullmatch(device.source):
            what = f"{word}: docker takes one node, by its full name, after each --device"
            fix = "--device /dev/davinci0 --device /dev/davinci1 …"
            yield Remark(Severity.ERROR, "node.unknown", word, what, "docker expands no pattern there", fix)
        elif meant := meant_node(case, device.source):
            what = f"{word}: no NPU host has a node {device.source}; did you mean {meant}?"
            yield Remark(Severity.ERROR, "node.unknown", word, what, NOT_THERE, f"--device {meant}")


def meant_node(case: Case, path: str) -> str:
    """Return the node that a mistyped `path` is meant to be, "" for one that is right, or nothing like an NPU's."""
    is_card = is_open_card(path) or NUMBERED.fullmatch(path) or VIRTUAL.fullmatch(path) or SEVERAL.fullmatch(path)
    if is_card or is_open(path) or path in case.managers | OTHERS:
        return ""
    name = path.removeprefix("/").removeprefix("dev/").strip("/")
    number = re.search(r"\d+$", name)
    if number and re.fullmatch(r"[^/]*davinci\W?_?\d+", name):
        return f"/dev/davinci{number[0]}"
    known = [node.removeprefix("/dev/") for node in sorted(case.managers)]
    known += [f"davinci{number[0]}"] if number else []
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=NEAR)
    return f"/dev/{near[0]}" if near else ""


def present_nodes(case: Case) -> set[str]:
    """Return the nodes that are asked for, by whatever means and however they are spelt."""
    paths = [device.source for device in case.container.devices]
    devices = {meant_node(case, path) or path for path in paths}
    return devices | {node for node in case.managers if case.gives(node)}


def missing_managers(case: Case) -> Iterator[Remark]:
    """Name each manager node of the chip that is not mapped beside a card: no NPU opens without them."""
    present = present_nodes(case)
    if case.nodes_come or not present & {*case.managers, *_cards(present)}:
        return
    word = case.first_card()
    for node in case.access.managers:
        if node not in present:
            what = f"{node} is not mapped beside {word}{case.unread}"
            why = f"every NPU of chip {case.chip or 'A2, A3 and 310P'} is opened through it (images/chips.yaml)"
            severity = Severity.WARNING if case.unread else Severity.ERROR
            yield Remark(severity, "node.missing", word, what, why, f"--device {node}")


def missing_cards(case: Case) -> Iterator[Remark]:
    """Report that no card is given, where all the rest asks for one."""
    present = present_nodes(case)
    if case.nodes_come or case.container.opaque or _cards(present) or any(map(is_open, present)):
        return
    managers = sorted(present & case.managers)
    image = case.container.image
    if managers:
        word = next((d.setting.word for d in case.container.devices if d.source in managers), managers[0])
        what = f"{word} is mapped, and no card: there is no --device /dev/davinciN"
        yield Remark(Severity.ERROR, "node.none", word, what, "the container sees no NPU", "--device /dev/davinci0 …")
    elif case.image.standin:
        return  # it has no CANN, and is started without NPUs
    elif case.image.ascend or any("/Ascend/" in mount.target for mount in case.container.mounts):
        what = f"{image} is an image for NPUs, and no NPU is given to it"
        fix = f"--device /dev/davinci0 {' '.join(f'--device {node}' for node in case.access.managers)}"
        yield Remark(Severity.WARNING, "node.none", image, what, "no --device names one", fix)


def _cards(nodes: set[str]) -> set[str]:
    return {
        node for node in nodes if any(one.fullmatch(node) for one in (NUMBERED, VIRTUAL, SEVERAL)) or is_open_card(node)
    }


def foreign_nodes(case: Case) -> Iterator[Remark]:
    """Name nodes that the chip does not have: the manager that the 950 dropped, cards beyond those of a machine."""
    if case.chip is None:
        return
    for device in case.container.devices:
        if device.source in case.managers and device.source not in case.access.managers:
            word = device.setting.word
            what = f"{word}: chip {case.chip} has no {device.source}"
            why = "docker refuses to start with a node that is not there (vllm-project/recipes pull 907)"
            yield Remark(Severity.WARNING, "node.foreign", word, what, why, "leave it out")
    beyond = [d for d in case.container.devices if d.card is not None and d.card >= case.access.largest]
    if beyond:
        word = beyond[0].setting.word
        what = f"{word}: a machine of chip {case.chip} has at most {case.access.largest} cards, numbered from 0"
        why = f"{case.container.image} is for chip {case.chip}" if case.image.chip else "CHIP names the chip"
        yield Remark(Severity.WARNING, "node.foreign", word, what, why, NUMBERS)


def mounted_nodes(case: Case) -> Iterator[Remark]:
    """Name nodes that come as mounts: they stay closed, but for those that --device or a rule of devices opens."""
    if case.privileged:
        return
    mapped = {device.source for device in case.container.devices}
    is_ruled = bool(case.container.all("device-cgroup-rule"))
    for mount in case.container.mounts:
        source, word, whole = mount.source.rstrip("/"), mount.setting.word, mount.source.rstrip("/") == "/dev"
        if source in mapped:
            what = f"{word}: --device brings {source} already"
            why, fix = "a mount adds nothing to it", "leave the mount out"
            yield Remark(Severity.NOTE, "node.mounted", word, what, why, fix)
        elif whole or CARD.fullmatch(source) or source in case.managers:
            is_open_in_part = is_ruled or (whole and bool(case.container.cards))
            what = f"{word} mounts {source}: the container's device rules keep closed what they do not name"
            why = "only --device opens a node to a container that is not privileged"
            fix = "--device for each node that is needed, and no mount of /dev" if whole else f"--device {source}"
            severity = Severity.WARNING if is_open_in_part else Severity.ERROR
            yield Remark(severity, "node.mounted", word, what, why, fix)
