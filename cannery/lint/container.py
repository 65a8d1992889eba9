"""What somebody asks an engine or a cluster for, by docker's names, and the remarks on it."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from cannery.compat.subject import Finding
from cannery.host.facts import CARD
from cannery.lint.shell import OPEN, is_open

if TYPE_CHECKING:
    from cannery.vocab import Severity

# How guides write a number that the reader fills in.
_ANY_CARD = re.compile(r"/dev/davinci(?:[NXnx]|\{[^{}]*\})")
# A part between colons; the colons in `$(…)`, `${NAME:-x}` and a placeholder do not end one.
_PART = re.compile(rf"(?:{OPEN}|[^:])*", re.DOTALL)
_MOUNT_KEYS = {"src": "source", "dst": "target", "destination": "target"}


@dataclass(frozen=True)
class Remark:
    """A finding about one word of a command, or one place of a file; `what` names the word."""

    severity: Severity
    code: str
    word: str
    what: str
    why: str
    fix: str

    @property
    def finding(self) -> Finding:
        """The finding alone."""
        return Finding(self.severity, f"run.{self.code}", self.what, self.why, self.fix)


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
        match = CARD.fullmatch(self.source)
        return int(match[1]) if match else None

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


class Variable(NamedTuple):
    """A variable of the container's environment; `value` is None where the host's is handed on."""

    value: str | None
    word: str


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
        """Words that only a shell can read (`$DEVICES`), or other files: they may bring any setting."""
        return tuple(setting.word for setting in self.settings if not setting.key)

    def all(self, key: str) -> tuple[Setting, ...]:
        """Return the settings of a name, in order."""
        return tuple(setting for setting in self.settings if setting.key == key)

    def last(self, key: str) -> Setting | None:
        """Return the setting of a name that counts where it is given twice, or None."""
        return next(reversed(self.all(key)), None)

    def value(self, key: str) -> str:
        """Return the value of that one, "" where there is none."""
        found = self.last(key)
        return (found.value or "") if found else ""

    def switch(self, key: str) -> Setting | None:
        """Return the setting that turns a switch on, or None."""
        found = self.last(key)
        return found if found and found.value in {None, "true", "1", "True"} else None

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The device nodes; names of CDI devices (`vendor/class=name`) are none."""
        found = (s for s in self.all("device") if s.value and "=" not in s.value)
        return tuple(Device(colon_parts(setting.value or "")[0], setting.word) for setting in found)

    @cached_property
    def cards(self) -> tuple[int, ...]:
        """The numbers of the NPUs whose nodes are given, ascending."""
        return tuple(sorted({d.card for d in self.devices if d.card is not None}))

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """What is mounted, of every spelling."""
        volumes = [_volume(s.value, s.word) for s in self.all("volume") if s.value]
        mounts = [_mount(s.value, s.word) for s in self.all("mount") if s.value]
        tmpfs = [Mount("", (s.value or "").partition(":")[0], s.word) for s in self.all("tmpfs")]
        return (*volumes, *mounts, *tmpfs)

    @cached_property
    def env(self) -> dict[str, Variable]:
        """Name → variable; of a name that is given twice, the last."""
        found = {}
        for setting in self.all("env"):
            name, equals, value = (setting.value or "").partition("=")
            found[name] = Variable(value if equals else None, setting.word)
        return found


def colon_parts(text: str) -> list[str]:
    """Return the parts of `SOURCE:TARGET:MODE`; one may hold what only a shell can fill in."""
    return [match[0] for match in _PART.finditer(text) if match.start() == 0 or text[match.start() - 1] == ":"]


def _volume(text: str, word: str) -> Mount:
    source, *rest = colon_parts(text)
    return Mount(source, rest[0], word) if rest else Mount("", source, word)


def _mount(text: str, word: str) -> Mount:
    """Read a value of --mount, which is a line of CSV."""
    try:
        parts = next(csv.reader([text], strict=True), [])
    except csv.Error:
        parts = []
    pairs = (part.partition("=") for part in parts)
    fields = {_MOUNT_KEYS.get(name, name): value for name, _, value in pairs}
    return Mount(fields.get("source", ""), fields.get("target", ""), word)
