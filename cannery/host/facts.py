"""The facts of a host, or of a copied tree of files: read by `cannery.host.io.look`, checked by `cannery.doctor`.

Files come as texts and are parsed here.
"""

from __future__ import annotations

import json
import posixpath
import re
import stat
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cannery.errors import UsageError
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cannery.catalog.catalog import ChipAccess


INSTALL_INFO = "/etc/ascend_install.info"
ASCEND = "/usr/local/Ascend"
PASSWD, GROUP = "/etc/passwd", "/etc/group"
DEV = "/dev"
DAEMON_JSON, HCCN = "/etc/docker/daemon.json", "/etc/hccn.conf"
# HCCL's table of ranks. The Ascend Docker runtime mounts it in any version (case D10).
RANKTABLE = "/etc/hccl_rootinfo.json"
RELEASE, MEMINFO, CPUINFO = "/proc/sys/kernel/osrelease", "/proc/meminfo", "/proc/cpuinfo"
FILESYSTEMS, MODULES, OS_RELEASE = "/proc/filesystems", "/proc/modules", "/etc/os-release"
BINFMT = "/proc/sys/fs/binfmt_misc"
RUNTIME_PROGRAMS = (
    f"{ASCEND}/Ascend-Docker-Runtime/ascend-docker-runtime",
    "/usr/bin/ascend-docker-runtime",
)
DOCKER_PROGRAMS = ("/usr/bin/dockerd", "/usr/bin/docker", "/usr/local/bin/docker", "/usr/bin/podman")
# Files that docker, podman and Kubernetes put into a container.
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")
# These are always read; INSTALL_INFO has the folder of the driver's own files.
TEXTS = (
    *(INSTALL_INFO, PASSWD, GROUP, DAEMON_JSON, HCCN, RANKTABLE, RELEASE, MEMINFO, CPUINFO, FILESYSTEMS),
    *(MODULES, OS_RELEASE, f"{BINFMT}/qemu-aarch64", f"{BINFMT}/qemu-x86_64"),
)
# Paths that are files on a host with NPUs. Docker's -v makes an empty folder instead of a missing file.
_FILE = re.compile(r"/npu-smi$|/hccn_tool$|\.(info|conf|json)$")
# Folders below /dev with nodes of the 950: docker gives a container all nodes of such a folder.
NODE_FOLDERS = frozenset({"/dev/uburma", "/dev/ummu"})
# No machine has a card with more than 4 digits.
CARD = re.compile(r"/dev/davinci([0-9]{1,4})")
LAST_UID = 2**32 - 2
NO_JSON = "is not JSON"
NPU_SMI = ("/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi", "/usr/bin/npu-smi")
# The group HwHiAiUser, which the driver's installer makes and which owns the nodes (case U01). It is the default if
# there are no nodes.
DRIVER_GROUP = 1000


@dataclass(frozen=True)
class Node:
    """A device node: who owns it, and its permission bits. In a tree it may be a plain file."""

    path: str
    uid: int
    gid: int
    mode: int
    is_device: bool = True

    @property
    def card(self) -> int | None:
        """The NPU's number; None for a manager node."""
        return card_of(self.path)


@dataclass(frozen=True)
class EngineState:
    """The state of a Docker engine: its version and storage driver, or the problem and a hint.

    `user_map` is why users of its containers are not the host's, or "". `is_absent`: no engine runs, and no setting
    names one.
    """

    version: str = ""
    storage_driver: str = ""
    problem: str = ""
    hint: str = ""
    user_map: str = ""
    is_absent: bool = False


@dataclass(frozen=True)
class HostFacts:
    """A host. `live` is false for a tree: facts that only a running host has are then None.

    `pci` are (device id, class) of vendor 0x19e5; `texts` the files that exist; `paths` the wanted paths that exist;
    `folders` those that are a folder instead of a file or node; `unreadable` those that the user cannot read;
    `disk_free` bytes at `disk_at`, where images are kept; `shm` bytes of /dev/shm; `page` bytes of a memory page; `smi`
    the output of npu-smi; `no_sandbox` why sandboxes do not work, or "".
    """

    live: bool = False
    nodes: tuple[Node, ...] = ()
    pci: tuple[tuple[str, str], ...] | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    paths: frozenset[str] = frozenset()
    unreadable: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    user: User | None = None
    engine: EngineState | None = None
    disk_free: int | None = None
    disk_at: str = ""
    shm: int | None = None
    page: int | None = None
    smi: str | None = None
    no_sandbox: str | None = None

    @property
    def cards(self) -> tuple[int, ...]:
        """The numbers of the NPUs' nodes, ascending."""
        return tuple(sorted(node.card for node in self.nodes if node.card is not None))

    @cached_property
    def install(self) -> str:
        """The driver's folder."""
        return install_folder(self.texts.get(INSTALL_INFO, ""))

    @cached_property
    def driver(self) -> dict[str, str]:
        """The fields of the driver's version.info, or {}."""
        return info_fields(self.texts.get(f"{self.install}/driver/version.info", ""))

    @cached_property
    def firmware(self) -> dict[str, str]:
        """The fields of the firmware's version.info, or {}."""
        return info_fields(self.texts.get(f"{self.install}/firmware/version.info", ""))

    @cached_property
    def memory(self) -> dict[str, int]:
        """/proc/meminfo in bytes, without values that have no unit."""
        found = re.findall(r"^(\w+):\s+([0-9]{1,18}) kB$", self.texts.get(MEMINFO, ""), re.MULTILINE)
        return {name: int(number) * 1024 for name, number in found}

    @cached_property
    def arch(self) -> Arch | None:
        """The CPU architecture, as /proc/cpuinfo shows it."""
        text = self.texts.get(CPUINFO, "")
        if re.search(r"^CPU implementer\s*:", text, re.MULTILINE):
            return Arch.ARM64
        return Arch.AMD64 if re.search(r"^vendor_id\s*:", text, re.MULTILINE) else None

    def name(self, number: int, file: str = GROUP) -> str:
        """Return the name of a number in /etc/group, or in another such file, or ""."""
        match = re.search(rf"^([^:\n]+):[^:]*:{number}:", self.texts.get(file, ""), re.MULTILINE)
        return match[1] if match else ""


def card_of(path: str) -> int | None:
    """Return the number of an NPU's node; None for any other path."""
    match = CARD.fullmatch(path)
    return int(match[1]) if match else None


def user_map_text(user_map: str) -> str:
    """Return what an engine's `user_map` means for device nodes."""
    return f"the engine has users of its own ({user_map}): nobody in its containers is in a group of the host"


def install_folder(text: str) -> str:
    """Return the driver's folder in /etc/ascend_install.info, or the default one."""
    match = re.search(r"^Driver_Install_Path_Param=(/\S*)", text, re.MULTILINE)
    return posixpath.normpath(match[1]) if match else ASCEND


def info_fields(text: str) -> dict[str, str]:
    """Return `NAME=value` lines of a version.info."""
    return dict(re.findall(r"^(\w+)=(.*?)\s*$", text, re.MULTILINE))


def json_object(text: str) -> tuple[dict[str, Any], str]:
    """Return the object of a JSON text, and "" or what is wrong with it, as the end of a sentence."""
    try:
        found = json.loads(text)
    except RecursionError:
        return {}, "is nested too deep to be read"
    except ValueError:
        return {}, NO_JSON
    return (found, "") if isinstance(found, dict) else ({}, "is JSON, but not an object")


def is_in_place(path: str, mode: int) -> bool:
    """Whether `path`, with this st_mode, has the right type: not a folder instead of a node or a file."""
    if path in NODE_FOLDERS:
        return stat.S_ISDIR(mode)
    return not (stat.S_ISDIR(mode) and (path.startswith(f"{DEV}/") or is_file_name(path)))


def is_file_name(path: str) -> bool:
    """Whether a path of a host with NPUs names a file: files of the driver have a suffix, or are programs."""
    return _FILE.search(path) is not None


@dataclass(frozen=True)
class User:
    """A user of the NPUs. `is_named` is false for a number without a line in /etc/passwd."""

    name: str
    uid: int
    groups: frozenset[int]
    is_named: bool = True


def user_in(passwd: str, group: str, name: str) -> User | None:
    """Return a user, by name or by number, from the texts of a passwd and a group file.

    A number without a line in them is a user too; a name without one is None.
    """
    rows = re.findall(r"^([^:\n]+):[^:\n]*:([0-9]{1,18}):([0-9]{1,18}):", passwd, re.MULTILINE)
    number = uid_of(name)
    row = next((row for row in rows if row[0] == name), None)
    row = row or next((row for row in rows if number is not None and int(row[1]) == number), None)
    if row is None:
        return nameless(number)
    groups = re.findall(r"^[^:\n]+:[^:\n]*:([0-9]{1,18}):(.*)$", group, re.MULTILINE)
    others = {int(gid) for gid, members in groups if row[0] in members.strip().split(",")}
    return User(row[0], int(row[1]), frozenset({int(row[2]), *others}))


def uid_of(text: str) -> int | None:
    """Return a user id; None for a name, and for a number that is too large for one."""
    return int(text) if re.fullmatch(r"[0-9]{1,10}", text) and int(text) <= LAST_UID else None


def nameless(uid: int | None) -> User | None:
    """Return a user who has only a number: in root's group, as with docker's `--user NUMBER`."""
    return None if uid is None else User(str(uid), uid, frozenset({0}), is_named=False)


@dataclass(frozen=True)
class HostNpus:
    """What a host has: device nodes, paths, the group that owns the nodes, the version of its ranktable ("" for none).

    A ranktable that states no version counts as none. `hidden` are paths that the
    user cannot read; `install` is the folder that the driver is installed in, which holds its paths.
    """

    nodes: frozenset[str]
    paths: frozenset[str]
    group: int | None = None
    ranktable: str = ""
    hidden: frozenset[str] = frozenset()
    install: str = ASCEND

    @property
    def cards(self) -> tuple[int, ...]:
        """Numbers N of the /dev/davinciN nodes, ascending."""
        return tuple(sorted(card for node in self.nodes if (card := card_of(node)) is not None))

    @property
    def npu_smi(self) -> str | None:
        """The path of npu-smi on this host, or None."""
        return next((path for path in NPU_SMI if path in self.paths), None)


def place_of(path: str, install: str) -> str:
    """Return where a host whose driver is installed in `install` has a path that containers look for."""
    return f"{install}{path.removeprefix(ASCEND)}" if path.startswith(f"{ASCEND}/") else path


def parse_cards(text: str) -> tuple[int, ...]:
    """Return card numbers of `0,1,4-7`, ascending, each once; raise `UsageError` for anything else."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,3})(?:-([0-9]{1,3}))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"NPUS: {text!r} names no cards", hint="written like 0,1,4-7, or all, or none")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def card_text(cards: Iterable[int]) -> str:
    """Return card numbers as `parse_cards` reads them, with ranges for three or more: 0,1,4-7."""
    runs: list[list[int]] = []
    for card in sorted(cards):
        if runs and card == runs[-1][-1] + 1:
            runs[-1].append(card)
        else:
            runs.append([card])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def wanted_paths(access: ChipAccess) -> tuple[str, ...]:
    """Return every node and path that the command depends on, which `host.io.look` looks for."""
    nodes = (*(f"/dev/davinci{n}" for n in range(64)), *access.managers, *access.folders)
    return (*nodes, *access.mounts, *NPU_SMI, *access.network, RANKTABLE)


NOTHING_SEEN = HostNpus(frozenset(), frozenset())


def full_model(access: ChipAccess, cards: tuple[int, ...] | None, seen: HostNpus = NOTHING_SEEN) -> HostNpus:
    """Return a host that has everything of a chip family: what `--print` shows.

    What differs from host to host is as on the host that was `seen`: where npu-smi and the driver are, the nodes'
    group, its ranktable.
    """
    numbers = range(access.cards) if cards is None else cards
    folders = seen.nodes.intersection(access.folders)
    nodes = {*access.managers, *folders, *(f"/dev/davinci{n}" for n in numbers)}
    paths = {*access.mounts, *access.network, seen.npu_smi or NPU_SMI[0], *seen.paths.intersection([RANKTABLE])}
    group = seen.group if seen.cards else DRIVER_GROUP
    return HostNpus(frozenset(nodes), frozenset(paths), group, seen.ranktable, install=seen.install)


def lacking(
    access: ChipAccess, host: HostNpus, cards: tuple[int, ...] | None = None, *, multi_node: bool = False
) -> tuple[str, ...]:
    """Return what a host does not have of the chip's model. `cards` are needed; with None, any card will do.

    A hidden path may exist.
    """
    missing = [node for node in access.managers if node not in host.nodes]
    absent = sorted(set(cards or ()) - set(host.cards))
    if not host.cards:
        missing.append("/dev/davinci0 …")
    elif absent:
        missing.append(f"card{'s' if len(absent) > 1 else ''} {card_text(absent)}")
    known = host.paths | host.hidden
    missing += [place_of(path, host.install) for path in access.mounts if path not in known]
    missing += [] if known.intersection(NPU_SMI) else ["npu-smi"]
    missing += [path for path in access.network if multi_node and path not in known]
    return tuple(missing)
