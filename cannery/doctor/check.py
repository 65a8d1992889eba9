"""The results of `doctor` (a check with its state and next step), and what it compares a host with."""

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
    """The result of a check. `unknown`: the host does not show it."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Check:
    """One check: a stable id, the state, a message, and what to do next ("" for nothing)."""

    id: str
    state: State
    message: str
    next: str = ""


@dataclass(frozen=True)
class DriverWish:
    """The driver that a set requires: a cell of the compatibility table, the releases that require it, and sources."""

    wanted: str
    who: str
    source: str


@dataclass(frozen=True)
class Wanted:
    """What the host is compared with.

    `target` is None without a profile; `named` is then the chip that the user names. `image_bytes` is the disk space
    for a build of the image, None if unknown. With `layers_only`, it does not include the base, because the size of a
    CANN base is only known after a pull. `shm_bytes` is the shared memory of its containers, `user` is their user
    (None: root). `several_hosts`: the profile's jobs run on several hosts.
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
        """Return the host's chip if the PCI bus shows exactly one known chip, else the wanted one."""
        seen = seen_chips(facts, self.drivers)
        return seen[0] if len(seen) == 1 else self.wanted_chip

    @property
    def wanted_chip(self) -> Chip | None:
        """The chip of the target, or else the one that the user names."""
        return self.target.chip if self.target else self.named

    def access(self, facts: HostFacts) -> ChipAccess:
        """Return the device nodes and paths of that chip. An unknown chip counts as A2: only the newest differ."""
        return self.chips[self.chip(facts) or Chip.A2]


def seen_chips(facts: HostFacts, drivers: Drivers) -> tuple[Chip, ...]:
    """Return the chips on the PCI bus, without repeats."""
    return tuple(dict.fromkeys(drivers.pci[device] for device, _ in facts.pci or () if device in drivers.pci))


def _found(state: State) -> Callable[..., Check]:
    """Return a function that makes a check with this state."""

    def check(name: str, message: str, step: str = "") -> Check:
        return Check(name, state, message, step)

    return check


ok, warning = _found(State.OK), _found(State.WARNING)
error, unknown = _found(State.ERROR), _found(State.UNKNOWN)


def closed(name: str, *paths: str) -> Check:
    """Return a check without result, because this user cannot read `paths`."""
    return unknown(name, f"this user cannot read {', '.join(paths)}", AS_ROOT)


def gigabytes(number: int) -> str:
    """Return a number of bytes as a text in GB."""
    return f"{number / (1 << 30):,.1f} GB"
