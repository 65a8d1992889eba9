"""What the rules look at, one container and what is known around it, and what they say: remarks with edits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from cannery.compat.findings import Finding
from cannery.lint.image_name import told_by
from cannery.lint.shell_words import quoted
from cannery.vocab import Chip, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import ChipAccess
    from cannery.lint.container import Container, Device, Mount, Setting
    from cannery.lint.image_name import Told
    from cannery.vocab import Arch

DRIVER = "/usr/local/Ascend/driver"
# Of the 950 alone (vllm-ascend, its page on A5).
NEW_NODES = frozenset({"/dev/ummu", "/dev/uburma"})
RUNTIME_DEVICES, VISIBLE = "ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Edit:
    """A change of a command: `words` in the place of option number `at` (none: it goes), or as a new option (-1).

    `taken` are the places, among the words behind the image, of those that stand in the new option and go from there.
    """

    at: int
    words: tuple[str, ...] = ()
    taken: tuple[int, ...] = ()


@dataclass(frozen=True)
class Remark:
    """A finding about one word of a command (or place of a compose file), and the edits that mend it, if any can."""

    finding: Finding
    word: str
    edits: tuple[Edit, ...] = ()

    def __str__(self) -> str:
        return str(self.finding)


def remark(  # noqa: PLR0913, PLR0917 - those of a finding, and where it stands
    severity: Severity, code: str, word: str, what: str, why: str, fix: str, *edits: Edit
) -> Remark:
    """Return a remark; `what` has to name the word."""
    return Remark(Finding(severity, f"run.{code}", what, why, fix), word, edits)


def add(*words: str) -> Edit:
    """Return the edit that adds an option."""
    return Edit(-1, tuple(map(quoted, words)))


def replace(setting: Setting, *words: str) -> Edit:
    """Return the edit that writes an option otherwise."""
    return Edit(setting.at, tuple(map(quoted, words)))


def remove(setting: Setting) -> Edit:
    """Return the edit that takes an option away."""
    return Edit(setting.at)


@dataclass(frozen=True)
class Ground:
    """What is known around a command.

    `shm` is each profile's shared memory; `trees` are the components whose source stays in /opt/src, those in `native`
    with compiled parts; `chip` and `arch` are what the host has that is to run it, where somebody said so.
    """

    chips: Mapping[str, ChipAccess]
    shm: Mapping[str, str] = field(default_factory=dict)
    trees: frozenset[str] = frozenset()
    native: frozenset[str] = frozenset()
    chip: Chip | None = None
    arch: Arch | None = None


@dataclass(frozen=True)
class Case:
    """A container to judge."""

    container: Container
    ground: Ground

    @cached_property
    def told(self) -> Told:
        """What the image's name tells."""
        return told_by(self.container.image, self.ground.shm)

    @property
    def chip(self) -> Chip | None:
        """The chip that the image is for, else the host's, else the one that alone has a node which is given."""
        of_new = any(device.source in NEW_NODES for device in self.container.devices)
        return self.told.chip or self.ground.chip or (Chip.A5 if of_new else None)

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
        return self.container.value("runtime").lower() == "ascend"

    @cached_property
    def runtime(self) -> bool:
        """Whether the ascend runtime brings nodes and driver: it is named, or meant as the engine's default one."""
        if self.container.value("runtime"):
            return self.names_runtime
        return self.env(RUNTIME_DEVICES) not in {"", "void"} and not self.container.cards

    @property
    def privileged(self) -> Setting | None:
        """The setting that shows the container every node of the host."""
        return self.container.switch("privileged")

    @cached_property
    def uses_npu(self) -> bool:
        """Whether nodes of NPUs reach the container."""
        nodes = any(d.card is not None or d.is_open_card or d.source in self.managers for d in self.container.devices)
        unread = bool(self.privileged or self.container.opaque or self.cdi) and self.told.ascend
        return nodes or self.runtime or unread

    @cached_property
    def cdi(self) -> bool:
        """Whether devices are asked for by CDI names (`huawei.com/npu=0`), which bring what their files say."""
        return any("=" in (setting.value or "") for setting in self.container.all("device"))

    @cached_property
    def _given(self) -> dict[str, tuple[Mount, ...]]:
        """What `gives` has looked for: a line of thousands of mounts asks once for each."""
        return {}

    def env(self, name: str) -> str:
        """Return a variable's value, "" where it is not set or the host's is handed on."""
        found = self.container.env.get(name)
        return (found.value or "") if found else ""

    def gives(self, path: str, but: Mount | None = None) -> Mount | None:
        """Return the mount, other than `but`, that brings the host's `path` to its own place, or None."""
        if path not in self._given:
            # The first two: one of them is not `but`.
            self._given[path] = tuple(islice((mount for mount in self.container.mounts if mount.gives(path)), 2))
        return next((mount for mount in self._given[path] if mount is not but), None)

    def first_card(self) -> str:
        """Return the word that a message about what is missing points at: the first card's, else the image."""
        devices = self.container.devices
        cards: list[Device] = [d for d in devices if d.is_open_card or re.search(r"davinci\W?_?\d", d.source)]
        return cards[0].setting.word if cards else self.container.image
