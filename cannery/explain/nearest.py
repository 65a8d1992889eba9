"""Sets near one that does not work: few, those first that change least. Whether one works, only the resolver knows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.version import Version

from cannery.catalog.compatibility import CANN, PYTHON
from cannery.catalog.requirement import package_name
from cannery.catalog.versions import distance
from cannery.compat.solve import upgrader
from cannery.compat.table import holds
from cannery.errors import CanneryError
from cannery.explain.candidate import Candidate
from cannery.explain.profile_items import ItemKind
from cannery.lock.request import lock_request
from cannery.recipe.bounds import held_bounds, same_release
from cannery.recipe.recipe import Options
from cannery.recipe.select import select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.compatibility import Row
    from cannery.explain.conflict import Conflict
    from cannery.explain.profile_items import Item
    from cannery.lock.lock import LockRequest
    from cannery.recipe.recipe import Recipe

# Candidates in all, and of those the rows of the table for this CANN: each is a resolution.
MOST, ROWS = 6, 3
# Of a source: how many of its other known versions.
VERSIONS = 2


def recipe_of(request: LockRequest, catalog: Catalog) -> Recipe | None:
    """Return the recipe that `request` was made from, for its profile's own CANN; None when it is another's.

    What the request asks for beyond the profile are pins of the command line.
    """
    if request.profile not in catalog.profiles:
        return None
    options = Options(python=request.python, arch=str(request.arch), base="cann")
    try:
        plain = select(catalog, request.profile, options, request.arch)
        added = sorted({*request.requirements} - {*lock_request(plain).requirements})
        pins = tuple(f"{r.name}=={_public(r)}" for text in added if (r := Requirement(text)).specifier)
        names = [Requirement(pin).name for pin in pins]
        found = select(catalog, request.profile, replace(options, pins=pins), request.arch, names) if pins else plain
    except CanneryError:
        return None
    return found if lock_request(found) == request else None


def _public(requirement: Requirement) -> str:
    """Return the version of an exact pin as the command line has it: the local part follows from the component."""
    return Version(next(iter(requirement.specifier)).version).public


def candidates(recipe: Recipe, catalog: Catalog, conflict: Conflict) -> tuple[Candidate, ...]:
    """Return at most `MOST` sets: the table's for the recipe's CANN, then one item less, then those of other CANNs."""
    involved = {conflict.name, *(item.name for item in conflict.movers)}
    rows = [found for moved in _row_moves(recipe, catalog, involved) if (found := _moved(recipe, catalog, moved))]
    dropped = [found for item in conflict.movers for found in _without(recipe, catalog, item)]
    dropped += _without_pair(recipe, catalog, conflict.movers)
    others = [
        replace(found, cann=cann)
        for cann, moved in _other_canns(recipe, catalog, involved)
        if (found := _moved(recipe, catalog, moved))
    ]
    unique: dict[tuple[object, ...], Candidate] = {}
    for candidate in (*rows[:ROWS], *dropped, *others):
        unique.setdefault((candidate.moved, candidate.dropped), candidate)
    return tuple(unique.values())[:MOST]


def _row_moves(recipe: Recipe, catalog: Catalog, involved: set[str]) -> list[dict[str, str]]:
    """Return pins to change, by the table's rows for this CANN: what moves together is moved together."""
    table = catalog.compatibility
    solver = upgrader(recipe, catalog)
    found: list[dict[str, str]] = []
    for name in sorted(involved & {*(solver.movable or ())}):
        present = solver.subject.versions[name]
        others = [version for version in solver.known(name) if not same_release(version, present)]
        found += [moved for version in others if (moved := solver.exactly(name, version))]
    found += [_cells(row, recipe) for row in table.rows if row.name in _versions(recipe) and _fits(row, recipe)]
    return _in_order([moved for moved in found if involved & {*moved}], recipe)


def _other_canns(recipe: Recipe, catalog: Catalog, involved: set[str]) -> list[tuple[str, dict[str, str]]]:
    found = [
        (row.fits[CANN], _cells(row, recipe))
        for row in catalog.compatibility.rows
        if row.name in _versions(recipe) and CANN in row.fits and not _fits(row, recipe) and _fits(row, recipe, CANN)
    ]
    ordered = _in_order([moved for _cann, moved in found if involved & {*moved}], recipe)
    return [(next(cann for cann, cells in found if cells == moved), moved) for moved in ordered]


def _fits(row: Row, recipe: Recipe, besides: str = "") -> bool:
    """Whether what a row says of the target, and as ranges of the set, holds; `besides` is not looked at."""
    here = {CANN: recipe.target.cann, PYTHON: recipe.target.python}
    ranges = {name: version for name, version in _versions(recipe).items() if not row.fits.get(name, "0")[0].isdigit()}
    known = {**here, **ranges}
    return all(holds(key, fit, known[key]) for key, fit in row.fits.items() if key in known and key != besides)


def _cells(row: Row, recipe: Recipe) -> dict[str, str]:
    """Return name → version of what a row sets otherwise than the recipe has it."""
    here = _versions(recipe)
    said = {row.name: row.version, **{key: fit for key, fit in row.fits.items() if fit[0].isdigit()}}
    return {key: version for key, version in said.items() if key in here and not same_release(here[key], version)}


def _versions(recipe: Recipe) -> dict[str, str]:
    return {c.package: c.version for c in (*recipe.wheels, *recipe.sources) if c.version}


def _in_order(found: Sequence[dict[str, str]], recipe: Recipe) -> list[dict[str, str]]:
    """Sort by how little is changed: packages, then how far their releases are away."""
    here = _versions(recipe)

    def cost(moved: Mapping[str, str]) -> tuple[int, list[int]]:
        return len(moved), [sum(part) for part in zip(*(distance(here[n], v) for n, v in moved.items()), strict=True)]

    once = {tuple(sorted(moved.items())): moved for moved in found if moved}
    return sorted(once.values(), key=cost)


def _moved(recipe: Recipe, catalog: Catalog, moved: Mapping[str, str]) -> Candidate | None:
    """Pin as `moved` says; None when nothing is known of a source at that version."""
    here = _versions(recipe)
    kept = [pin for pin in recipe.pins if package_name(pin) not in moved]
    pins = (*kept, *(f"{name}=={version}" for name, version in moved.items()))
    try:
        found = _selected(recipe, catalog, pins)
    except CanneryError:
        return None
    changes = tuple((name, Version(here[name]).public, version) for name, version in sorted(moved.items()))
    return Candidate(found, changes)


def _selected(recipe: Recipe, catalog: Catalog, pins: Sequence[str]) -> Recipe:
    target = recipe.target
    options = Options(
        cann=target.cann,
        chip=str(target.chip),
        os=target.os,
        python=target.python,
        arch=str(target.arch),
        # A lock depends on the CANN line, not on the image.
        base="cann",
        pins=tuple(pins),
        force=recipe.force,
    )
    return select(catalog, recipe.name, options, target.arch, [Requirement(pin).name for pin in pins])


def _without(recipe: Recipe, catalog: Catalog, item: Item) -> Iterator[Candidate]:
    """The recipe with one item less, so that the resolver chooses; a source at another version that is known."""
    changed = _less(recipe, catalog, item)
    if changed is not None:
        yield Candidate(changed, dropped=(item,))
    elif item.kind is not ItemKind.TRIAL:
        yield from _other_sources(recipe, catalog, item.name)


def _without_pair(recipe: Recipe, catalog: Catalog, movers: Sequence[Item]) -> Iterator[Candidate]:
    """The recipe without the first two pins: where both are held by others, neither can move alone."""
    pins = [item for item in movers if item.kind in {ItemKind.TRIAL, ItemKind.PIN}][:2]
    changed: Recipe | None = recipe
    for item in pins:
        changed = _less(changed, catalog, item) if changed else None
    if changed is not None and len(pins) > 1:
        yield Candidate(changed, dropped=tuple(pins))


def _less(recipe: Recipe, catalog: Catalog, item: Item) -> Recipe | None:
    """Return the recipe without one item, None when it cannot be without; without `--pin` the profile's own counts."""
    profile = recipe.profile
    pins = tuple(pin for pin in recipe.pins if package_name(pin) != item.name)
    match item.kind:
        case ItemKind.CONSTRAINT:
            kept = tuple(one for one in profile.constraints if one.requirement != item.text)
            return replace(recipe, profile=profile.model_copy(update={"constraints": kept}))
        case ItemKind.OVERRIDE:
            kept = tuple(one for one in profile.overrides if one.requirement != item.text)
            return replace(recipe, profile=profile.model_copy(update={"overrides": kept}))
        case ItemKind.TRIAL:
            return _selected(recipe, catalog, pins)
        case ItemKind.PIN:
            chosen = tuple(replace(c, version=None) if c.package == item.name else c for c in recipe.chosen)
            # An override of the same package would hold it where it is.
            kept = tuple(o for o in profile.overrides if package_name(o.requirement) != item.name)
            free = profile.model_copy(update={"overrides": kept})
            return replace(recipe, profile=free, chosen=chosen, held=held_bounds(chosen, catalog.compatibility))
        case _:
            return None


def _other_sources(recipe: Recipe, catalog: Catalog, name: str) -> Iterator[Candidate]:
    for chosen in recipe.sources:
        if chosen.package != name or not chosen.version:
            continue
        here = chosen.version
        known = {*chosen.component.releases, *(r.version for r in chosen.component.revisions.values())}
        others = [version for version in known if Version(version) != Version(here)]
        for version in sorted(others, key=lambda version: (distance(here, version), version))[:VERSIONS]:
            found = _moved(recipe, catalog, {name: version})
            if found is not None:
                yield found
