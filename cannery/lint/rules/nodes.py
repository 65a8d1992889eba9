"""Device nodes: mistyped, missing, closed, or too many."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from cannery.host.facts import CARD
from cannery.lint.case import add, remark, remove, replace
from cannery.lint.container import is_open_card
from cannery.lint.rules.several import means_several, meant_cards, several_cards
from cannery.lint.shell_words import is_open
from cannery.vocab import Chip, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark
    from cannery.lint.container import Device

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
NEAR = 0.7
MISTYPED = "vllm-project/vllm-ascend issue 1440"


def unknown_nodes(case: Case) -> Iterator[Remark]:
    """Name each node that no NPU host has and that is spelt like one that it has."""
    for device in case.container.devices:
        if means_several(device.source):
            yield several_cards(device)
            continue
        meant = meant_node(case, device.source)
        if not meant:
            continue
        yield remark(
            Severity.ERROR,
            "node.unknown",
            device.setting.word,
            f"{device.setting.word}: no NPU host has a node {device.source}; did you mean {meant}?",
            f"docker refuses to start a container with a node that is not there ({MISTYPED})",
            f"--device {meant}",
            replace(device.setting, "--device", _written(device, meant)),
        )


def meant_node(case: Case, path: str) -> str:
    """Return the node that a mistyped `path` is meant to be, "" for one that is right, or nothing like an NPU's."""
    is_card = is_open_card(path) or NUMBERED.fullmatch(path) or VIRTUAL.fullmatch(path)
    if is_card or is_open(path) or path in case.managers | OTHERS:
        return ""
    name = path.removeprefix("/").removeprefix("dev/").strip("/")
    number = re.search(r"\d+$", name)
    known = [node.removeprefix("/dev/") for node in sorted(case.managers)]
    card = f"davinci{number[0]}" if number else ""
    if number and re.fullmatch(r"[^/]*davinci\W?_?\d+", name):
        return f"/dev/{card}"
    near = difflib.get_close_matches(name.lower(), [*known, *([card] if card else [])], n=1, cutoff=NEAR)
    return f"/dev/{near[0]}" if near else ""


def _written(device: Device, source: str) -> str:
    target = "" if device.target == device.source else f":{device.target}"
    return source + target + ("" if device.permissions == "rwm" else f":{device.permissions}")


def present_nodes(case: Case) -> set[str]:
    """Return the nodes that are asked for, by whatever means and however they are spelt."""
    paths = [d.source for d in case.container.devices]
    devices = {node for path in paths for node in meant_cards(path) or (meant_node(case, path) or path,)}
    return devices | {node for node in case.managers if case.gives(node)}


def missing_managers(case: Case) -> Iterator[Remark]:
    """Name each manager node of the chip that is not mapped beside a card: no NPU opens without them."""
    present = present_nodes(case)
    if case.privileged or case.runtime or case.cdi or not present & {*case.managers, *_cards(present)}:
        return
    unread = f" (unless {' '.join(case.container.opaque)} brings it)" if case.container.opaque else ""
    for node in case.access.managers:
        if node not in present:
            yield remark(
                Severity.WARNING if unread else Severity.ERROR,
                "node.missing",
                case.first_card(),
                f"{node} is not mapped beside {case.first_card()}{unread}",
                f"every NPU of chip {case.chip or 'A2, A3 and 310P'} is opened through it (images/chips.yaml)",
                f"--device {node}",
                *([] if unread else [add("--device", node)]),
            )


def missing_cards(case: Case) -> Iterator[Remark]:
    """Say that no card is given, where all the rest says that one is wanted."""
    present = present_nodes(case)
    if (
        _cards(present)
        or any(map(is_open, present))
        or case.privileged
        or case.runtime
        or case.cdi
        or case.container.opaque
    ):
        return
    managers = sorted(present & case.managers)
    if managers:
        word = next((d.setting.word for d in case.container.devices if d.source in managers), managers[0])
        what = f"{word} is mapped, and no card: there is no --device /dev/davinciN"
        yield remark(Severity.ERROR, "node.none", word, what, "the container sees no NPU", "--device /dev/davinci0 …")
    elif case.told.standin:
        return  # it has no CANN, and is started without NPUs
    elif case.told.ascend or any("/Ascend/" in mount.target for mount in case.container.mounts):
        what = f"{case.container.image} is an image for NPUs, and no NPU is given to it"
        fix = f"--device /dev/davinci0 {' '.join(f'--device {node}' for node in case.access.managers)}"
        yield remark(Severity.WARNING, "node.none", case.container.image, what, "no --device names one", fix)


def _cards(nodes: set[str]) -> set[str]:
    return {node for node in nodes if CARD.fullmatch(node) or VIRTUAL.fullmatch(node) or is_open_card(node)}


def foreign_nodes(case: Case) -> Iterator[Remark]:
    """Name nodes that the chip has not: the manager that A5 dropped, cards beyond the number of a machine."""
    if case.chip is None:
        return
    for device in case.container.devices:
        if device.source in case.managers and device.source not in case.access.managers:
            what = f"{device.setting.word}: chip {case.chip} has no {device.source}"
            why = "docker refuses to start with a node that is not there (vllm-project/recipes pull 907)"
            yield remark(
                Severity.WARNING, "node.foreign", device.setting.word, what, why, "leave it out", remove(device.setting)
            )
    beyond = [d for d in case.container.devices if d.card is not None and d.card >= case.access.cards]
    if beyond:
        word = beyond[0].setting.word
        what = f"{word}: a machine of chip {case.chip} has {case.access.cards} cards, numbered from 0"
        fix = "is the host another chip? An A3 has 16, and needs an image for a3" if case.chip is Chip.A2 else ""
        why = f"{case.container.image} is for chip {case.chip}" if case.told.chip else "CHIP says which chip"
        yield remark(Severity.WARNING, "node.foreign", word, what, why, fix or "number them as `ls /dev/davinci*` does")


def endless_numbers(case: Case) -> Iterator[Remark]:
    """Name cards whose number is longer than that of any."""
    for device in case.container.devices:
        if NUMBERED.fullmatch(device.source) and device.card is None:
            what = f"{device.setting.word}: no card of any machine has so long a number"
            fix = "number them as `ls /dev/davinci*` does"
            why = f"docker refuses to start a container with a node that is not there ({MISTYPED})"
            yield remark(Severity.ERROR, "node.unknown", device.setting.word, what, why, fix)
