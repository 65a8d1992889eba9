"""What the host gives a container for its NPUs: device nodes, mounts and driver."""

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from verifying.image import Image
from verifying.loader import DRIVER


@dataclass(frozen=True)
class Nodes:
    """The Ascend device nodes of /dev. `lacking`: those that belong to an NPU and are not there."""

    cards: tuple[str, ...]
    present: tuple[str, ...]
    lacking: tuple[str, ...]


def find_nodes(image: Image) -> Nodes:
    """Looks at /dev. Chip a5 has no devmm_svm any more (case D11)."""
    managers = ["/dev/davinci_manager", "/dev/hisi_hdc"]
    managers += [] if image.manifest["target"]["chip"] == "a5" else ["/dev/devmm_svm"]
    found = (path for path in image.find("/dev/davinci[0-9]*") if path[12:].isdigit())
    cards = tuple(sorted(found, key=lambda path: int(path[12:])))
    present = [path for path in managers if image.exists(path)]
    lacking = [path for path in managers if path not in present]
    return Nodes(cards, (*cards, *present), tuple(lacking if cards else [*lacking, "/dev/davinci0"]))


def node_faults(image: Image) -> list[str]:
    """Why this process cannot use the nodes that exist."""
    return [fault for path in find_nodes(image).present if (fault := node_fault(image, path))]


def node_fault(image: Image, path: str) -> str:
    """Why this process cannot use a node that exists; "" when it can."""
    real = image.path(path)
    about = os.stat(real)
    if image.root == "/" and not stat.S_ISCHR(about.st_mode):
        return f"{path} is not a device (a mount of a missing file makes a folder)"
    if os.access(real, os.R_OK | os.W_OK):
        return ""
    if os.geteuid() == 0 or about.st_mode & 0o006 == 0o006:
        return f"{path} is closed to this container by its device rules: give the node with --device"
    owner, group = name_of(image, "passwd", about.st_uid), name_of(image, "group", about.st_gid)
    me = f"this process is uid {os.geteuid()}, groups {', '.join(map(str, sorted({os.getegid(), *os.getgroups()})))}"
    mode = f"mode {stat.S_IMODE(about.st_mode):04o}"
    advice = f": add --group-add {about.st_gid}" if about.st_mode & 0o060 == 0o060 else ""
    return f"{path} belongs to {owner}:{group}, {mode}; {me}{advice}"


def name_of(image: Image, kind: str, number: int) -> str:
    """A user's or group's name and number, as the image's /etc/passwd or /etc/group has it."""
    column = re.search(rf"^([^:\n]*):[^:]*:{number}:", image.text(f"/etc/{kind}"), re.MULTILINE)
    return f"{column[1]}({number})" if column else str(number)


def manager_error(image: Image) -> int:
    """Errno of opening davinci_manager; 0 when it opens. A node that mknod made has no driver behind it: ENXIO."""
    try:
        os.close(os.open(image.path("/dev/davinci_manager"), os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or 0
    return 0


def driver_library(image: Image) -> str:
    """The driver's libascend_hal.so; "" when the driver is not mounted."""
    return image.first(f"{DRIVER}/{place}/libascend_hal.so" for place in ("lib64/driver", "lib64", "lib64/common"))


def five_points(image: Image) -> list[str]:
    """Nodes, mounts, driver, permission, environment: each ok or missing (case D16)."""

    def missing(names: Sequence[str]) -> list[str]:
        return [f"missing {', '.join(names)}"] if names else []

    nodes, mounts = find_nodes(image), (f"{DRIVER}/lib64", f"{DRIVER}/version.info", "/usr/local/bin/npu-smi")
    points = {
        "nodes": missing(nodes.lacking),
        "mounts": missing([path for path in mounts if not image.exists(path)]),
        "driver": [] if driver_library(image) else ["missing libascend_hal.so"],
        "permission": node_faults(image) if nodes.present else ["missing: no node to open"],
        "env": missing([name for name in image.manifest["env"] if name not in image.env]),
    }
    return [f"{name}: {'; '.join(faults) or 'ok'}" for name, faults in points.items()]
