"""The checks of the level npu: device nodes, driver, npu-smi, and the framework on each card."""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from verifying.access import field
from verifying.child import run, work
from verifying.image import Image
from verifying.imports import failed_import
from verifying.libraries import DRIVER, entries
from verifying.outcome import Outcome, failed, judged, passed, warning


@dataclass(frozen=True)
class Nodes:
    """The Ascend device nodes of /dev. `lacking`: those of an NPU that are missing."""

    cards: tuple[str, ...]
    present: tuple[str, ...]
    lacking: tuple[str, ...]


def find_nodes(image: Image) -> Nodes:
    """Looks at /dev. Chip 950 has no devmm_svm any more (case D11)."""
    managers = ["/dev/davinci_manager", "/dev/hisi_hdc"]
    managers += [] if image.manifest["target"]["chip"] in {"950", "a5"} else ["/dev/devmm_svm"]
    found = (path for path in image.find("/dev/davinci[0-9]*") if path[12:].isdigit())
    cards = tuple(sorted(found, key=lambda path: int(path[12:])))
    present = [path for path in managers if image.exists(path)]
    lacking = [path for path in managers if path not in present]
    return Nodes(cards, (*cards, *present), tuple(lacking if cards else [*lacking, "/dev/davinci0"]))


def node_faults(image: Image) -> Iterator[str]:
    """Why this process cannot use the nodes that exist, one fault a node."""
    for path in find_nodes(image).present:
        real = image.path(path)
        about = os.stat(real)
        if image.root == "/" and not stat.S_ISCHR(about.st_mode):
            yield f"{path} is not a device (a mount of a missing file makes a folder)"
        elif os.access(real, os.R_OK | os.W_OK):
            continue
        elif os.geteuid() == 0 or about.st_mode & 0o006 == 0o006:
            yield f"{path} is closed to this container by its device rules: give the node with --device"
        else:
            owner = f"{field(image, about.st_uid, 0)}({about.st_uid})"
            group = f"{field(image, about.st_gid, 0, 'group')}({about.st_gid})"
            groups = ", ".join(map(str, sorted({os.getegid(), *os.getgroups()})))
            me = f"this process is uid {os.geteuid()}, groups {groups}"
            mode = f"mode {stat.S_IMODE(about.st_mode):04o}"
            advice = f": add --group-add {about.st_gid}" if about.st_mode & 0o060 == 0o060 else ""
            yield f"{path} belongs to {owner}:{group}, {mode}; {me}{advice}"


def driver_library(image: Image) -> str:
    """The driver's libascend_hal.so; "" when the driver is not mounted."""
    return image.first(f"{DRIVER}/{place}/libascend_hal.so" for place in ("lib64/driver", "lib64", "lib64/common"))


def five_points(image: Image) -> list[str]:
    """Nodes, mounts, driver, permission, environment: each ok or missing (case D16)."""

    def missing(names: Sequence[str]) -> list[str]:
        return [f"missing {', '.join(names)}"] if names else []

    nodes, mounts = find_nodes(image), (f"{DRIVER}/lib64", f"{DRIVER}/version.info", NPU_SMI)
    points = {
        "nodes": missing(nodes.lacking),
        "mounts": missing([path for path in mounts if os.path.isdir(image.path(path)) != path.endswith("/lib64")]),
        "driver": [] if driver_library(image) else ["missing libascend_hal.so"],
        "permission": [*node_faults(image)] if nodes.present else ["missing: no node to open"],
        "env": missing([name for name in image.manifest["env"] if name not in image.env]),
    }
    return [f"{name}: {'; '.join(faults) or 'ok'}" for name, faults in points.items()]


NO_NPU = "no NPU"
NPU_SMI = "/usr/local/bin/npu-smi"
NEEDS = {"npu.smi": ("npu.nodes", "npu.driver"), "npu.count": ("npu.nodes", "npu.driver", "npu.visible")}
NEEDS["npu.tensor"] = (*NEEDS["npu.count"], "npu.count")


def why_no_npu(image: Image) -> str:
    """Why the level npu cannot be looked at here at all; "" when it can."""
    if image.options.no_device:
        return "--no-device"
    nodes = find_nodes(image).present
    if image.manifest["base"]["kind"] == "standin":
        return "stand-in" if nodes else f"stand-in: {NO_NPU}"
    return "" if nodes else NO_NPU


def nodes_check(image: Image) -> Outcome:
    """All device nodes are there, and this user may use them."""
    nodes = find_nodes(image)
    faults = [*(f"{path} is missing" for path in nodes.lacking), *node_faults(image)]
    if faults:
        return failed("device nodes: " + "; ".join(faults), five_points(image))
    return passed(f"{len(nodes.cards)} cards: {', '.join(nodes.present)}")


def driver_check(image: Image) -> Outcome:
    """The host's driver is mounted and no stub of its library comes first (case E05)."""
    found = driver_library(image)
    if not found:
        why = f"no libascend_hal.so below {DRIVER}/lib64 (mount it from the host)"
        return failed(f"driver missing: {why}", five_points(image))
    first = image.first(f"{folder}/libascend_hal.so" for folder in entries(image.env, "LD_LIBRARY_PATH"))
    if not first:
        return failed(f"LD_LIBRARY_PATH does not lead to {found}")
    if not first.startswith(DRIVER):
        return failed(f"{first} comes before the driver's ({found}) in LD_LIBRARY_PATH: a stub wins")
    version = re.search(r"^Version=(\S+)", image.text(f"{DRIVER}/version.info"), re.MULTILINE)
    if not version:
        return failed(f"{DRIVER}/version.info is missing or states no version")
    return passed(f"driver {version[1]}: {found}")


def smi_check(image: Image) -> Outcome:
    """npu-smi runs. Without it the framework decides, with a warning (T04); -8005 and -8020: the card is busy (D03)."""
    try:
        child = run(image, ["npu-smi", "info"])
    except OSError:
        folder = os.path.isdir(image.path(NPU_SMI))
        gone = f"{NPU_SMI} is a folder, as docker's -v makes of a missing file" if folder else "npu-smi is not mounted"
        count, why = device_count(image)
        if count:
            return warning(f"{gone}; torch_npu sees {count} NPUs")
        return failed(f"{gone} and torch_npu sees no NPU{why}")
    output = child.out + child.err
    busy = re.search(r"-80(05|20)\b", output)
    if busy:
        nodes = ", ".join(find_nodes(image).present)
        message = f"card busy or not mounted (npu-smi: {busy[0]}); nodes: {nodes}"
        return failed(message, output.splitlines()[:5], unable=True)
    if re.search(r"stand-?in", output, re.IGNORECASE):
        return failed("the npu-smi of a stand-in base answers, not the driver's: mount the host's npu-smi")
    if child.code != 0:
        return failed(f"npu-smi info: {child.ending}", output.splitlines()[:5])
    return passed(
        f"npu-smi info: {next((line.strip(' |') for line in output.splitlines() if 'npu-smi' in line), 'ran')}"
    )


HCCN = "/etc/hccn.conf"


def network_check(image: Image) -> Outcome:
    """What HCCL needs for several hosts is there: an address of each card in hccn.conf, and hccn_tool to look at it."""
    if not os.path.isfile(image.path(HCCN)):
        what = "is a folder, as docker's -v makes of a missing file" if image.exists(HCCN) else "is missing"
        return failed(f"{HCCN} {what}: HCCL reaches no other host; mount the host's", unable=True)
    known = set(re.findall(r"^address_(\d+)=\S", image.text(HCCN), re.MULTILINE))
    cards = find_nodes(image).cards
    faults = [f"{HCCN} has no address of {path}" for path in cards if path.removeprefix("/dev/davinci") not in known]
    if faults:
        return judged(faults, "")
    if shutil.which("hccn_tool", path=image.env.get("PATH")) is None:
        return warning("hccn_tool is not mounted: nothing in the container shows whether the NPUs' network is up")
    return passed(f"{HCCN} has an address of each of {len(cards)} cards")


def visible(image: Image) -> list[int] | str:
    """The logical cards that ASCEND_RT_VISIBLE_DEVICES leaves (all when it is not set), or what is wrong with it."""
    count = len(find_nodes(image).cards)
    text = image.env.get("ASCEND_RT_VISIBLE_DEVICES")
    if text is None:
        return list(range(count))
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        return f"ASCEND_RT_VISIBLE_DEVICES={text}: not a list of numbers"
    if any(int(part) >= count for part in parts):
        why = "it counts this container's cards, not the host's"
        return f"ASCEND_RT_VISIBLE_DEVICES={text}: index outside 0..{count - 1} ({why})"
    return [int(part) for part in parts]


def visible_check(image: Image) -> Outcome:
    """ASCEND_RT_VISIBLE_DEVICES names cards of this container, which counts its own from 0 (case D06)."""
    found = visible(image)
    if isinstance(found, str):
        return failed(found)
    notes = image.env.get("ASCEND_RT_VISIBLE_DEVICES")
    return passed(
        f"ASCEND_RT_VISIBLE_DEVICES {'is ' + notes if notes is not None else 'is not set'}: {len(found)} cards"
    )


def device_count(image: Image) -> tuple[int, str]:
    """(NPUs that torch_npu counts, ": why" when it cannot count), asked once in a child."""
    (answer,) = image.remember("device count", lambda: list(work(image, [{"do": "count"}])))
    return (answer.result["count"], "") if answer.ok else (0, f": {failed_import(image, answer).message}")


def count_check(image: Image) -> Outcome:
    """torch_npu counts as many NPUs as there are visible nodes."""
    cards = visible(image)
    expected = len(find_nodes(image).cards if isinstance(cards, str) else cards)
    count, why = device_count(image)
    if why:
        return failed(f"torch_npu cannot count{why}")
    faults = [] if count == expected else [f"torch_npu counts {count} NPUs, {expected} are visible"]
    return judged(faults, f"torch_npu counts {count} NPUs")


def tensor_check(image: Image) -> Outcome:
    """A tensor goes to each NPU, is added to there, and comes back right."""
    count, why = device_count(image)
    if not count:
        return failed(f"no NPU to send a tensor to{why}")
    names = [f"npu:{index}" for index in range(count)]
    answers = work(image, [{"do": "tensor", "index": index} for index in range(count)])
    tried = zip(names, answers, strict=True)
    faults = [f"{name}: {failed_import(image, answer).message}" for name, answer in tried if not answer.ok]
    return judged(faults, f"a tensor went to {', '.join(names)} and back")
