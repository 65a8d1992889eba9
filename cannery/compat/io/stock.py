"""Ask the indexes for the releases of a recipe's packages: versions and files; no yanked ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from cannery.compat.stock import Release, Stock
from cannery.lock.files import installable
from cannery.lock.io.indexes import ask_all
from cannery.lock.io.places import bound_places, default_place, extra_places
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cannery.catalog.addresses import Index
    from cannery.catalog.catalog import Catalog
    from cannery.lock.io.indexes import Answer
    from cannery.lock.io.listing import Listed
    from cannery.recipe.recipe import Recipe
    from cannery.util.io.pip_settings import PipSettings
    from cannery.vocab import Arch

# Seconds in which all indexes have answered, or count as not reached.
PATIENCE = 15.0


def make_stock(
    settings: PipSettings, catalog: Catalog, recipe: Recipe, names: Iterable[str], targets: Iterable[tuple[str, Arch]]
) -> Stock:
    """Ask the indexes for the packages `names`; an index that is not reached is a part of the answer."""
    places = _indexes_of(recipe)
    questions = [(name, index) for name in dict.fromkeys(names) for index in places.get(name, (DEFAULT_INDEX,))]
    return ask_stock(questions, catalog.indexes, settings, targets)


def ask_stock(
    questions: Sequence[tuple[str, str]],
    indexes: Mapping[str, Index],
    settings: PipSettings,
    targets: Iterable[tuple[str, Arch]],
) -> Stock:
    """Ask for each (package, index name), all at once.

    Of the default index: the host's main index, and where that has nothing of the package its extra places; of another
    one its own places and the host's extra ones, as for a lock.
    """
    wanted, extras = frozenset(targets), extra_places(settings)
    places = {index: bound_places(index, indexes) for _name, index in questions if index != DEFAULT_INDEX}
    places[DEFAULT_INDEX] = (default_place(settings),)
    asked = dict.fromkeys((place, name) for name, index in questions for place in (*places[index], *extras))
    answers = dict(zip(asked, ask_all([*asked], settings, PATIENCE), strict=True))
    files: dict[str, list[Listed]] = {}
    trouble: dict[str, str] = {}
    for name, index in questions:
        own = [answers[place, name] for place in places[index]]
        found = next((listed for answer in own if (listed := _kept(answer))), ())
        if index != DEFAULT_INDEX or not found:
            found += tuple(file for place in extras for file in _kept(answers[place, name]))
        files.setdefault(name, []).extend(found)
        if not found and not any(answer.reached for answer in own):
            trouble[name] = str(own[0])
    return Stock({name: _releases(listed, wanted) for name, listed in files.items()}, wanted, trouble)


def _kept(answer: Answer) -> tuple[Listed, ...]:
    return tuple(file for file in answer.files if file.yanked is None)


def _releases(files: Iterable[Listed], targets: frozenset[tuple[str, Arch]]) -> tuple[Release, ...]:
    by_version: dict[Version, list[Listed]] = {}
    for file in files:
        by_version.setdefault(Version(file.version), []).append(file)
    return tuple(
        Release(
            version,
            frozenset(target for target in targets if any(_fits(file, *target) for file in mine)),
        )
        for version, mine in by_version.items()
    )


def _fits(file: Listed, python: str, arch: Arch) -> bool:
    """Whether a file can be installed for the target, as it is or after a build; without a range, for any Python."""
    try:
        wanted = SpecifierSet(file.requires_python)
    except InvalidSpecifier:
        wanted = SpecifierSet()
    takes = any(wanted.contains(f"{python}.{patch}") for patch in (0, 20))
    return takes and installable(file.file, python, arch)


def _indexes_of(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Return the indexes that may serve a component, or what is bound with it, at one version or another."""
    found: dict[str, tuple[str, ...]] = {}
    for chosen in recipe.wheels:
        component = chosen.component
        elsewhere = (DEFAULT_INDEX,) if component.index is None or component.index_except else ()
        indexes = tuple(dict.fromkeys(((component.index,) if component.index else ()) + elsewhere))
        found |= {name: indexes for name in component.binds if component.index} | {chosen.package: indexes}
    return found
