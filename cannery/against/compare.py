"""What differs between an image and a profile, the heaviest first, and how near the image is to each of several."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from cannery.against.expected import TOOLKIT_HOME
from cannery.against.fit import Difference, Kind, misfits
from cannery.catalog.compatibility import CANN, PYTHON
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


@dataclass(frozen=True)
class Comparison:
    """An image against one profile: its differences, and what of the profile's packages the image has as it wants."""

    expected: Expected
    image: Image
    equal: frozenset[str]
    differences: tuple[Difference, ...]

    @property
    def is_equal(self) -> bool:
        """Whether no difference matters."""
        return not any(one.kind.matters for one in self.differences)

    @property
    def _own(self) -> set[str]:
        return {*self.expected.packages, *(one.package for one in self.expected.recipe.chosen)}

    @property
    def extras(self) -> tuple[str, ...]:
        """`name version` of packages that the profile does not have."""
        packages = sorted(self.image.packages.items())
        return tuple(f"{name} {one.version}" for name, one in packages if name not in self._own | TOOLS)

    @property
    def distance(self) -> tuple[int, float]:
        """How far the image is: engines (vllm, sglang ...) that the profile lacks; the share of it that differs."""
        lacking = (self.expected.engines & self.image.packages.keys()) - self._own
        count = len(self.expected.packages) + 2
        place = (self.image.toolkit == self.expected.cann) + (self.image.python == self.expected.recipe.target.python)
        return len(lacking), 1 - (len(self.equal) + place) / count


def compare(expected: Expected, image: Image) -> Comparison:
    """Compare an image with a profile, and with itself."""
    equal = {name for name, version in expected.packages.items() if is_equal(version, _version(image, name))}
    settled = equal | ({CANN} if image.toolkit == expected.cann else set())
    settled |= {PYTHON} if image.python == expected.recipe.target.python else set()
    differences = [
        *misfits(image, expected.table, settled),
        *_target(expected, image),
        *_packages(expected, image),
        *_forbidden(expected, image),
        *_environment(expected, image),
    ]
    kinds = list(Kind)
    ordered = sorted(differences, key=lambda one: kinds.index(one.kind))
    return Comparison(expected, image, frozenset(equal), tuple(ordered))


def nearest(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Return comparisons, the nearest first; equally near ones by name."""
    return tuple(sorted(comparisons, key=lambda one: (one.distance, one.expected.name)))


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
