"""What differs between an image and a profile, the heaviest first, and how near the image is to each of several."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from cannery.against.expected import TOOLKIT_HOME
from cannery.against.fit import misfits
from cannery.catalog.compatibility import CANN, PYTHON
from cannery.compat.table import phrase
from cannery.recipe.environment import ATB_HOME, BUILD
from cannery.recipe.select import TORCH, TORCH_NPU

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cannery.against.expected import Expected
    from cannery.against.image import Image

CORE = frozenset({TORCH, TORCH_NPU})
# Local parts of a version that name a build for other hardware; any other (cpu, empty, a commit) is the same package.
ACCELERATOR = re.compile(r"(cu\d+|rocm|xpu)")
TOOLS = frozenset({"pip", "setuptools", "wheel", "uv", "distribute"})
NOT_IN_ENV = "docker exec and Kubernetes read no .bashrc and no set_env.sh"
SHOWN = 8
# What a fact of a profile weighs; a package that others brought weighs 1.
NAMED, HEAVY, CANN_WEIGHT = 5.0, 20.0, 30.0
# What another version still counts: a package that is there at all is nearer than one that is missing.
OTHER_VERSION = 0.25
# How an engine (vllm, sglang ...) that the image has and the profile lacks lowers the nearness.
LACKS_ENGINE = 0.5


class Kind(StrEnum):
    """Kinds of differences, the heaviest first. A `NOTE` does not make an image differ from a profile."""

    UNFIT = "does not fit together"
    BREAKS = "breaks first"
    MISSING = "missing"
    VERSION = "version"
    ENVIRONMENT = "environment"
    NOTE = "note"

    @property
    def matters(self) -> bool:
        """Whether an image with such a difference is another one than the profile's."""
        return self is not Kind.NOTE


@dataclass(frozen=True)
class Difference:
    """One difference: its subject, what is wanted ("" for nothing), what was found, and more about it."""

    kind: Kind
    subject: str
    wanted: str
    found: str
    note: str = ""

    def __str__(self) -> str:
        found = self.found or "not there"
        text = f"{found}, wanted: {self.wanted}" if self.wanted else found
        return f"{self.subject}: {text}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True)
class Comparison:
    """An image against one profile.

    `distance` is 0 where the image has all that the profile names, and 1 where it has nothing; `packages` are (equal,
    all); `extras` are `name version` of packages that the profile does not have.
    """

    expected: Expected
    distance: float
    packages: tuple[int, int]
    cann: tuple[str, str]
    python: tuple[str, str]
    differences: tuple[Difference, ...]
    extras: tuple[str, ...]

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.expected.name

    @property
    def is_equal(self) -> bool:
        """Whether no difference matters."""
        return not any(one.kind.matters for one in self.differences)


def compare(expected: Expected, image: Image) -> Comparison:
    """Compare an image with a profile, and with itself."""
    shares = {name: _share(version, _version(image, name)) for name, version in expected.packages.items()}
    python = expected.recipe.target.python
    agreeing = {name for name, share in shares.items() if share == 1}
    agreeing |= {CANN} if image.toolkit == expected.cann else set()
    agreeing |= {PYTHON} if image.python == python else set()
    differences = [
        *_unfit(expected, image, agreeing),
        *_target(expected, image),
        *_packages(expected, image),
        *_forbidden(expected, image),
        *_environment(expected, image),
    ]
    own = {*expected.packages, *(one.package for one in expected.recipe.chosen)}
    kinds = list(Kind)
    return Comparison(
        expected=expected,
        distance=_distance(expected, image, shares, own),
        packages=(sum(share == 1 for share in shares.values()), len(shares)),
        cann=(image.toolkit, expected.cann),
        python=(image.python, python),
        differences=tuple(sorted(differences, key=lambda one: kinds.index(one.kind))),
        extras=tuple(f"{n} {one.version}" for n, one in sorted(image.packages.items()) if n not in own | TOOLS),
    )


def nearest(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Return comparisons, the nearest first; equally near ones by name."""
    return tuple(sorted(comparisons, key=lambda one: (one.distance, one.name)))


def is_equal(wanted: str, found: str) -> bool:
    """Whether two versions are the same package: equal public parts, and no build for other hardware."""
    try:
        one, other = Version(wanted), Version(found)
    except InvalidVersion:
        return wanted == found
    return Version(one.public) == Version(other.public) and _accelerator(one) == _accelerator(other)


def _accelerator(version: Version) -> str:
    match = ACCELERATOR.match(version.local or "")
    return match[1] if match else ""


def _version(image: Image, name: str) -> str:
    one = image.packages.get(name)
    return (one.version or "?") if one else ""


def _share(wanted: str, found: str) -> float:
    if not found:
        return 0.0
    return 1.0 if is_equal(wanted, found) else OTHER_VERSION


def _distance(expected: Expected, image: Image, shares: dict[str, float], own: set[str]) -> float:
    heavy = CORE | expected.built
    facts = [
        *((HEAVY if name in heavy else NAMED if name in expected.named else 1.0, s) for name, s in shares.items()),
        (CANN_WEIGHT, float(image.toolkit == expected.cann)),
        (HEAVY, float(image.python == expected.recipe.target.python)),
    ]
    near = sum(weight * share for weight, share in facts) / sum(weight for weight, _ in facts)
    lacking = (expected.engines & image.packages.keys()) - own
    return float(1.0 - near * LACKS_ENGINE ** len(lacking))


def _unfit(expected: Expected, image: Image, agreeing: set[str]) -> Iterator[Difference]:
    """Give what does not fit together, without pairs of which both are as in the profile."""
    for one in misfits(image, expected.table):
        if not {one.name, one.other} <= agreeing:
            # Sets that no table has run on other CANNs: a note, as `check` gives a warning.
            kind = Kind.NOTE if one.other == CANN else Kind.UNFIT
            have = phrase(one.other, one.found)
            yield Difference(kind, f"{one.name} {one.version}", phrase(one.other, one.wanted), have, one.source)


def _target(expected: Expected, image: Image) -> Iterator[Difference]:
    target = expected.recipe.target
    if image.toolkit != expected.cann:
        yield Difference(Kind.BREAKS, "CANN", expected.cann, image.toolkit)
    elif image.toolkit:
        for name in sorted(expected.parts):
            if image.cann.get(name, "") != expected.cann:
                yield Difference(Kind.BREAKS, f"CANN's {name}", expected.cann, image.cann.get(name, ""))
    if image.python != target.python:
        yield Difference(Kind.BREAKS, "Python", target.python, image.python or "none that has packages")
    if not expected.is_standin and image.os != target.os:
        yield Difference(Kind.NOTE, "OS", target.os, image.os)


def _packages(expected: Expected, image: Image) -> Iterator[Difference]:
    """Give what differs among packages, those that the profile names before the others."""
    for name, version in sorted(expected.packages.items(), key=lambda item: (item[0] not in expected.named, item[0])):
        found = _version(image, name)
        if not found or not is_equal(version, found):
            kind = Kind.BREAKS if name in CORE else Kind.VERSION if found else Kind.MISSING
            yield Difference(kind, name, version, found, "named by the profile" if name in expected.named else "")


def _forbidden(expected: Expected, image: Image) -> Iterator[Difference]:
    """Give packages that share a folder, and those of the deny list that are not the profile's own."""
    have = image.packages
    for names in expected.table.exclusive:
        if len(both := [name for name in names if name in have]) > 1:
            listed = " and ".join(f"{name} {have[name].version}" for name in both)
            why = "they overwrite each other's files"
            yield Difference(Kind.BREAKS, "one folder for two", "one of them", listed, why)
    for denied in expected.table.denied(have):  # whether a wheel of the index or a source was built, no image shows
        found = [name for name in sorted(have) if fnmatchcase(name, denied.pattern) and name not in expected.packages]
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            yield Difference(Kind.BREAKS, denied.pattern, "none", ", ".join(found[:SHOWN]) + more, denied.reason)


def _environment(expected: Expected, image: Image) -> Iterator[Difference]:
    """Give the profile's variables that the image's ENV does not have or sets otherwise."""
    env = image.config.env
    for name, wanted in expected.env.items():
        found = env.get(name, "")
        if name == ATB_HOME and found:
            mine, other = BUILD.fullmatch(wanted), BUILD.fullmatch(found)
            if mine and other and mine["abi"] != other["abi"]:
                why = "torch_npu has the other C++ ABI: operators of ATB fail to load"
                yield Difference(Kind.BREAKS, ATB_HOME, wanted, found, why)
        elif found != wanted and not (name == TOOLKIT_HOME and found):  # another CANN there is reported already
            note = "" if found else NOT_IN_ENV if name in {TOOLKIT_HOME, ATB_HOME} else "not in ENV"
            yield Difference(Kind.ENVIRONMENT, name, wanted, found, note)
