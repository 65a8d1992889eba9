"""What the rules look at: a recipe, the catalog it is from, and its locks as far as they are there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.core.catalog import Catalog
    from cannery.core.compatibility import Compatibility
    from cannery.core.lock import Lock, LockedPackage
    from cannery.core.recipe import Recipe
    from cannery.core.words import Arch


@dataclass(frozen=True)
class Subject:
    """One set to judge. `locks` is empty while only the pins are looked at; `build_arch` is None where unknown."""

    recipe: Recipe
    catalog: Catalog
    locks: Mapping[Arch, Lock]
    build_arch: Arch | None = None

    @property
    def table(self) -> Compatibility:
        """The compatibility table."""
        return self.catalog.compatibility

    @property
    def lock(self) -> Lock | None:
        """The lock of the recipe's own arch, when it is there."""
        return self.locks.get(self.recipe.target.arch)

    @property
    def packages(self) -> tuple[LockedPackage, ...]:
        """The packages of that lock; empty while there is none."""
        return self.lock.packages if self.lock else ()

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """Normalised name → version of all that would be installed: the lock's and the sources', else the pins."""
        pinned = {c.package: c.version for c in self.recipe.chosen if c.version}
        if self.lock is None:
            return {**dict(pin.split("==") for pin in self.recipe.pins), **pinned}
        sources = {c.package: c.version for c in self.recipe.sources if c.version}
        return {**sources, **{p.name: p.version for p in self.packages}}

    @cached_property
    def overridden(self) -> Mapping[str, str]:
        """Normalised name → reason of what the profile overrides."""
        return {canonicalize_name(Requirement(o.requirement).name): o.reason for o in self.recipe.profile.overrides}
