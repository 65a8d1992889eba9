"""Targets: what an image is built for, (CANN, chip, OS, Python, arch), parsed once."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from cannery.catalog.versions import canonical, without_build
from cannery.errors import UsageError
from cannery.vocab import ARCH_ALIASES, CHIP_ALIASES, Arch, Chip, parse_word

PYTHON = re.compile(r"3\.\d{1,2}", re.ASCII)
OS_NAME = re.compile(r"[a-z][a-z_]*\d+(?:[._]\d+)*", re.ASCII)


@dataclass(frozen=True)
class Target:
    """What an image is built for. `cann` is canonical lower case (`8.3.rc1`, `8.5.0.b160`), `python` `major.minor`."""

    cann: str
    chip: Chip
    os: str
    python: str
    arch: Arch

    @property
    def base_tag(self) -> str:
        """The tag that CANN images of this target carry: `<cann>-<chip>-<os>-py<python>`; no tag names a build."""
        return f"{without_build(self.cann)}-{self.chip}-{self.os}-py{self.python}"

    @property
    def words(self) -> dict[str, str]:
        """Each field as a text, as documents about an image have it."""
        return {one.name: str(getattr(self, one.name)) for one in fields(self)}

    def __str__(self) -> str:
        return f"{self.cann}-{self.chip}-{self.os}-py{self.python}-{self.arch}"


def parse_cann(text: str, option: str = "CANN") -> str:
    """Return a CANN version in canonical form (`8.3.RC1` → `8.3.rc1`); raise `UsageError` when it is none."""
    try:
        return canonical(text)
    except ValueError as error:
        hint = "written like 8.5.0, 8.3.rc1 or 8.5.0.B160"
        raise UsageError(f"{option}: {text!r} is not a CANN version", hint=hint) from error


def parse_python(text: str, option: str = "PYTHON") -> str:
    """Return a Python version `3.N`; raise `UsageError` for anything else."""
    value = text.strip()
    if not PYTHON.fullmatch(value):
        raise UsageError(f"{option}: {text!r} is not a Python version", hint='written like "3.11"')
    return value


def parse_os(text: str, option: str = "OS") -> str:
    """Return an OS name as the CANN tags write it (`ubuntu22.04`, `openeuler24.03`)."""
    value = text.strip().lower()
    if not OS_NAME.fullmatch(value):
        raise UsageError(f"{option}: {text!r} is not an OS name", hint="written like ubuntu22.04 or openeuler24.03")
    return value


def parse_arch(text: str, option: str = "ARCH") -> Arch:
    """Return the arch that `text` names in OCI's or the kernel's words."""
    return parse_word(text, ARCH_ALIASES, option)


def parse_chip(text: str, option: str = "CHIP") -> Chip:
    """Return the chip family that `text` names in the tags', the market's or npu-smi's words."""
    return parse_word(text, CHIP_ALIASES, option)
