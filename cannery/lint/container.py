"""A container in terms of docker's options, the facts in the name of its image, and remarks."""

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
# Parts that only a shell can evaluate, or that a reader has to fill in.
OPEN = rf"{OUTPUT}|\$\{{[^{{}}]*\}}|`[^`]*`|<\w(?:[\w .:/-]*\w)?>"
# A card in a guide whose number the reader fills in.
_ANY_CARD = re.compile(r"/dev/davinci(?:[NXnx]|\{[^{}]*\})")
# A part between colons. Colons in `$(…)`, `${NAME:-x}` and placeholders do not separate.
_PART = re.compile(rf"(?:{OPEN}|[^:])*", re.DOTALL)
_MOUNT_KEYS = {"src": "source", "dst": "target", "destination": "target"}
DRIVER = "/usr/local/Ascend/driver"
# Nodes that only the 950 has (vllm-ascend, its page on A5).
NEW_NODES = frozenset({"/dev/ummu", "/dev/uburma"})
RUNTIME_DEVICES, VISIBLE = "ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"
_CHIP = re.compile(r"(?:^|[-_])(910b|a2|a3|310p|a5|950[a-z]*)(?=[-_]|$)")
_CANN = re.compile(r"(?:^|[-_])(?:cann)?(\d+\.\d+\.(?:rc\d+|\d+))(?=[-_])")
# A placeholder in a tag: `{{ version }}`, `<version>`, `$VERSION`. It is not the whole image.
_FILLED_IN = re.compile(r"(?<=[\w:/.-])(?:\{\{?[^{}]*\}?\}|<[^<>]*>|\$\{\w+\}|\$\w+)")
# Repositories whose tags name only other chips (vllm-ascend: v0.11.0rc1, v0.11.0rc1-a3, …-310p).
_DEFAULT_CHIPS = {"vllm-ascend": Chip.A2}


def is_open(text: str) -> bool:
    """Whether a part of `text` has to be evaluated by a shell, or filled in by a reader."""
    return re.search(rf"\$[\w@*]|{OPEN}", text, re.DOTALL) is not None


@dataclass(frozen=True)
class Remark(Finding):
    """A finding about one word of a command or one place in a file. `what` names the word."""

    word: str = ""


class Setting(NamedTuple):
    """One setting: the long name of the docker option, its value (None for a switch), and its text in messages."""

    key: str
    value: str | None
    word: str


class Device(NamedTuple):
    """A device node, by its path on the host."""

    source: str
    word: str

    @property
    def card(self) -> int | None:
        """The number of an NPU; None for any other node."""
        return card_of(self.source)

    @property
    def is_open_card(self) -> bool:
        """Whether it is the node of an NPU with a placeholder as number: `/dev/davinci$i`, `/dev/davinciN`."""
        is_any = is_open(self.source) or _ANY_CARD.fullmatch(self.source)
        return self.source.startswith("/dev/davinci") and bool(is_any)


class Mount(NamedTuple):
    """A mount: `source` is a path of the host, the name of a volume, or "" (tmpfs, anonymous volume)."""

    source: str
    target: str
    word: str

    def gives(self, path: str) -> bool:
        """Whether it makes the host's `path` available at the same path in the container."""
        outside = self.source.rstrip("/") + path[len(self.target.rstrip("/")) :]
        return bool(self.source and self.target) and self.hides(path) and outside == path

    def hides(self, path: str) -> bool:
        """Whether it hides the image's content at `path`."""
        target = self.target.rstrip("/")
        return path == target or path.startswith(f"{target}/")


@dataclass(frozen=True)
class Container:
    """One container. `where` is its place in a file, `line` is the first line of its command in a text.

    `is_pod`: it is part of a Kubernetes Pod. `misread` are remarks on words that docker reads in another way than
    intended.
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
        """Words that only a shell can evaluate (`$DEVICES`), and other files. They may have any setting."""
        return tuple(setting.word for setting in self.settings if not setting.key)

    def all(self, key: str) -> tuple[Setting, ...]:
        """Return the settings with the name `key`, in order."""
        return tuple(setting for setting in self.settings if setting.key == key)

    def last(self, key: str) -> Setting | None:
        """Return the last setting with the name `key`, which is the effective one; None if there is none."""
        return next(reversed(self.all(key)), None)

    def value(self, key: str) -> str:
        """Return the value of the last setting with the name `key`, or ""."""
        found = self.last(key)
        return (found.value or "") if found else ""

    @property
    def privileged(self) -> Setting | None:
        """The setting that makes the container privileged, or None."""
        found = self.last("privileged")
        return found if found and found.value in {None, "true", "1", "True"} else None

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The device nodes, without the names of CDI devices (`vendor/class=name`)."""
        found = (s for s in self.all("device") if s.value and "=" not in s.value)
        return tuple(Device(colon_parts(setting.value or "")[0], setting.word) for setting in found)

    @cached_property
    def cards(self) -> tuple[int, ...]:
        """The numbers of the mapped NPUs, ascending."""
        return tuple(sorted({d.card for d in self.devices if d.card is not None}))

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """The mounts of --volume, --mount and --tmpfs."""
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
        """Name → variable. The value is None if it is taken from the host. The last one of a name counts."""
        found = {}
        for setting in self.all("env"):
            name, equals, value = (setting.value or "").partition("=")
            found[name] = Setting(name, value if equals else None, setting.word)
        return found


def colon_parts(text: str) -> list[str]:
    """Return the parts of `SOURCE:TARGET:MODE`. Parts that only a shell can evaluate are kept as they are."""
    return [match[0] for match in _PART.finditer(text) if match.start() == 0 or text[match.start() - 1] == ":"]


def _mount(text: str, word: str) -> Mount:
    """Read a value of --mount, which is a row of CSV."""
    try:
        parts = next(csv.reader([text], strict=True), [])
    except csv.Error:
        parts = []
    pairs = (part.partition("=") for part in parts)
    fields = {_MOUNT_KEYS.get(name, name): value for name, _, value in pairs}
    return Mount(fields.get("source", ""), fields.get("target", ""), word)


@dataclass(frozen=True)
class ImageName:
    """Facts in the name of an image, "" or None if unknown. `is_cannery`: Cannery made it, from `profile` if known."""

    repository: str = ""
    profile: str = ""
    cann: str = ""
    chip: Chip | None = None
    is_cannery: bool = False
    standin: bool = False

    @property
    def ascend(self) -> bool:
        """Whether the name shows that the image is for NPUs."""
        return bool(self.chip or self.cann) or re.search(r"ascend|cann\b|npu", self.repository) is not None


def read_image_name(image: str, profiles: Names[str] = ()) -> ImageName:
    """Return the facts in the reference `image`; `profiles` are those of Cannery."""
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
        # Some tags call the A2 a2, and the 950 a5 or by its models (`950dt`).
        family = Chip.A5 if chip.startswith("950") else CHIP_ALIASES.get(chip)
        return ImageName(repository, "", cann, family or (None if holes else _DEFAULT_CHIPS.get(name)))
    is_cannery = name in profiles or bool(found.plan) or found.standin or found.custom or found.forced
    profile, chip_of_tag = name if name in profiles else "", CHIP_ALIASES[found.chip]
    return ImageName(repository, profile, found.cann, chip_of_tag, is_cannery=is_cannery, standin=found.standin)


@dataclass(frozen=True)
class Ground:
    """Facts besides the container.

    `shm` is the shared memory of each profile. `chip` and `arch` are those of the host that will run it, if the user
    names them.
    """

    chips: Mapping[str, ChipAccess]
    shm: Mapping[str, str] = field(default_factory=dict)
    chip: Chip | None = None
    arch: Arch | None = None


@dataclass(frozen=True)
class Case:
    """A container to check."""

    container: Container
    ground: Ground

    @cached_property
    def image(self) -> ImageName:
        """The facts in the image's name."""
        return read_image_name(self.container.image, self.ground.shm)

    @property
    def chip(self) -> Chip | None:
        """The chip of the image, else of the host, else the 950 if a node is mapped that only it has."""
        of_new = any(device.source in NEW_NODES for device in self.container.devices)
        return self.image.chip or self.ground.chip or (Chip.A5 if of_new else None)

    @cached_property
    def access(self) -> ChipAccess:
        """The device nodes and paths of that chip. An unknown chip counts as A2: only the newest chips differ."""
        return self.ground.chips[self.chip or Chip.A2]

    @cached_property
    def managers(self) -> frozenset[str]:
        """The manager nodes of every chip."""
        return frozenset(node for access in self.ground.chips.values() for node in access.managers)

    @property
    def names_runtime(self) -> bool:
        """Whether --runtime names the ascend runtime. Its cards are then added to the mapped nodes."""
        return self.container.value("runtime") == "ascend"

    @cached_property
    def runtime(self) -> bool:
        """Whether the ascend runtime adds nodes and driver: it is named, or it is probably the default runtime."""
        if self.container.value("runtime"):
            return self.names_runtime
        return self.env(RUNTIME_DEVICES) not in {"", "void"} and not self.container.cards

    @property
    def has_open_card(self) -> bool:
        """Whether a card has a placeholder as number."""
        return any(device.is_open_card for device in self.container.devices)

    @cached_property
    def cdi(self) -> bool:
        """Whether devices have CDI names (`huawei.com/npu=0`). Their CDI files list all that they add."""
        return any("=" in (setting.value or "") for setting in self.container.all("device"))

    @cached_property
    def plugin(self) -> bool:
        """Whether NPUs are requested from a cluster's device plugin. It adds their nodes, but not the driver."""
        return bool(self.container.all("resource"))

    @cached_property
    def nodes_come(self) -> bool:
        """Whether something other than --device adds the nodes of NPUs."""
        return bool(self.container.privileged or self.runtime or self.cdi or self.plugin)

    @cached_property
    def uses_npu(self) -> bool:
        """Whether the container gets nodes of NPUs."""
        nodes = any(d.card is not None or d.is_open_card or d.source in self.managers for d in self.container.devices)
        is_likely = (self.nodes_come or bool(self.container.opaque)) and self.image.ascend
        return nodes or self.runtime or self.plugin or is_likely

    @cached_property
    def unread(self) -> str:
        """A text for messages about missing settings, if a part of the container could not be read; else ""."""
        opaque = self.container.opaque
        return f" (unless {' '.join(opaque)} brings it)" if opaque else ""

    def env(self, name: str) -> str:
        """Return the value of a variable; "" if it is not set or is taken from the host."""
        found = self.container.env.get(name)
        return (found.value or "") if found else ""

    def gives(self, path: str) -> bool:
        """Whether a mount makes the host's `path` available at the same path."""
        return any(mount.gives(path) for mount in self.container.mounts)

    def first_card(self) -> str:
        """Return the word that messages about missing settings name: the first card, or else the image."""
        cards = [d.word for d in self.container.devices if d.is_open_card or re.search(r"davinci\W?_?\d", d.source)]
        return next(iter((*cards, *(one.word for one in self.container.all("resource")))), self.container.image)
