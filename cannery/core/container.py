"""A container that reaches NPUs, as a value: `docker run`, compose files and Kubernetes manifests say it their way.

Explicit device nodes and driver mounts, or the Ascend Docker runtime in their place, never both. No `--privileged` (it
exposes every card), and no host network unless it is asked for: neither is needed to reach an NPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.core.errors import UnableError, UsageError
from cannery.core.network import HOST_NETWORK, Interface, interface_env
from cannery.core.npu_host import NPU_SMI, RANKTABLE

if TYPE_CHECKING:
    from cannery.core.catalog import ChipAccess
    from cannery.core.npu_host import HostNpus

RUNTIME = "ascend"
# The runtime is told host numbers by the first; in a container cards count from 0, whatever their nodes are called, and
# the second names some of those (case D06).
GIVEN, VISIBLE = "ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Mount:
    """A path of the host that stands in the container."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True)
class RunRequest:
    """What is to run.

    `cards` None means all of them; `npu` False starts without any device; `runtime` is the docker runtime that brings
    the devices in place of single nodes; `volumes` and `env` are what docker takes after `-v` and `-e`; `terminal` asks
    for a terminal (standard input is handed on either way); `nodes` is how many such containers a job has. `network` is
    docker's word, with `interface` of the host's.
    `trees` and `caches` are folders of the user's; `elsewhere` says that the command is to be carried to another host.
    """

    image: str
    shm_size: str
    cards: tuple[int, ...] | None = None
    npu: bool = True
    nodes: int = 1
    terminal: bool = False
    detach: bool = False
    name: str | None = None
    volumes: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    runtime: str | None = None
    network: str | None = None
    interface: Interface | None = None
    trees: tuple[Mount, ...] = ()
    caches: tuple[Mount, ...] = ()
    elsewhere: bool = False

    @property
    def is_multi_node(self) -> bool:
        """Whether HCCL has to reach other hosts."""
        return self.nodes > 1 or self.network == HOST_NETWORK


@dataclass(frozen=True)
class Container:
    """A request bound to a host.

    `cards` is how many NPUs are in it, `devices` the nodes that bring them ((): `request.runtime` does), `driver` the
    mounts of the driver and of HCCL's files, `visible` the variables that name cards, `env` the rest, in the order of
    precedence (None: the value that the client's environment has). `notes` says what this host lacks.
    """

    request: RunRequest
    cards: int
    devices: tuple[str, ...]
    group: int | None
    driver: tuple[Mount, ...]
    visible: tuple[tuple[str, str], ...]
    env: tuple[tuple[str, str | None], ...]
    notes: tuple[str, ...]

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Every mount that is not one of the user's own volumes."""
        return (*self.driver, *self.request.trees, *self.request.caches)


def make_container(request: RunRequest, access: ChipAccess, host: HostNpus) -> Container:
    """Bind `request` to `host`.

    Raises `UnableError` when NPUs are wanted and the host has no card, lacks a manager node, or lacks a card that was
    named, `UsageError` for variables and options that contradict each other. Paths that the host lacks are left out
    with a note: docker would make an empty folder of them.
    """
    given = dict(_entry(text) for text in request.env)
    interface = () if request.interface is None else interface_env(request.interface)
    env = (*((name, value) for name, value in interface if name not in given), *given.items())
    if not request.npu:
        if request.runtime:
            raise UsageError(f"the runtime {request.runtime} brings NPUs, and none are wanted", hint="leave out one")
        return Container(request, 0, (), None, (), (), env, ())
    cards = _chosen_cards(request, access, host)
    visible = _visible(request, cards, given)
    mounts, notes = ((), ()) if request.runtime else _driver(access, host)
    nodes = () if request.runtime else (*(f"/dev/davinci{n}" for n in cards), *access.managers)
    more, lacks = _across_hosts(request, access, host)
    table, doubts = _ranktable(request, access, host)
    driver = (*mounts, *more, *table)
    return Container(request, len(cards), nodes, host.group, driver, visible, env, (*notes, *lacks, *doubts))


def _entry(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _chosen_cards(request: RunRequest, access: ChipAccess, host: HostNpus) -> tuple[int, ...]:
    hint = "install the Ascend driver, or start without NPUs: NPUS=none (`build.py run --npus none`)"
    if not host.cards:
        raise UnableError("no NPU on this host: there is no /dev/davinci0 … node", hint=hint)
    missing = [node for node in access.managers if node not in host.nodes]
    if missing:
        raise UnableError(f"this host lacks {', '.join(missing)}", hint=hint)
    cards = host.cards if request.cards is None else request.cards
    absent = [n for n in cards if n not in host.cards]
    if absent:
        have = ",".join(map(str, host.cards))
        raise UnableError(f"no card {', '.join(map(str, absent))} on this host", hint=f"NPUS may name {have}")
    return cards


def _visible(request: RunRequest, cards: tuple[int, ...], given: dict[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Return the variables that name cards. Raises `UsageError` where the user's own say otherwise."""
    if GIVEN in given:
        hint = "say it by NPUS (`--npus`); with `--runtime ascend` the variable follows from that"
        raise UsageError(f"{GIVEN} tells the Ascend Docker runtime which cards a container gets", hint=hint)
    found = [(GIVEN, ",".join(map(str, cards)))] if request.runtime else []
    wanted = given.get(VISIBLE)
    if VISIBLE not in given and request.cards is not None:
        found.append((VISIBLE, ",".join(map(str, range(len(cards))))))
    elif wanted is not None:
        parts = [part.strip() for part in wanted.split(",")]
        bad = [part for part in parts if not (part.isascii() and part.isdigit() and int(part) < len(cards))]
        if bad:
            what = f"{VISIBLE}={wanted}: index {', '.join(bad)} outside 0..{len(cards) - 1}"
            raise UsageError(what, hint="it counts the container's own cards from 0, whatever the host calls them")
    return tuple(found)


def _driver(access: ChipAccess, host: HostNpus) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return the driver's mounts, and what of it this host lacks."""
    mounts = [Mount(path, path, read_only=True) for path in access.mounts if path in host.paths]
    notes = [f"this host has no {path}: not mounted" for path in access.mounts if path not in host.paths]
    if host.npu_smi:
        # Where the image's PATH finds it, wherever the host keeps it.
        mounts.append(Mount(host.npu_smi, NPU_SMI[0], read_only=True))
    else:
        notes.append("this host has no npu-smi: not mounted")
    return tuple(mounts), tuple(notes)


def _across_hosts(request: RunRequest, access: ChipAccess, host: HostNpus) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return the mounts of what HCCL reads to reach other hosts, and what is left out."""
    if not request.is_multi_node:
        return (), ()
    mounts = tuple(Mount(path, path, read_only=True) for path in access.network if path in host.paths)
    return mounts, tuple(f"this host has no {path}: not mounted" for path in access.network if path not in host.paths)


def _ranktable(request: RunRequest, access: ChipAccess, host: HostNpus) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return the mount of the host's ranktable, or why it is left out: of another version it ends every job (case D10).

    The Ascend Docker runtime mounts it by itself, whatever it is.
    """
    if RANKTABLE not in host.paths or not (request.is_multi_node or request.runtime):
        return (), ()
    if host.ranktable and host.ranktable == access.ranktable:
        return () if request.runtime else (Mount(RANKTABLE, RANKTABLE, read_only=True),), ()
    version = f"of version {host.ranktable}" if host.ranktable else "of no version that can be read"
    wanted = f"HCCL takes {access.ranktable} on this chip" if access.ranktable else "none is known for this chip"
    outcome = (
        f"the runtime {request.runtime} mounts it all the same, so move it away" if request.runtime else "not mounted"
    )
    return (), (f"{RANKTABLE} is {version}, {wanted}: {outcome}",)
