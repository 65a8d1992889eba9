"""What the rules judge: one container, and what is known around it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from cannery.lint.image_name import read_image_name
from cannery.vocab import Chip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import ChipAccess
    from cannery.lint.container import Container, Device, Setting
    from cannery.lint.image_name import ImageName
    from cannery.vocab import Arch

DRIVER = "/usr/local/Ascend/driver"
# Of the 950 alone (vllm-ascend, its page on A5).
NEW_NODES = frozenset({"/dev/ummu", "/dev/uburma"})
RUNTIME_DEVICES, VISIBLE = "ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Ground:
    """What is known around a command.

    `shm` is each profile's shared memory; `chip` and `arch` are what the host has that is to run it, where the user
    names them.
    """

    chips: Mapping[str, ChipAccess]
    shm: Mapping[str, str] = field(default_factory=dict)
    chip: Chip | None = None
    arch: Arch | None = None


@dataclass(frozen=True)
class Case:
    """A container to judge."""

    container: Container
    ground: Ground

    @cached_property
    def image(self) -> ImageName:
        """What the image's name shows."""
        return read_image_name(self.container.image, self.ground.shm)

    @property
    def chip(self) -> Chip | None:
        """The chip that the image is for, else the host's, else the one that alone has a node which is given."""
        of_new = any(device.source in NEW_NODES for device in self.container.devices)
        return self.image.chip or self.ground.chip or (Chip.A5 if of_new else None)

    @cached_property
    def access(self) -> ChipAccess:
        """How that chip is reached; of an unknown one as A2, which all but the newest equal."""
        return self.ground.chips[self.chip or Chip.A2]

    @cached_property
    def managers(self) -> frozenset[str]:
        """The manager nodes of every chip."""
        return frozenset(node for access in self.ground.chips.values() for node in access.managers)

    @property
    def names_runtime(self) -> bool:
        """Whether the ascend runtime is named, so that its cards come on top of the nodes."""
        return self.container.value("runtime") == "ascend"

    @cached_property
    def runtime(self) -> bool:
        """Whether the ascend runtime brings nodes and driver: it is named, or meant as the engine's default one."""
        if self.container.value("runtime"):
            return self.names_runtime
        return self.env(RUNTIME_DEVICES) not in {"", "void"} and not self.container.cards

    @property
    def has_open_card(self) -> bool:
        """Whether there is a card whose number a shell, or the reader of a guide, fills in."""
        return any(device.is_open_card for device in self.container.devices)

    @property
    def privileged(self) -> Setting | None:
        """The setting that shows the container every node of the host."""
        return self.container.switch("privileged")

    @cached_property
    def plugin(self) -> Setting | None:
        """The setting that asks a cluster's device plugin for NPUs: it brings their nodes, and not the driver."""
        return self.container.last("resource")

    @cached_property
    def nodes_come(self) -> bool:
        """Whether something else than --device brings the nodes of NPUs."""
        return bool(self.privileged or self.runtime or self.cdi or self.plugin)

    @cached_property
    def uses_npu(self) -> bool:
        """Whether nodes of NPUs reach the container."""
        nodes = any(d.card is not None or d.is_open_card or d.source in self.managers for d in self.container.devices)
        unread = bool(self.privileged or self.container.opaque or self.cdi) and self.image.ascend
        return nodes or self.runtime or unread or bool(self.plugin)

    @cached_property
    def cdi(self) -> bool:
        """Whether devices are asked for by CDI names (`huawei.com/npu=0`), which bring what their files list."""
        return any("=" in (setting.value or "") for setting in self.container.all("device"))

    @cached_property
    def unread(self) -> str:
        """What to add to a message about something that is missing, where a part of the container is not read."""
        opaque = self.container.opaque
        return f" (unless {' '.join(opaque)} brings it)" if opaque else ""

    def env(self, name: str) -> str:
        """Return a variable's value, "" where it is not set or the host's is handed on."""
        found = self.container.env.get(name)
        return (found.value or "") if found else ""

    def gives(self, path: str) -> bool:
        """Whether a mount brings the host's `path` to its own place."""
        return any(mount.gives(path) for mount in self.container.mounts)

    def first_card(self) -> str:
        """Return the word that a message about what is missing points at: the first card's, else the image."""
        devices = self.container.devices
        cards: list[Device] = [d for d in devices if d.is_open_card or re.search(r"davinci\W?_?\d", d.source)]
        found = cards[0].setting if cards else self.plugin
        return found.word if found else self.container.image
