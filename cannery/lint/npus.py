"""Rules about NPUs: device nodes, the driver's files, and mounts that hide a part of the image.

Device nodes may be mistyped, missing, mounted instead of mapped, or of another chip. `--privileged` and runtimes add
nodes too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from cannery.host.facts import ASCEND, CARD, NPU_SMI
from cannery.lint.container import DRIVER, RUNTIME_DEVICES, Device, Remark, is_open
from cannery.vocab import Chip, Severity, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.container import Case, Mount

# Other device nodes of NPU hosts (Ascend Docker Runtime, default mounted content; 950: ummu, uburma).
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
# Images of distributions and services, which are run without NPUs.
PLAIN_IMAGES = frozenset(
    {"alpine", "busybox", "debian", "hello-world", "nginx", "postgres", "python", "redis", "registry", "ubuntu"}
)
NOT_THERE = "docker refuses to start a container with a node that is not there (vllm-project/vllm-ascend issue 1440)"


def unknown_nodes(case: Case) -> Iterator[Remark]:
    """Report each node that no NPU host has and whose name is similar to a real one."""
    for source, word in case.container.devices:
        if SEVERAL.fullmatch(source):
            what = f"{word}: docker takes one node, by its full name, after each --device"
            fix = "--device /dev/davinci0 --device /dev/davinci1 …"
            yield Remark(Severity.ERROR, "run.node.unknown", what, "docker expands no pattern there", fix, word)
        elif meant := meant_node(case, source):
            what = f"{word}: no NPU host has a node {source}; did you mean {meant}?"
            yield Remark(Severity.ERROR, "run.node.unknown", what, NOT_THERE, f"--device {meant}", word)


def meant_node(case: Case, path: str) -> str:
    """Return the node that a mistyped `path` probably means; "" for a correct one, and for one unlike an NPU node."""
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
    """Return the mapped nodes. Mistyped ones are replaced by what they probably mean."""
    paths = [device.source for device in case.container.devices]
    return {meant_node(case, path) or path for path in paths}


def missing_managers(case: Case) -> Iterator[Remark]:
    """Report each manager node of the chip that is not mapped. NPUs cannot be opened without them."""
    present = present_nodes(case)
    if case.nodes_come or not (present & case.managers or any(map(_is_card, present))):
        return
    word = case.first_card()
    for node in case.access.managers:
        if node not in present:
            what = f"{node} is not mapped ({word} needs it){case.unread}"
            why = f"every NPU of chip {case.chip or 'A2, A3 and 310P'} is opened through it (images/chips.yaml)"
            severity = Severity.WARNING if case.unread else Severity.ERROR
            yield Remark(severity, "run.node.missing", what, why, f"--device {node}", word)


def missing_cards(case: Case) -> Iterator[Remark]:
    """Report a container for NPUs without a card."""
    present, image = present_nodes(case), case.container.image
    if case.nodes_come or case.container.opaque or any(_is_card(node) or is_open(node) for node in present):
        return
    managers = [device.word for device in case.container.devices if device.source in case.managers]
    if managers:
        what = f"{managers[0]} is mapped, and no card: there is no --device /dev/davinciN"
        yield Remark(
            Severity.ERROR, "run.node.none", what, "the container sees no NPU", "--device /dev/davinci0 …", managers[0]
        )
    elif case.image.ascend and not case.image.standin:  # a stand-in has no CANN and is started without NPUs
        what = f"{image} is an image for NPUs, and no NPU is given to it"
        fix = f"--device /dev/davinci0 {' '.join(f'--device {node}' for node in case.access.managers)}"
        yield Remark(Severity.WARNING, "run.node.none", what, "no --device names one", fix, image)
    elif _may_want_npus(case):
        what = f"{image}: no card is mapped: this container sees no NPU"
        fix = f"for NPUs: --device /dev/davinci0 {' '.join(f'--device {node}' for node in case.access.managers)}"
        yield Remark(Severity.NOTE, "run.node.none", what, "no --device names one", fix, image)


def _may_want_npus(case: Case) -> bool:
    """Whether a container without devices may be for NPUs: the image of a command, with a name that shows nothing.

    Services in files are not reported, because many are databases and similar services.
    """
    container, name = case.container, case.image.repository.removeprefix("library/")
    is_plain = case.image.standin or name in PLAIN_IMAGES
    return not (is_plain or container.where or container.devices or container.misread)


def foreign_nodes(case: Case) -> Iterator[Remark]:
    """Report nodes that the chip does not have: managers of other chips, and card numbers that are too high."""
    for device in case.container.devices if case.chip else ():
        what = f"{device.word}: chip {case.chip} has no {device.source}"
        why = "docker refuses to start with a node that is not there (vllm-project/recipes pull 907)"
        if device.source in case.managers and device.source not in case.access.managers:
            yield Remark(Severity.WARNING, "run.node.foreign", what, why, "leave it out", device.word)
        elif device.card is not None and device.card >= case.access.largest:
            what += f": its machines have at most {case.access.largest} cards, numbered from 0"
            fix = "number the cards as `ls /dev/davinci*` does"
            yield Remark(Severity.WARNING, "run.node.foreign", what, why, fix, device.word)


def mounted_nodes(case: Case) -> Iterator[Remark]:
    """Report nodes that are mounted: they cannot be opened without --device or a device rule."""
    mapped = {device.source for device in case.container.devices}
    if case.container.privileged or case.container.all("device-cgroup-rule"):
        return
    for source, _, word in case.container.mounts:
        node = source.rstrip("/")
        if node not in mapped and (node == "/dev" or CARD.fullmatch(node) or node in case.managers):
            what = f"{word} mounts {node}, but the container may not open it: its device rules do not allow that"
            why = "only --device opens a node to a container that is not privileged"
            fix = (
                "--device for each node that is needed, and no mount of /dev" if node == "/dev" else f"--device {node}"
            )
            yield Remark(Severity.WARNING, "run.node.mounted", what, why, fix, word)


def privileged(case: Case) -> Iterator[Remark]:
    """Warn that --privileged exposes every card, even if other options name single nodes."""
    setting, cards = case.container.privileged, case.container.cards
    if setting is not None:
        beside = f"; naming the nodes of {', '.join(map(str, cards))} does not limit it" if cards else ""
        what = f"{setting.word} exposes every card of the host{beside}"
        why = "two such containers take each other's cards (vllm-project/vllm-ascend issue 6942); no NPU needs it"
        fix = (
            "leave it out" if cards else "leave it out, and name the cards: --device /dev/davinci0 …, and the managers"
        )
        yield Remark(Severity.WARNING, "run.privileged", what, why, fix, setting.word)


def mixed(case: Case) -> Iterator[Remark]:
    """Warn about using both the ascend runtime and device nodes."""
    runtime = case.container.last("runtime")
    nodes = [d.word for d in case.container.devices if d.card is not None or d.source in case.managers]
    if runtime is not None and case.names_runtime and nodes:
        what = f"{runtime.word} and {nodes[0]}: two ways to the NPUs at once"
        why = f"the runtime maps the cards of {RUNTIME_DEVICES} and mounts the driver; the nodes come on top"
        fix = f"leave {'its nodes' if case.env(RUNTIME_DEVICES) else 'the runtime'} out (gpustack/gpustack issue 1378)"
        yield Remark(Severity.WARNING, "run.runtime.mixed", what, why, fix, runtime.word)


def gpus(case: Case) -> Iterator[Remark]:
    """Refuse --gpus: it requests NVIDIA devices, and the container does not start without them."""
    setting = case.container.last("gpus")
    if setting is not None:
        what = f"{setting.word} asks for GPUs"
        why = "the engine looks for NVIDIA's runtime and does not start the container; an NPU is a device node"
        if case.container.is_pod:
            why = "no node with NPUs offers it, so the Pod waits for one for ever"
        fix = "leave it out: --device /dev/davinci0 … and the manager nodes"
        yield Remark(Severity.ERROR, "run.gpus", what, why, fix, setting.word)


NO_DRIVER = "NODRV"  # a value of ASCEND_RUNTIME_OPTIONS: the ascend runtime adds nodes but no files


class Place(NamedTuple):
    """A folder of an image that no mount should cover, its content, and whether only Cannery's images have it."""

    path: str
    lost: str
    severity: Severity = Severity.ERROR
    is_cannery: bool = False


# The most important first.
PLACES = (
    Place(f"{ASCEND}/cann", "CANN"),
    Place(f"{ASCEND}/ascend-toolkit", "CANN"),
    Place(f"{ASCEND}/nnal", "NNAL (ATB)"),
    Place("/opt/venv", "every package of the stack", is_cannery=True),
    Place("/opt/src", "every source tree: packages are installed from there", is_cannery=True),
    Place("/opt/cannery", "the manifest and the verify script", is_cannery=True),
    Place("/usr/local/lib", "jemalloc, which LD_PRELOAD names, and other libraries", is_cannery=True),
    Place("/usr/local/bin", "programs", Severity.WARNING),
    Place("/vllm-workspace", "vllm and vllm-ascend, which are installed from there", Severity.WARNING),
    Place("/sgl-workspace", "sglang, which is installed from there", Severity.WARNING),
)
# Source trees from which packages are installed: in the makers' images (see their Dockerfiles), and in Cannery's.
TREES = re.compile(r"(/(?:vllm|sgl)-workspace/(?:vllm|vllm-ascend|sglang|sgl-kernel-npu))(?:/.*)?")
OUR_TREES = re.compile(r"(/opt/src/[^/]+)")


def driver_mounts(case: Case) -> Iterator[Remark]:
    """Report files of the driver that are not mounted: libraries as an error, files that describe it as a warning."""
    if not case.uses_npu or case.cdi or (case.runtime and NO_DRIVER not in case.env("ASCEND_RUNTIME_OPTIONS")):
        return
    lacking = [path for path in case.access.mounts if not case.gives(path)]
    libraries = [path for path in lacking if path.startswith(DRIVER) and path != f"{DRIVER}/version.info"]
    for path in libraries:
        # Old guides mount the needed folders in lib64 one by one.
        if not (path.endswith("/lib64") and all(case.gives(f"{path}/{folder}") for folder in ("driver", "common"))):
            yield _libraries(case, path)
    rest = [path for path in lacking if path not in libraries]
    if rest:
        word = case.first_card()
        what = f"not mounted ({word} needs them): {', '.join(rest)}{case.unread}"
        why = "npu-smi, CANN and verify read there what driver the host has"
        fix = " ".join(f"-v {path}:{path}:ro" for path in rest)
        yield Remark(Severity.WARNING, "run.driver.files", what, why, fix, word)


def _libraries(case: Case, path: str) -> Remark:
    """Return the remark about libraries: not mounted, mounted elsewhere, or only in part."""
    other = next((m.word for m in case.container.mounts if m.source.rstrip("/") == path), "")
    part = next((m.word for m in case.container.mounts if m.source.startswith(f"{path}/")), "")
    word = case.first_card()
    what = f"{path} is not mounted ({word} needs it){case.unread}"
    why = "libascend_hal.so is in it; without it no NPU is found (vllm-project/vllm-ascend issue 1440)"
    if other:
        word, what = other, f"{other} mounts the driver's libraries where nothing looks for them"
    elif part and case.chip is Chip.A5:
        word, what = part, f"{part}: chip {case.chip} needs the whole {path}"
        why = "HCCL reads the topology files in it (vllm-project/recipes pull 907)"
    # NODRV is set on purpose, and the runtime of a cluster may mount the driver.
    is_unsure = case.unread or case.runtime or case.plugin or case.gives(f"{path}/driver")
    severity = Severity.WARNING if is_unsure else Severity.ERROR
    return Remark(severity, "run.driver.missing", what, why, f"-v {path}:{path}:ro", word)


def smi_mount(case: Case) -> Iterator[Remark]:
    """Report that npu-smi is not mounted. Only the host's npu-smi fits its driver."""
    is_there = any(map(case.gives, NPU_SMI)) or any(m.source.endswith("/npu-smi") for m in case.container.mounts)
    if case.uses_npu and not (case.runtime or case.cdi or is_there):
        word = case.first_card()
        what = f"npu-smi is not mounted, and NPUs are given ({word})"
        why = "programs that ask it which NPU there is fall back or fail (LMCache/LMCache-Ascend pull 136)"
        fix = f"-v $(command -v npu-smi):{NPU_SMI[0]}:ro"
        yield Remark(Severity.NOTE, "run.driver.smi", what, why, fix, word)


def hidden(case: Case) -> Iterator[Remark]:
    """Report mounts that hide content of the image: CANN, packages, source trees that packages are installed from."""
    for mount in case.container.mounts:
        target = mount.target.rstrip("/")
        places = [
            place for place in PLACES if mount.hides(place.path) and (case.image.is_cannery or not place.is_cannery)
        ]
        if target.startswith(f"{ASCEND}/cann-") and target.count("/") == 4:
            places.append(Place(target, "CANN"))
        tree = TREES.fullmatch(target) or (OUR_TREES.fullmatch(target) if case.image.is_cannery else None)
        if target and places:
            yield _hides(case, mount, places)
        elif tree:
            what = f"{mount.word} replaces {'a part of ' if tree[1] != target else ''}the image's tree {tree[1]}"
            why = "the package is installed from there, with its patches, generated and compiled files"
            fix = "on purpose: a tree of the same commit, built in this image; else mount it elsewhere"
            yield Remark(Severity.WARNING, "run.mount.source", what, why, fix, mount.word)


def _hides(case: Case, mount: Mount, places: list[Place]) -> Remark:
    worst = places[0]
    lost = ", ".join(dict.fromkeys(place.lost for place in places if place.severity is worst.severity))
    severity, fix = worst.severity, "mount it at another place"
    if worst.path.startswith(ASCEND):
        fix = f"mount what of it is the host's: {' '.join(case.access.mounts)}"
        # Some images have no CANN and use the host's. The image's name does not show it.
        is_hosts = mount.source.rstrip("/") == mount.target.rstrip("/") and mount.target.startswith(ASCEND)
        is_sure = not is_hosts and (case.image.is_cannery or case.image.ascend)
        severity = Severity.ERROR if is_sure else Severity.WARNING
    what = f"{mount.word} hides what the image has there: {lost}"
    return Remark(severity, "run.mount.hides", what, "a mount covers what the image has below it", fix, mount.word)
