"""Device nodes: mistyped, missing, mounted in place of mapped, or of another chip; privileges and runtimes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.host.facts import CARD
from cannery.lint.container import RUNTIME_DEVICES, Device, Remark
from cannery.lint.shell import is_open
from cannery.vocab import Severity, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.container import Case

# Other nodes that NPU hosts have (Ascend Docker Runtime, default mounted content; 950: ummu, uburma).
OTHERS = frozenset(
    f"/dev/{name}"
    for name in (
        *("dvpp_cmdlist", "svm0", "ts_aisle", "upgrade", "sys", "vdec", "vpc", "pngd", "venc", "log_drv", "xsmem_dev"),
        *("event_sched", "spi_smbus", "user_config", "memory_bandwidth", "ummu", "uburma"),
    )
)
CARDS = re.compile(r"/dev/v?davinci\d+")
# Several cards in one word: `/dev/davinci0-3`, `/dev/davinci[0-3]`, `/dev/davinci*`.
SEVERAL = re.compile(r"/?(?:dev/)?davinci(?:\[?\d+(?:[-,]\d+)+\]?|[^\w${]+)")
NEAR = 0.7
NOT_THERE = "docker refuses to start a container with a node that is not there (vllm-project/vllm-ascend issue 1440)"


def unknown_nodes(case: Case) -> Iterator[Remark]:
    """Name each node that no NPU host has and that is spelt like one that it has."""
    for source, word in case.container.devices:
        if SEVERAL.fullmatch(source):
            what = f"{word}: docker takes one node, by its full name, after each --device"
            fix = "--device /dev/davinci0 --device /dev/davinci1 …"
            yield Remark(Severity.ERROR, "node.unknown", word, what, "docker expands no pattern there", fix)
        elif meant := meant_node(case, source):
            what = f"{word}: no NPU host has a node {source}; did you mean {meant}?"
            yield Remark(Severity.ERROR, "node.unknown", word, what, NOT_THERE, f"--device {meant}")


def meant_node(case: Case, path: str) -> str:
    """Return the node that a mistyped `path` is meant to be, "" for one that is right, or nothing like an NPU's."""
    if _is_card(path) or is_open(path) or path in case.managers | OTHERS:
        return ""
    name = path.removeprefix("/").removeprefix("dev/").strip("/")
    number = re.search(r"\d+$", name)
    if number and re.fullmatch(r"[^/]*davinci\W?_?\d+", name):
        return f"/dev/davinci{number[0]}"
    known = [node.removeprefix("/dev/") for node in sorted(case.managers)]
    known += [f"davinci{number[0]}"] if number else []
    near = nearest(name.lower(), known, count=1, likeness=NEAR)
    return f"/dev/{near[0]}" if near else ""


def _is_card(path: str) -> bool:
    return any(one.fullmatch(path) for one in (CARDS, SEVERAL)) or Device(path, "").is_open_card


def present_nodes(case: Case) -> set[str]:
    """Return the nodes that are asked for, however they are spelt."""
    paths = [device.source for device in case.container.devices]
    return {meant_node(case, path) or path for path in paths}


def missing_managers(case: Case) -> Iterator[Remark]:
    """Name each manager node of the chip that is not mapped beside a card: no NPU opens without them."""
    present = present_nodes(case)
    if case.nodes_come or not (present & case.managers or any(map(_is_card, present))):
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
    present, image = present_nodes(case), case.container.image
    if case.nodes_come or case.container.opaque or any(_is_card(node) or is_open(node) for node in present):
        return
    managers = [device.word for device in case.container.devices if device.source in case.managers]
    if managers:
        what = f"{managers[0]} is mapped, and no card: there is no --device /dev/davinciN"
        yield Remark(
            Severity.ERROR, "node.none", managers[0], what, "the container sees no NPU", "--device /dev/davinci0 …"
        )
    elif case.image.ascend and not case.image.standin:  # which has no CANN, and is started without NPUs
        what = f"{image} is an image for NPUs, and no NPU is given to it"
        fix = f"--device /dev/davinci0 {' '.join(f'--device {node}' for node in case.access.managers)}"
        yield Remark(Severity.WARNING, "node.none", image, what, "no --device names one", fix)


def foreign_nodes(case: Case) -> Iterator[Remark]:
    """Name nodes that the chip does not have: the manager that the 950 dropped, cards beyond those of a machine."""
    for device in case.container.devices if case.chip else ():
        what = f"{device.word}: chip {case.chip} has no {device.source}"
        why = "docker refuses to start with a node that is not there (vllm-project/recipes pull 907)"
        if device.source in case.managers and device.source not in case.access.managers:
            yield Remark(Severity.WARNING, "node.foreign", device.word, what, why, "leave it out")
        elif device.card is not None and device.card >= case.access.largest:
            what += f": its machines have at most {case.access.largest} cards, numbered from 0"
            fix = "number the cards as `ls /dev/davinci*` does"
            yield Remark(Severity.WARNING, "node.foreign", device.word, what, why, fix)


def mounted_nodes(case: Case) -> Iterator[Remark]:
    """Name nodes that come as mounts: they stay closed, but for those that --device or a rule of devices opens."""
    mapped = {device.source for device in case.container.devices}
    if case.container.switch("privileged") or case.container.all("device-cgroup-rule"):
        return
    for source, _, word in case.container.mounts:
        node = source.rstrip("/")
        if node not in mapped and (node == "/dev" or CARD.fullmatch(node) or node in case.managers):
            what = f"{word} mounts {node}: the container's device rules keep closed what they do not name"
            why = "only --device opens a node to a container that is not privileged"
            fix = (
                "--device for each node that is needed, and no mount of /dev" if node == "/dev" else f"--device {node}"
            )
            yield Remark(Severity.WARNING, "node.mounted", word, what, why, fix)


def privileged(case: Case) -> Iterator[Remark]:
    """Warn that --privileged shows every card, whatever nodes are named beside it."""
    setting, cards = case.container.switch("privileged"), case.container.cards
    if setting is not None:
        beside = f"; the nodes of {', '.join(map(str, cards))} beside it are no limit" if cards else ""
        what = f"{setting.word} exposes every card of the host{beside}"
        why = "two such containers take each other's cards (vllm-project/vllm-ascend issue 6942); no NPU needs it"
        fix = (
            "leave it out" if cards else "leave it out, and name the cards: --device /dev/davinci0 …, and the managers"
        )
        yield Remark(Severity.WARNING, "privileged", setting.word, what, why, fix)


def mixed(case: Case) -> Iterator[Remark]:
    """Warn of two ways to the NPUs at once: the ascend runtime, and device nodes by hand."""
    runtime = case.container.last("runtime")
    nodes = [d.word for d in case.container.devices if d.card is not None or d.source in case.managers]
    if runtime is not None and case.names_runtime and nodes:
        what = f"{runtime.word} and {nodes[0]}: two ways to the NPUs at once"
        why = f"the runtime maps the cards of {RUNTIME_DEVICES} and mounts the driver; the nodes come on top"
        fix = f"leave {'its nodes' if case.env(RUNTIME_DEVICES) else 'the runtime'} out (gpustack/gpustack issue 1378)"
        yield Remark(Severity.WARNING, "runtime.mixed", runtime.word, what, why, fix)


def gpus(case: Case) -> Iterator[Remark]:
    """Refuse --gpus: it asks for another maker's devices, and the container does not start without them."""
    setting = case.container.last("gpus")
    if setting is not None:
        what = f"{setting.word} asks for GPUs"
        why = "the engine looks for NVIDIA's runtime and does not start the container; an NPU is a device node"
        if case.container.is_pod:
            why = "no node with NPUs offers it, so the Pod waits for one for ever"
        fix = "leave it out: --device /dev/davinci0 … and the manager nodes"
        yield Remark(Severity.ERROR, "gpus", setting.word, what, why, fix)
