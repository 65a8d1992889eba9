"""What `doctor` reports: one check a line, with its state and the next step; and what it compares a host with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cannery.vocab import Chip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cannery.catalog.catalog import ChipAccess, ImageUser
    from cannery.catalog.compatibility import Drivers
    from cannery.catalog.target import Target
    from cannery.host.facts import HostFacts


AS_ROOT = "run doctor as root"


class State(StrEnum):
    """What a check found. `unknown`: nothing on this host shows it."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Check:
    """One line: a stable id, the state, a message, and what to do next ("" for nothing)."""

    id: str
    state: State
    message: str
    next: str = ""


@dataclass(frozen=True)
class DriverWish:
    """What the releases of a set ask of the driver: a cell of the compatibility table, who asks, and its sources."""

    wanted: str
    who: str
    source: str


@dataclass(frozen=True)
class Wanted:
    """What the host is compared with. `several_hosts`: the jobs of the profile run on several.

    `target` is None without a profile, and `named` is then the chip that the user names. `image_bytes` is what a
    build of its image takes on the engine's disk, None if that is not known. With `layers_only` it is without the
    base: the size of a CANN base is known only after a pull. `shm_bytes` is the shared memory of its containers,
    `user` their user, None for root.
    """

    chips: Mapping[str, ChipAccess]
    drivers: Drivers
    target: Target | None = None
    named: Chip | None = None
    profile: str = ""
    wish: DriverWish | None = None
    shm_bytes: int | None = None
    shm_size: str = ""
    image_bytes: int | None = None
    layers_only: bool = False
    user: ImageUser | None = None
    several_hosts: bool = False

    def chip(self, facts: HostFacts) -> Chip | None:
        """Return the host's chip where the PCI bus shows one known kind alone, else the one that is wanted."""
        seen = seen_chips(facts, self.drivers)
        return seen[0] if len(seen) == 1 else self.wanted_chip

    @property
    def wanted_chip(self) -> Chip | None:
        """The target's chip, else the one that the user names."""
        return self.target.chip if self.target else self.named

    def access(self, facts: HostFacts) -> ChipAccess:
        """Return how containers reach that chip. An unknown chip counts as A2: only the newest differ."""
        return self.chips[self.chip(facts) or Chip.A2]


def seen_chips(facts: HostFacts, drivers: Drivers) -> tuple[Chip, ...]:
    """Return the chips that the PCI bus shows, each once."""
    return tuple(dict.fromkeys(drivers.pci[device] for device, _ in facts.pci or () if device in drivers.pci))


def _found(state: State) -> Callable[..., Check]:
    """Return what makes a check of this state from its id, its message, and what to do next."""

    def check(name: str, message: str, step: str = "") -> Check:
        return Check(name, state, message, step)

    return check


ok, warning = _found(State.OK), _found(State.WARNING)
error, unknown = _found(State.ERROR), _found(State.UNKNOWN)


def closed(name: str, *paths: str) -> Check:
    """Return a check that has no result, since this user cannot read `paths`."""
    return unknown(name, f"this user cannot read {', '.join(paths)}", AS_ROOT)


def gigabytes(number: int) -> str:
    """Return bytes in words."""
    return f"{number / (1 << 30):,.1f} GB"
