"""Target and environment of an image against a profile's: CANN, Python, OS, ATB's ABI, variables, libraries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.against.difference import Difference, Kind
from cannery.against.expected import TOOLKIT_HOME
from cannery.against.system import TOOLKIT
from cannery.catalog.versions import without_build
from cannery.recipe.environment import ATB_HOME, BUILD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.against.expected import Expected
    from cannery.against.facts import Inventory

PRELOAD = "LD_PRELOAD"
NOT_IN_ENV = "docker exec and Kubernetes read no .bashrc and no set_env.sh"


def target_differences(expected: Expected, inventory: Inventory) -> Iterator[Difference]:
    """Give what differs in CANN, its parts, Python, and the OS."""
    target = expected.recipe.target
    cann = without_build(target.cann)
    if inventory.toolkit != cann:
        yield Difference(Kind.BREAKS, "CANN", cann, inventory.toolkit)
    seen = {TOOLKIT}
    for part in inventory.cann:
        if part.name not in seen and part.version != cann:
            yield Difference(Kind.BREAKS, f"CANN's {part.name}", cann, part.version, part.path)
        elif part.name in seen and part.version != inventory.toolkit:
            yield Difference(
                Kind.NOTE, f"another {part.name}", "", f"{part.version} at {part.path}", "not the one in use"
            )
        seen.add(part.name)
    if inventory.toolkit:
        names = {file.name for file in expected.recipe.base.line.version_files}
        for name in sorted(names - seen):
            yield Difference(Kind.BREAKS, f"CANN's {name}", cann, "")
    if inventory.python.version != target.python:
        found = inventory.python.version or "none that has packages"
        yield Difference(Kind.BREAKS, "Python", target.python, found)
    if not expected.is_standin and inventory.os != target.os:
        yield Difference(Kind.NOTE, "OS", target.os, inventory.os)


def env_differences(expected: Expected, inventory: Inventory) -> Iterator[Difference]:
    """Give the profile's variables that the image's ENV has not, or has otherwise."""
    env, seen = inventory.seen.env, inventory.seen
    same_cann = inventory.toolkit == without_build(expected.recipe.target.cann)
    for name, wanted in expected.env.items():
        found = env.get(name, "")
        if name == TOOLKIT_HOME and found and not same_cann:
            continue  # it follows from the CANN, which is said already
        if name == PRELOAD:
            yield from _preload(wanted, found, inventory)
        elif name == ATB_HOME:
            yield from _atb(wanted, found)
        elif not found:
            yield Difference(Kind.ENVIRONMENT, name, wanted, "", NOT_IN_ENV if name == TOOLKIT_HOME else "not in ENV")
        elif found != wanted and not (name == TOOLKIT_HOME and seen.real(found) == seen.real(wanted)):
            yield Difference(Kind.ENVIRONMENT, name, wanted, found)


def _atb(wanted: str, found: str) -> Iterator[Difference]:
    mine, other = BUILD.fullmatch(wanted), BUILD.fullmatch(found)
    if not found:
        yield Difference(Kind.ENVIRONMENT, ATB_HOME, wanted, "", NOT_IN_ENV)
    elif mine and other and mine["abi"] != other["abi"]:
        why = "torch_npu has the other C++ ABI: operators of ATB fail to load"
        yield Difference(Kind.BREAKS, ATB_HOME, wanted, found, why)


def _preload(wanted: str, found: str, inventory: Inventory) -> Iterator[Difference]:
    """A preloaded library may stand anywhere; one that is not there is only warned of by the loader."""
    words = [word for word in re.split(r"[\s:]+", found) if word]
    for word in words:
        if "/" in word and not inventory.seen.has(word):
            yield Difference(
                Kind.ENVIRONMENT, PRELOAD, "a library that is there", word, "the loader goes on without it"
            )
    names = {word.rpartition("/")[2].partition(".so")[0] for word in words}
    for word in wanted.split(":"):
        if word.rpartition("/")[2].partition(".so")[0] not in names:
            there = f"not in ENV; the library is {'there' if inventory.seen.has(word) else 'not there either'}"
            yield Difference(Kind.ENVIRONMENT, PRELOAD, word, there)


def leftover_differences(inventory: Inventory) -> Iterator[Difference]:
    """Give what was left in the image that does not belong there."""
    for one in inventory.leftovers:
        yield Difference(Kind.LEFTOVER, one.what, "", one.where)
