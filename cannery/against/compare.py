"""An image held against one profile: every difference, and how far apart they are; the nearest of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.against.difference import Difference, in_order
from cannery.against.environment import env_differences, leftover_differences, target_differences
from cannery.against.packages import (
    CORE,
    copy_notes,
    extras,
    forbidden_differences,
    is_equal,
    package_differences,
)
from cannery.against.patches import patch_differences
from cannery.against.sources import State, find_source, source_differences
from cannery.catalog.versions import without_build

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cannery.against.expected import Expected
    from cannery.against.facts import Inventory

# How much each fact of a profile weighs, beside a package that others brought, which weighs 1.
NAMED, CORE_PACKAGE, SOURCE, CANN, PYTHON = 5.0, 20.0, 20.0, 30.0, 20.0
# What another version, or another commit, still counts: what is there at all is nearer than what is not.
OTHER_VERSION = 0.25


@dataclass(frozen=True)
class Comparison:
    """An image against one profile.

    `distance` is 0 where all that the profile names is there as it names it, and 1 where nothing is; `packages` and
    `sources` are (equal, all); `extras` what the image has beside.
    """

    expected: Expected
    distance: float
    packages: tuple[int, int]
    sources: tuple[int, int]
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
        """Whether nothing that matters differs."""
        return not any(one.kind.matters for one in self.differences)


def compare(expected: Expected, inventory: Inventory) -> Comparison:
    """Hold an image against a profile."""
    sources = [find_source(chosen, inventory) for chosen in expected.sources]
    equal = [name for name, version in expected.packages.items() if _share(inventory, name, version) == 1]
    differences = (
        *target_differences(expected, inventory),
        *package_differences(expected, inventory),
        *forbidden_differences(expected, inventory),
        *(one for found in sources for one in source_differences(found)),
        *patch_differences(expected, inventory),
        *env_differences(expected, inventory),
        *leftover_differences(inventory),
        *copy_notes(inventory),
    )
    return Comparison(
        expected=expected,
        distance=_distance(expected, inventory, [found.state for found in sources]),
        packages=(len(equal), len(expected.packages)),
        sources=(sum(found.state in {State.SAME, State.NEAR} for found in sources), len(sources)),
        cann=(inventory.toolkit, without_build(expected.recipe.target.cann)),
        python=(inventory.python.version, expected.recipe.target.python),
        differences=in_order(differences),
        extras=extras(expected, inventory),
    )


def nearest(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Return comparisons, the nearest first; of two that are as near, by name."""
    return tuple(sorted(comparisons, key=lambda one: (one.distance, one.name)))


def _share(inventory: Inventory, name: str, version: str) -> float:
    found = inventory.distributions.get(name)
    if found is None:
        return 0.0
    return 1.0 if is_equal(version, found.version) else OTHER_VERSION


def _distance(expected: Expected, inventory: Inventory, states: Iterable[State]) -> float:
    """Return the share of a profile's weight that the image has not."""
    target = expected.recipe.target
    shares = {State.SAME: 1.0, State.NEAR: 1.0, State.OTHER: OTHER_VERSION, State.MISSING: 0.0}
    facts = [
        *((_weight(expected, name), _share(inventory, name, version)) for name, version in expected.packages.items()),
        *((SOURCE, shares[state]) for state in states),
        (CANN, float(inventory.toolkit == without_build(target.cann))),
        (PYTHON, float(inventory.python.version == target.python)),
    ]
    return 1.0 - sum(weight * share for weight, share in facts) / sum(weight for weight, _ in facts)


def _weight(expected: Expected, name: str) -> float:
    if name in CORE:
        return CORE_PACKAGE
    return NAMED if name in expected.named else 1.0
