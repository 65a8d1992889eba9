"""What a host has of what a container needs to reach NPUs: device nodes, the driver's files, HCCL's files, a group."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.host.facts import ASCEND, CARD, RANKTABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.catalog.catalog import ChipAccess

NPU_SMI = ("/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi", "/usr/bin/npu-smi")
# HwHiAiUser's, whom the driver's installer makes and gives the nodes to (case U01): used where there is no node.
DRIVER_GROUP = 1000


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
        return tuple(sorted(int(m[1]) for node in self.nodes if (m := CARD.fullmatch(node))))

    @property
    def npu_smi(self) -> str | None:
        """Where this host keeps npu-smi; None where it has none."""
        return next((path for path in NPU_SMI if path in self.paths), None)


def place_of(path: str, install: str) -> str:
    """Return where a host has a path that containers look for, its driver being installed in the folder `install`."""
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
    """Return card numbers as `parse_cards` reads them, runs of three and more as ranges: 0,1,4-7."""
    runs: list[list[int]] = []
    for card in sorted(cards):
        if runs and card == runs[-1][-1] + 1:
            runs[-1].append(card)
        else:
            runs.append([card])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def wanted_paths(access: ChipAccess) -> tuple[str, ...]:
    """Return every node and path whose presence decides the command, for the edge to look at."""
    nodes = (*(f"/dev/davinci{n}" for n in range(64)), *access.managers, *access.folders)
    return (*nodes, *access.mounts, *NPU_SMI, *access.network, RANKTABLE)


def full_model(access: ChipAccess, cards: tuple[int, ...] | None, seen: HostNpus | None = None) -> HostNpus:
    """Return a host that has everything of a chip family: what `--print` shows.

    What differs from host to host is as on the host that was `seen`: where npu-smi and the driver are, the nodes'
    group, its ranktable.
    """
    numbers = range(access.cards) if cards is None else cards
    folders = seen.nodes.intersection(access.folders) if seen is not None else ()
    nodes = frozenset({*access.managers, *folders, *(f"/dev/davinci{n}" for n in numbers)})
    paths = {*access.mounts, *access.network, (seen.npu_smi if seen else None) or NPU_SMI[0]}
    if seen is not None and RANKTABLE in seen.paths:
        paths.add(RANKTABLE)
    group = seen.group if seen is not None and seen.cards else DRIVER_GROUP
    if seen is None:
        return HostNpus(nodes, frozenset(paths), group)
    return HostNpus(nodes, frozenset(paths), group, seen.ranktable, install=seen.install)


def lacking(
    access: ChipAccess, host: HostNpus, cards: tuple[int, ...] | None = None, *, multi_node: bool = False
) -> tuple[str, ...]:
    """Return what is missing on a host of the chip's model; of cards those in `cards`, or (None) any at all.

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
