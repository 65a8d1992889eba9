"""Cannery's closed lists of words (architectures, chips, kinds), and the names that other tools use for them."""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Arch(StrEnum):
    """CPU architecture, as OCI names it."""

    AMD64 = "amd64"
    ARM64 = "arm64"

    @property
    def machine(self) -> str:
        """The name in `uname -m` and in wheel platform tags."""
        return {Arch.AMD64: "x86_64", Arch.ARM64: "aarch64"}[self]

    @property
    def platform(self) -> str:
        """The OCI platform, `os/arch`."""
        return f"linux/{self}"

    @property
    def emulation(self) -> str:
        """The commands that let a Debian or Ubuntu of another architecture run programs of this one, by QEMU.

        The packages' service, which registers it, does not start in a container or small VM without a service manager,
        or if `policy-rc.d` denies it (seen on Debian 12).
        """
        return f"apt-get install qemu-user-static binfmt-support && update-binfmts --enable qemu-{self.machine}"


class Chip(StrEnum):
    """Ascend chip family, as the tags of CANN images name it."""

    A2 = "910b"
    A3 = "a3"
    P310 = "310p"
    A1 = "910"
    A5 = "950"


class BaseKind(StrEnum):
    """The kind of the base image: a CANN image, Cannery's stand-in for one, or an image that the user names."""

    REAL = "real"
    STANDIN = "standin"
    CUSTOM = "custom"


class ComponentKind(StrEnum):
    """How a component is installed."""

    WHEELS = "wheels"
    SYSTEM = "system"
    SOURCE = "source"
    NATIVE = "native"

    @property
    def is_package(self) -> bool:
        """Whether it is a Python distribution, which locks, pins and requirements can name."""
        return self is ComponentKind.WHEELS or self.is_source

    @property
    def is_source(self) -> bool:
        """Whether it comes from a git repository (or a release of one) and has its own install step."""
        return self in {ComponentKind.SOURCE, ComponentKind.NATIVE}


class Install(StrEnum):
    """How a source is installed: as a wheel, as an editable install, or as a tree on PYTHONPATH."""

    WHEEL = "wheel"
    EDITABLE = "editable"
    TREE = "tree"


class RunFormat(StrEnum):
    """The format in which `run` prints a container: a command, or a file for Compose or Kubernetes."""

    DOCKER = "docker"
    COMPOSE = "compose"
    POD = "pod"
    JOB = "job"
    RAYCLUSTER = "raycluster"
    RAYJOB = "rayjob"

    @property
    def is_local(self) -> bool:
        """Whether it runs on one host, not in a cluster."""
        return self in {RunFormat.DOCKER, RunFormat.COMPOSE}

    @property
    def is_ray(self) -> bool:
        """Whether KubeRay starts a cluster for it."""
        return self in {RunFormat.RAYCLUSTER, RunFormat.RAYJOB}


class Severity(StrEnum):
    """The severity of a finding: an error stops the command, a warning and a note are only printed."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


ARCH_ALIASES: Mapping[str, Arch] = {
    "amd64": Arch.AMD64,
    "x86_64": Arch.AMD64,
    "x86-64": Arch.AMD64,
    "arm64": Arch.ARM64,
    "aarch64": Arch.ARM64,
}

# The models of each family, as npu-smi prints them; CANN and native builds add the prefix `ascend`. They are from
# vllm-ascend's setup.py and torch_npu's NpuVariables.cpp. CANN calls one chip of the first family Ascend910B; that name
# is left out, because 910b in tags is another family.
CHIP_MODELS: Mapping[Chip, tuple[str, ...]] = {
    Chip.A2: ("910b1", "910b2", "910b2c", "910b3", "910b4", "910b4-1"),
    Chip.A3: ("910_9362", "910_9363", "910_9372", "910_9381", "910_9382", "910_9391", "910_9392"),
    Chip.P310: ("310p1", "310p2", "310p3", "310p4", "310p5", "310p7"),
    Chip.A1: ("910a", "910proa", "910prob", "910premiuma"),
    Chip.A5: ("950", "950dt", "950pr", "950dt_9582"),
}
# Names of chips: the tags' words, models, families and products.
CHIP_ALIASES: Mapping[str, Chip] = {
    **{chip.value: chip for chip in Chip},
    **{
        f"{prefix}{model}": chip
        for chip, models in CHIP_MODELS.items()
        for model in models
        for prefix in ("", "ascend")
    },
    "a2": Chip.A2,
    # vllm-ascend's name, and Cannery's before 0.2.0.
    "a5": Chip.A5,
    "910_93": Chip.A3,
    "910c": Chip.A3,
    "300i": Chip.P310,
}

T = TypeVar("T")


# What `clean` removes, the least needed first.
CLEAN_KINDS = (
    *("trials", "builds", "unpacked", "images", "wheels", "layers", "rootfs", "sources", "locks", "verified", "out"),
    "buildkit",
)


def nearest(word: str, known: Iterable[str], *, count: int = 3, likeness: float = 0.6) -> tuple[str, ...]:
    """Return up to `count` of `known` that are spelt most like `word`, best first.

    `likeness` is the lowest accepted similarity: 1 is equal, 0 has nothing in common.
    """
    return tuple(difflib.get_close_matches(word, list(known), n=count, cutoff=likeness))


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the hint for a word that is not in a list: the nearest words, or else `otherwise` or all words."""
    words = sorted(known)
    close = nearest(word, words)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return otherwise or (f"known: {', '.join(words)}" if words else "there are none")


def parse_word(text: str, aliases: Mapping[str, T], option: str) -> T:
    """Look up `text` in `aliases`, ignoring case; raise `UsageError` with `option` and the nearest values."""
    found = aliases.get(text.strip().lower())
    if found is None:
        close = dict.fromkeys(str(aliases[word]) for word in nearest(text.lower(), aliases))
        known = ", ".join(dict.fromkeys(str(value) for value in aliases.values()))
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {known}"
        raise UsageError(f"{option}: {text!r} is not known", hint=hint)
    return found


DEFAULT_INDEX = "default"


_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmgtp]?)i?b?", re.IGNORECASE)


def size_bytes(text: str) -> int | None:
    """Return the bytes of a size as docker writes it, 1024-based (`16g`, `512MB`, `1024`); None for any other text."""
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * 1024 ** " kmgtp".index(match[2].lower() or " ")) if match else None
