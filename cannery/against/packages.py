"""Packages of an image against a lock's: equal ones, other versions, missing ones, what must not be there, the rest."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from cannery.against.difference import Difference, Kind
from cannery.recipe.bounds import TORCH, TORCH_NPU

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.against.expected import Expected
    from cannery.against.facts import Inventory

CORE = frozenset({TORCH, TORCH_NPU})
# Local parts that name another machine's build; any other (cpu, empty, a commit) is the same package.
ACCELERATOR = re.compile(r"(cu\d+|rocm|xpu)")
# What makes packages: an image may have any of it.
TOOLS = frozenset({"pip", "setuptools", "wheel", "uv", "distribute"})
SHOWN = 8


def is_equal(wanted: str, found: str) -> bool:
    """Whether two versions are the same package: equal public parts, and no build for other accelerators."""
    try:
        one, other = Version(wanted), Version(found)
    except InvalidVersion:
        return wanted == found
    return Version(one.public) == Version(other.public) and _accelerator(one) == _accelerator(other)


def _accelerator(version: Version) -> str:
    match = ACCELERATOR.match(version.local or "")
    return match[1] if match else ""


def package_differences(expected: Expected, inventory: Inventory) -> Iterator[Difference]:
    """Give what differs among packages, those that the profile names before those that they brought."""
    have = inventory.distributions
    wanted = sorted(expected.packages.items(), key=lambda item: (item[0] not in expected.named, item[0]))
    for name, version in wanted:
        found = have.get(name)
        if found is None or not is_equal(version, found.version):
            kind = Kind.MISSING if found is None else Kind.VERSION
            note = "named by the profile" if name in expected.named else ""
            yield Difference(Kind.BREAKS if name in CORE else kind, name, version, found.version if found else "", note)


def forbidden_differences(expected: Expected, inventory: Inventory) -> Iterator[Difference]:
    """Give packages that share a folder, and those of the deny list (CUDA's) that the profile has not itself."""
    have = inventory.distributions
    for names in expected.table.exclusive:
        if len(both := [name for name in names if name in have]) > 1:
            shown = " and ".join(f"{name} {have[name].version}" for name in both)
            yield Difference(
                Kind.BREAKS, "one folder for two", "one of them", shown, "each overwrites the other's files"
            )
    for denied in expected.table.deny:
        found = [name for name in sorted(have) if fnmatchcase(name, denied.pattern) and name not in expected.packages]
        if found:
            yield Difference(Kind.BREAKS, denied.pattern, "none", _some(found), denied.reason)


def copy_notes(inventory: Inventory) -> Iterator[Difference]:
    """Give what stands in the image twice: a package in two folders of one Python, torch in two Pythons."""
    for one in inventory.python.shadowed:
        other = inventory.distributions[one.name]
        if other.version != one.version:
            words = f"{other.version} in {other.site} hides {one.version} in {one.site}"
            yield Difference(Kind.NOTE, f"{one.name} twice", "", words)
    for python in inventory.pythons[1:]:
        if TORCH in python.distributions:
            words = f"Python {python.version} of {python.prefix} has torch {python.distributions[TORCH].version} too"
            yield Difference(Kind.NOTE, "another Python", "", words)


def extras(expected: Expected, inventory: Inventory) -> tuple[str, ...]:
    """Return `name version` of what is there beside the profile's packages and sources."""
    known = {*expected.packages, *TOOLS, *(one.package for one in expected.recipe.chosen)}
    return tuple(f"{n} {one.version}" for n, one in sorted(inventory.distributions.items()) if n not in known)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
