"""Targets of images, versions of CANN and of the driver (HDK), and requirements on a target.

CANN and the driver have versions of the same form. `A.B.rcN` are candidates of feature release `A.B`, and `A.B.N` are
its later releases: CANN 8.0.rc1, 8.0.rc2, 8.0.rc3 and 8.0.0 came out in that order. More numbers may follow (a patch:
25.0.rc1.1), then a preview (`alphaN`, `betaN`), then a build (`B160`). A preview is older than its version, a build is
not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.errors import UsageError
from cannery.vocab import ARCH_ALIASES, CHIP_ALIASES, Arch, Chip, parse_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PYTHON = re.compile(r"3\.\d{1,2}", re.ASCII)
OS_NAME = re.compile(r"[a-z][a-z_]*\d+(?:[._]\d+)*", re.ASCII)
WRITTEN = re.compile(
    r"(?P<line>(\d{1,9})\.(\d{1,9})\.(rc)?(\d{1,9})((?:\.\d{1,9})*)(?:\.(alpha|beta)(\d{1,9}))?)(?:\.b(\d{1,9}))?",
    re.ASCII,
)
Key = tuple[tuple[int, ...], ...]


class PackageRequirement(Requirement):
    """A requirement (PEP 508) of a package."""

    @cached_property
    def package(self) -> str:
        """The normalised name of the distribution."""
        return canonicalize_name(self.name)

    @property
    def wanted(self) -> str:
        """The requirement without extras and marker: `torch==2.8.0`."""
        return f"{self.name}{self.specifier}"

    @property
    def exact(self) -> str | None:
        """The only version that it allows (`==2.7.1`); None for a range."""
        parts = (part for part in self.specifier if part.operator in {"==", "==="})
        return next((part.version for part in parts if not part.version.endswith(".*")), None)

    def allows(self, version: str | Version) -> bool:
        """Whether it allows a version. Pre-releases count like any other release."""
        found = parsed_version(version) if isinstance(version, str) else version
        return self.specifier.contains(found, prereleases=True)


# A search of the compatibility table parses the same few hundred versions a million times.
parsed_version, parsed_range = cache(Version), cache(SpecifierSet)
# Profiles share most requirements. Parsed requirements are never changed.
parsed_requirement = cache(PackageRequirement)


@cache
def public_version(version: str) -> Version:
    """Return a version without its local part."""
    found = parsed_version(version)
    return found if found.local is None else Version(found.public)


def is_version(text: str) -> bool:
    """Whether a text is a version of a distribution."""
    try:
        parsed_version(text)
    except ValueError:  # also for a number that is too long for Python
        return False
    return True


def canonical(text: str) -> str:
    """Return a CANN or driver version stripped and in lower case. Raises `ValueError` if it is not one."""
    value = text.strip().lower()
    if not WRITTEN.fullmatch(value):
        raise ValueError(f"{text!r} is not a version of CANN or of a driver")
    return value


@cache
def without_build(text: str) -> str:
    """Return a version without its build (`8.5.0.B160` → `8.5.0`), as in tables, tags and paths.

    A preview is kept: it is older than the release and may differ from it. Any other text is returned unchanged.
    """
    match = WRITTEN.fullmatch(text.strip().lower())
    return match["line"] if match else text


def series_of(version: str) -> str:
    """Return the first two numbers of a version (`25.0.rc1.1` → `25.0`)."""
    return ".".join(version.split(".")[:2])


def order(text: str) -> Key:
    """Return a key that sorts versions: 8.3.rc1 < 8.3.rc2 < 8.3.0 < 8.5.0.alpha1 < 8.5.0 < 8.5.0.b160 < 8.5.1.

    Any other text sorts before all versions, so that it never counts as newer.
    """
    match = WRITTEN.fullmatch(text.strip().lower())
    if not match:
        return ()
    _line, major, minor, candidate, number, patch, stage, preview, build = match.groups()
    numbers = tuple(int(part) for part in patch.split(".") if part)
    # A preview comes before the version of the same number.
    stages = {"alpha": 0, "beta": 1, None: 2}
    release = (int(major), int(minor), 0 if candidate else 1, int(number))
    return release, numbers, (stages[stage], int(preview or 0), int(build or -1))


def distance(one: str, other: str) -> tuple[int, ...]:
    """Return the distance from version `one` to `other`, as a sort key: major, minor, micro and post.

    After the first number that differs, later numbers towards `one` count as nearer: 1.26.4 is nearer to 1.99 than
    1.26.0.
    """
    a, b = parsed_version(one), parsed_version(other)
    pairs = ((a.major, b.major), (a.minor, b.minor), (a.micro, b.micro), (a.post or 0, b.post or 0))
    side = 0
    found = []
    for x, y in pairs:
        found.append(side * y if side else abs(x - y))
        side = side or (y > x) - (y < x)
    return tuple(found)


def package_name(requirement: str) -> str:
    """Return the normalised distribution name of a requirement."""
    return parsed_requirement(requirement).package


def marker_environment(python: str, arch: Arch) -> dict[str, str]:
    """Return all marker variables for Python `X.Y` on Linux. They do not depend on the running Python."""
    full = f"{python}.0"
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": arch.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": python,
        "sys_platform": "linux",
    }


def live(texts: Iterable[str], environment: Mapping[str, str]) -> Iterator[PackageRequirement]:
    """Yield the requirements in `texts` that apply in an environment: without a marker, or with a true one.

    Invalid requirements, which some wheels have, are ignored, as in pip.
    """
    for text in texts:
        try:
            found = parsed_requirement(text)
        except InvalidRequirement:
            continue
        if found.marker is None or found.marker.evaluate(dict(environment)):
            yield found


@dataclass(frozen=True)
class Target:
    """What an image is built for. `cann` is in canonical form (`8.3.rc1`, `8.5.0.b160`), `python` is `major.minor`."""

    cann: str
    chip: Chip
    os: str
    python: str
    arch: Arch

    @property
    def base_tag(self) -> str:
        """The tag of the CANN image for this target: `<cann>-<chip>-<os>-py<python>`, without the build of CANN."""
        return f"{without_build(self.cann)}-{self.chip}-{self.os}-py{self.python}"

    @property
    def words(self) -> dict[str, str]:
        """Each field as a text, for documents about an image."""
        return {one.name: str(getattr(self, one.name)) for one in fields(self)}

    def __str__(self) -> str:
        return f"{self.cann}-{self.chip}-{self.os}-py{self.python}-{self.arch}"


def parse_cann(text: str, option: str = "CANN") -> str:
    """Return a CANN version in canonical form (`8.3.RC1` → `8.3.rc1`). Raises `UsageError` if it is not one."""
    try:
        return canonical(text)
    except ValueError as error:
        hint = "written like 8.5.0, 8.3.rc1 or 8.5.0.B160"
        raise UsageError(f"{option}: {text!r} is not a CANN version", hint=hint) from error


def parse_python(text: str, option: str = "PYTHON") -> str:
    """Return a Python version `3.N`. Raises `UsageError` for any other text."""
    value = text.strip()
    if not PYTHON.fullmatch(value):
        raise UsageError(f"{option}: {text!r} is not a Python version", hint='written like "3.11"')
    return value


def parse_os(text: str, option: str = "OS") -> str:
    """Return an OS name as in CANN tags (`ubuntu22.04`, `openeuler24.03`)."""
    value = text.strip().lower()
    if not OS_NAME.fullmatch(value):
        raise UsageError(f"{option}: {text!r} is not an OS name", hint="written like ubuntu22.04 or openeuler24.03")
    return value


def parse_arch(text: str, option: str = "ARCH") -> Arch:
    """Return the arch that `text` names, as OCI or the kernel writes it."""
    return parse_word(text, ARCH_ALIASES, option)


def parse_chip(text: str, option: str = "CHIP") -> Chip:
    """Return the chip family that `text` names, as tags, product names or npu-smi write it."""
    return parse_word(text, CHIP_ALIASES, option)
