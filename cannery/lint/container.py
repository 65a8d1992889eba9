"""A container that somebody asks for, by docker's options; what the name of its image shows; remarks on it."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from cannery.compat.subject import Finding
from cannery.errors import UsageError
from cannery.host.facts import card_of
from cannery.plan import parse_tag
from cannery.util.addresses import parse_reference
from cannery.vocab import CHIP_ALIASES, Chip

if TYPE_CHECKING:
    from collections.abc import Container as Names
    from collections.abc import Mapping

    from cannery.catalog.catalog import ChipAccess
    from cannery.vocab import Arch

OUTPUT = r"\$\((?:[^()]|\([^()]*\))*+\)"
# What only a shell can fill in, or the reader of a guide.
OPEN = rf"{OUTPUT}|\$\{{[^{{}}]*\}}|`[^`]*`|<\w(?:[\w .:/-]*\w)?>"
# How guides write a card's number that the reader fills in.
_ANY_CARD = re.compile(r"/dev/davinci(?:[NXnx]|\{[^{}]*\})")
# A part between colons; the colons in `$(…)`, `${NAME:-x}` and a placeholder do not end one.
_PART = re.compile(rf"(?:{OPEN}|[^:])*", re.DOTALL)
_MOUNT_KEYS = {"src": "source", "dst": "target", "destination": "target"}
DRIVER = "/usr/local/Ascend/driver"
# Of the 950 alone (vllm-ascend, its page on A5).
NEW_NODES = frozenset({"/dev/ummu", "/dev/uburma"})
RUNTIME_DEVICES, VISIBLE = "ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"
_CHIP = re.compile(r"(?:^|[-_])(910b|a2|a3|310p|a5|950[a-z]*)(?=[-_]|$)")
_CANN = re.compile(r"(?:^|[-_])(?:cann)?(\d+\.\d+\.(?:rc\d+|\d+))(?=[-_])")
# What is filled in later in a tag: `{{ version }}`, `<version>`, `$VERSION`; not the whole image.
_FILLED_IN = re.compile(r"(?<=[\w:/.-])(?:\{\{?[^{}]*\}?\}|<[^<>]*>|\$\{\w+\}|\$\w+)")
# Their tags name a chip only where it is another one (vllm-ascend: v0.11.0rc1, v0.11.0rc1-a3, …-310p).
_DEFAULT_CHIPS = {"vllm-ascend": Chip.A2}


def is_open(text: str) -> bool:
    """Whether only a shell, or the reader of a guide, knows a part of `text`."""
    return re.search(rf"\$[\w@*]|{OPEN}", text, re.DOTALL) is not None


@dataclass(frozen=True)
class Remark(Finding):
    """A finding about one word of a command, or one place of a file; `what` names the word."""

    word: str = ""


class Setting(NamedTuple):
    """One setting: docker's long name, its value (None for a switch), and how messages show it."""

    key: str
    value: str | None
    word: str


class Device(NamedTuple):
    """A device node, by the host's path."""

    source: str
    word: str

    @property
    def card(self) -> int | None:
        """The number of an NPU's node, None for any other node."""
        return card_of(self.source)

    @property
    def is_open_card(self) -> bool:
        """Whether it is an NPU's node of a number that is still to be filled in: `/dev/davinci$i`, `/dev/davinciN`."""
        is_any = is_open(self.source) or _ANY_CARD.fullmatch(self.source)
        return self.source.startswith("/dev/davinci") and bool(is_any)


class Mount(NamedTuple):
    """A mount: `source` is a path of the host, a volume's name, or "" for what has none (tmpfs, anonymous volumes)."""

    source: str
    target: str
    word: str

    def gives(self, path: str) -> bool:
        """Whether the host's `path` is at the same place in the container because of it."""
        outside = self.source.rstrip("/") + path[len(self.target.rstrip("/")) :]
        return bool(self.source and self.target) and self.hides(path) and outside == path

    def hides(self, path: str) -> bool:
        """Whether what the image has at `path` cannot be seen because of it."""
        target = self.target.rstrip("/")
        return path == target or path.startswith(f"{target}/")


@dataclass(frozen=True)
class Container:
    """One container that is asked for: `where` is its place in a file, `line` where its command begins in a text.

    `is_pod`: it is a Pod's of Kubernetes. `misread` are remarks on words that docker does not take as their writer
    means them.
    """

    image: str
    settings: tuple[Setting, ...]
    command: tuple[str, ...] = ()
    where: str = ""
    line: int = 0
    misread: tuple[Remark, ...] = ()
    is_pod: bool = False

    @cached_property
    def opaque(self) -> tuple[str, ...]:
        """Words that only a shell can read (`$DEVICES`), and other files: they may bring any setting."""
        return tuple(setting.word for setting in self.settings if not setting.key)

    def all(self, key: str) -> tuple[Setting, ...]:
        """Return the settings of a name, in order."""
        return tuple(setting for setting in self.settings if setting.key == key)

    def last(self, key: str) -> Setting | None:
        """Return the last setting of a name, which is the one that counts; None without one."""
        return next(reversed(self.all(key)), None)

    def value(self, key: str) -> str:
        """Return the value of the last setting of a name, "" without one."""
        found = self.last(key)
        return (found.value or "") if found else ""

    def switch(self, key: str) -> Setting | None:
        """Return the setting that turns a switch on, or None."""
        found = self.last(key)
        return found if found and found.value in {None, "true", "1", "True"} else None

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The device nodes, without the names of CDI devices (`vendor/class=name`)."""
        found = (s for s in self.all("device") if s.value and "=" not in s.value)
        return tuple(Device(colon_parts(setting.value or "")[0], setting.word) for setting in found)

    @cached_property
    def cards(self) -> tuple[int, ...]:
        """The numbers of the NPUs whose nodes are given, ascending."""
        return tuple(sorted({d.card for d in self.devices if d.card is not None}))

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """The mounts, by any option: --volume, --mount, --tmpfs."""
        volumes = [
            Mount(source, rest[0], s.word) if rest else Mount("", source, s.word)
            for s in self.all("volume")
            if s.value
            for source, *rest in [colon_parts(s.value)]
        ]
        mounts = [_mount(s.value, s.word) for s in self.all("mount") if s.value]
        tmpfs = [Mount("", (s.value or "").partition(":")[0], s.word) for s in self.all("tmpfs")]
        return (*volumes, *mounts, *tmpfs)

    @cached_property
    def env(self) -> dict[str, Setting]:
        """Name → variable; its value is None for one that is passed on from the host. The last one of a name counts."""
        found = {}
        for setting in self.all("env"):
            name, equals, value = (setting.value or "").partition("=")
            found[name] = Setting(name, value if equals else None, setting.word)
        return found


def colon_parts(text: str) -> list[str]:
    """Return the parts of `SOURCE:TARGET:MODE`; one may hold what only a shell can fill in."""
    return [match[0] for match in _PART.finditer(text) if match.start() == 0 or text[match.start() - 1] == ":"]


def _mount(text: str, word: str) -> Mount:
    """Read a value of --mount, which is a line of CSV."""
    try:
        parts = next(csv.reader([text], strict=True), [])
    except csv.Error:
        parts = []
    pairs = (part.partition("=") for part in parts)
    fields = {_MOUNT_KEYS.get(name, name): value for name, _, value in pairs}
    return Mount(fields.get("source", ""), fields.get("target", ""), word)


@dataclass(frozen=True)
class ImageName:
    """What the name of an image shows, "" or None for nothing. `ours`: Cannery made it, of `profile` if known."""

    repository: str = ""
    profile: str = ""
    cann: str = ""
    chip: Chip | None = None
    ours: bool = False
    standin: bool = False

    @property
    def ascend(self) -> bool:
        """Whether the image is one for NPUs, as far as its name goes."""
        return bool(self.chip or self.cann) or re.search(r"ascend|cann\b|npu", self.repository) is not None


def read_image_name(image: str, profiles: Names[str] = ()) -> ImageName:
    """Return what the reference `image` shows; `profiles` are those of Cannery."""
    image, holes = _FILLED_IN.subn("x", image)
    try:
        reference = parse_reference(image, "image")
    except UsageError:
        return ImageName(repository=image.partition(":")[0].lower())
    repository, tag = reference.repository, reference.tag.lower()
    name = repository.rpartition("/")[2]
    try:
        found = parse_tag(tag)
    except UsageError:
        chip, cann = (match[1] if (match := one.search(tag)) else "" for one in (_CHIP, _CANN))
        # Some call the A2 a2, and the 950 a5 or by its models (`950dt`).
        family = Chip.A5 if chip.startswith("950") else CHIP_ALIASES.get(chip)
        return ImageName(repository, "", cann, family or (None if holes else _DEFAULT_CHIPS.get(name)))
    ours = name in profiles or bool(found.plan) or found.standin or found.custom or found.forced
    profile, chip_of_tag = name if name in profiles else "", CHIP_ALIASES[found.chip]
    return ImageName(repository, profile, found.cann, chip_of_tag, ours=ours, standin=found.standin)


@dataclass(frozen=True)
class Ground:
    """What is known beside the container itself.

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
        """How containers reach that chip. An unknown chip counts as A2: only the newest differ."""
        return self.ground.chips[self.chip or Chip.A2]

    @cached_property
    def managers(self) -> frozenset[str]:
        """The manager nodes of every chip."""
        return frozenset(node for access in self.ground.chips.values() for node in access.managers)

    @property
    def names_runtime(self) -> bool:
        """Whether --runtime names the ascend runtime: its cards then come in addition to the nodes."""
        return self.container.value("runtime") == "ascend"

    @cached_property
    def runtime(self) -> bool:
        """Whether the ascend runtime brings nodes and driver: it is named, or probably the engine's default runtime."""
        if self.container.value("runtime"):
            return self.names_runtime
        return self.env(RUNTIME_DEVICES) not in {"", "void"} and not self.container.cards

    @property
    def has_open_card(self) -> bool:
        """Whether there is a card whose number a shell, or the reader of a guide, fills in."""
        return any(device.is_open_card for device in self.container.devices)

    @cached_property
    def cdi(self) -> bool:
        """Whether devices are asked for by CDI names (`huawei.com/npu=0`), which bring what their files list."""
        return any("=" in (setting.value or "") for setting in self.container.all("device"))

    @cached_property
    def plugin(self) -> bool:
        """Whether a cluster's device plugin is asked for NPUs: it brings their nodes, and not the driver."""
        return bool(self.container.all("resource"))

    @cached_property
    def nodes_come(self) -> bool:
        """Whether something other than --device brings the nodes of NPUs."""
        return bool(self.container.switch("privileged") or self.runtime or self.cdi or self.plugin)

    @cached_property
    def uses_npu(self) -> bool:
        """Whether nodes of NPUs reach the container."""
        nodes = any(d.card is not None or d.is_open_card or d.source in self.managers for d in self.container.devices)
        is_likely = (self.nodes_come or bool(self.container.opaque)) and self.image.ascend
        return nodes or self.runtime or self.plugin or is_likely

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
        cards = [d.word for d in self.container.devices if d.is_open_card or re.search(r"davinci\W?_?\d", d.source)]
        return next(iter((*cards, *(one.word for one in self.container.all("resource")))), self.container.image)
