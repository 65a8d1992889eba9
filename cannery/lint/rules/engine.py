"""What is asked of the engine: runtime, privileges, network, another maker's devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.lint.case import RUNTIME_DEVICES, add, remark, remove, replace
from cannery.lint.rules.nodes import present_nodes
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark


def privileged(case: Case) -> Iterator[Remark]:
    """Warn that --privileged shows every card, whatever nodes are named beside it."""
    setting = case.privileged
    if setting is None:
        return
    cards = case.container.cards
    beside = f"; the nodes of {', '.join(map(str, cards))} beside it are no limit" if cards else ""
    present = present_nodes(case)
    managers = [add("--device", node) for node in case.access.managers if node not in present]
    yield remark(
        Severity.WARNING,
        "privileged",
        setting.word,
        f"{setting.word} exposes every card of the host{beside}",
        "two such containers take each other's cards (vllm-project/vllm-ascend issue 6942); no NPU needs it",
        "leave it out" if cards else "leave it out, and name the cards: --device /dev/davinci0 …, and the managers",
        *([remove(setting), *managers] if cards else []),
    )


def mixed(case: Case) -> Iterator[Remark]:
    """Warn of two ways to the NPUs at once: the ascend runtime, and device nodes by hand."""
    runtime = case.container.last("runtime")
    if runtime is None:
        return
    value = runtime.value or ""
    nodes = [d for d in case.container.devices if d.card is not None or d.source in case.managers]
    if value != "ascend" and value.lower() == "ascend":
        what = f"{runtime.word}: runtimes are named with small letters"
        why = "daemon.json calls it ascend"
        edit = replace(runtime, "--runtime", "ascend")
        yield remark(Severity.ERROR, "runtime.name", runtime.word, what, why, "--runtime ascend", edit)
    elif value == "nvidia" and case.uses_npu:
        what = f"{runtime.word} brings GPUs, and NPUs are asked for"
        yield remark(Severity.ERROR, "gpus", runtime.word, what, "no such runtime on an NPU host", "leave it out")
    elif value == "ascend" and nodes:
        what = f"{runtime.word} and {nodes[0].setting.word}: two ways to the NPUs at once"
        why = f"the runtime maps the cards of {RUNTIME_DEVICES} and mounts the driver; the nodes come on top"
        fix = f"leave {'its nodes' if case.env(RUNTIME_DEVICES) else 'the runtime'} out (gpustack/gpustack issue 1378)"
        edits = [remove(node.setting) for node in nodes] if case.env(RUNTIME_DEVICES) else []
        # Without a card of its own the line asks for some by the runtime; a file may hold the variable that names them.
        if not edits and case.container.cards and not case.container.all("env-file"):
            edits = [remove(runtime)]
        yield remark(Severity.WARNING, "runtime.mixed", runtime.word, what, why, fix, *edits)


def gpus(case: Case) -> Iterator[Remark]:
    """Refuse --gpus: it asks for another maker's devices, and the container does not start without them."""
    setting = case.container.last("gpus")
    if setting is not None:
        what = f"{setting.word} asks for GPUs"
        why = "the engine looks for NVIDIA's runtime and does not start the container; an NPU is a device node"
        # Without a card of its own the line asks for some by it, and which ones only its writer knows.
        edits = [remove(setting)] if case.uses_npu else []
        fix = "leave it out: --device /dev/davinci0 … and the manager nodes"
        yield remark(Severity.ERROR, "gpus", setting.word, what, why, fix, *edits)


def network(case: Case) -> Iterator[Remark]:
    """Note the host's network and process space, which no NPU needs."""
    host = case.container.last("network")
    if host is not None and host.value == "host" and case.uses_npu:
        what = f"{host.word}: no NPU needs the host's network"
        why = "HCCL between machines does, within one it does not; every port of the container is the host's then"
        yield remark(
            Severity.NOTE, "network", host.word, what, why, "leave it out, unless several machines train together"
        )


def platform(case: Case) -> Iterator[Remark]:
    """Compare --platform with the CPU of the host, where that was said."""
    setting = case.container.last("platform")
    arch = case.ground.arch
    said = setting.value.split("/")[1:2] if setting and setting.value else []
    if setting is None or arch is None or said not in [[other] for other in Arch if other is not arch]:
        return
    what = f"{setting.word}: the host is {arch}"
    why = "the driver's libraries are the host's, and no process of another architecture can load them"
    fix = f"an image for {arch} (vllm-project/vllm-ascend issue 2521)"
    yield remark(Severity.ERROR, "arch", setting.word, what, why, fix, replace(setting, "--platform", f"linux/{arch}"))
