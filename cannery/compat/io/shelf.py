"""What the indexes have of a recipe's packages, for the targets that have to fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.compat.stock import Newest
from cannery.lock.io.releases import list_releases
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from packaging.specifiers import SpecifierSet

    from cannery.catalog.catalog import Catalog
    from cannery.lock.io.releases import Releases
    from cannery.recipe.recipe import Recipe
    from cannery.util.io.pip_settings import PipSettings
    from cannery.vocab import Arch


@dataclass(frozen=True)
class Shelf:
    """The releases of packages by name, from each index that may serve one; `targets` are (Python, arch) pairs.

    An index that could not be asked may have anything, so `has` is true for it: the resolver decides.
    """

    found: Mapping[str, tuple[Releases, ...]]
    targets: tuple[tuple[str, Arch], ...]

    def has(self, name: str, version: str) -> bool:
        """Whether an index has files of a release for every target."""
        lists = self.found.get(name, ())
        return any(r.trouble for r in lists) or any(
            all(r.has(version, *target) for target in self.targets) for r in lists
        )

    def spelt(self, name: str, version: str) -> str:
        """Return a version as the index that has it writes it; as it is given where none has."""
        return next((text for r in self.found.get(name, ()) if (text := r.spelt(version))), version)

    def newest(self, name: str) -> Newest:
        """Return the newest release of all."""
        versions = [r.newest for r in self.found.get(name, ()) if r.newest is not None]
        if not versions:
            return Newest()
        version = str(max(versions))
        return Newest(version, self.has(name, version))

    def newest_for(self, name: str, allowed: SpecifierSet) -> str | None:
        """Return the newest allowed release that has files for every target, without its local part; None without."""
        versions = [v for r in self.found.get(name, ()) if (v := r.newest_for(self.targets, allowed)) is not None]
        return max(versions).public if versions else None

    def uploaded(self, name: str, version: str) -> str:
        """Return the day on which the last file of a release came; "" where no index has it."""
        return max((r.uploaded(version) for r in self.found.get(name, ())), default="")

    def trouble(self, name: str) -> str:
        """Say which index of a package could not be asked; "" when all were."""
        return next((r.trouble for r in self.found.get(name, ()) if r.trouble), "")

    @property
    def troubles(self) -> tuple[str, ...]:
        """Which indexes could not be asked, each once."""
        return tuple(dict.fromkeys(r.trouble for lists in self.found.values() for r in lists if r.trouble))


def make_shelf(
    settings: PipSettings, catalog: Catalog, recipe: Recipe, names: Iterable[str], targets: Iterable[tuple[str, Arch]]
) -> Shelf:
    """Ask the indexes for the packages `names`."""
    places = _indexes_of(recipe)
    wanted = {name: places.get(name, (DEFAULT_INDEX,)) for name in names}
    answers = list_releases(
        ((index, name) for name, indexes in wanted.items() for index in indexes), catalog.indexes, settings
    )
    found = {name: tuple(answers[index, name] for index in indexes) for name, indexes in wanted.items()}
    return Shelf(found, tuple(targets))


def _indexes_of(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Return the indexes that may serve a component, or what is bound with it, at one version or another."""
    found: dict[str, tuple[str, ...]] = {}
    for chosen in recipe.wheels:
        component = chosen.component
        elsewhere = (DEFAULT_INDEX,) if component.index is None or component.index_except else ()
        indexes = tuple(dict.fromkeys(((component.index,) if component.index else ()) + elsewhere))
        found |= {name: indexes for name in component.binds if component.index} | {chosen.package: indexes}
    return found
