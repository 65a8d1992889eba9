"""A set near one that does not work, whether what the resolver makes of it is an offer, and the offer in words."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.version import Version

from cannery.catalog.compatibility import CANN, PYTHON
from cannery.catalog.requirement import package_name
from cannery.compat.table import holds
from cannery.explain.profile_items import ItemKind
from cannery.lock.request import lock_request
from cannery.recipe.bounds import rows_for

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.explain.profile_items import Item
    from cannery.lock.lock import LockRequest
    from cannery.recipe.recipe import Recipe


@dataclass(frozen=True)
class Candidate:
    """A set to try: pins that `moved` (name, old version, new one), or items that are `dropped`.

    `cann` is the CANN that the set is made for, "" for that of the recipe.
    """

    recipe: Recipe
    moved: tuple[tuple[str, str, str], ...] = ()
    dropped: tuple[Item, ...] = ()
    cann: str = ""

    @property
    def request(self) -> LockRequest:
        """What the resolver is asked."""
        return lock_request(self.recipe)


def objection(candidate: Candidate, catalog: Catalog, answer: Mapping[str, str]) -> str:
    """Say why a set that the resolver found is no offer; "" when it is one. `answer` is name → version."""
    for pattern in (denied.pattern for denied in catalog.compatibility.deny):
        found = next((name for name in answer if fnmatchcase(name, pattern)), None)
        if found:
            return f"{found} comes in"
    known = {
        **{c.package: c.version for c in candidate.recipe.sources if c.version},
        **answer,
        CANN: candidate.cann or candidate.recipe.target.cann,
        PYTHON: candidate.recipe.target.python,
    }
    free = {package_name(o.requirement) for o in candidate.recipe.profile.overrides}
    changed = {*(name for name, _old, _new in candidate.moved), *(item.name for item in candidate.dropped)}
    for name, version in answer.items():
        rows = rows_for(catalog.compatibility, name, version)
        # What stands as before is not judged anew: the rules have done that.
        judged = [{k: fit for k, fit in r.fits.items() if name in changed or k in changed} for r in rows]
        if judged and not any(_agree(cells, known, free) for cells in judged):
            return f"{name} {version} is made for something else"
    return ""


def _agree(cells: Mapping[str, str], known: Mapping[str, str], free: Collection[str]) -> bool:
    return all(holds(key, fit, known[key]) for key, fit in cells.items() if key in known and key not in free)


def offer(candidate: Candidate, catalog: Catalog, answer: Mapping[str, str]) -> str:
    """Return a set that works in words: `tokenizers 0.21.4 instead of 0.20.3`; "" when nothing became otherwise."""
    words = [f"{name} {new} instead of {old}" for name, old, new in candidate.moved]
    words += [text for item in candidate.dropped if (text := _without(item, catalog, answer))]
    return " and ".join(words) + (f" (made for CANN {candidate.cann})" if candidate.cann else "")


def _without(item: Item, catalog: Catalog, answer: Mapping[str, str]) -> str:
    found = _public(answer[item.name]) if item.name in answer else ""
    if item.kind in {ItemKind.CONSTRAINT, ItemKind.OVERRIDE}:
        return f"{item.name} {found} without the {item}" if found else f"no {item}"
    (bound,) = Requirement(f"{item.name}{item.wanted}").specifier
    if not found or found == _public(bound.version):
        return ""
    in_table = any(row.name == item.name for row in catalog.compatibility.rows)
    unknown = in_table and not rows_for(catalog.compatibility, item.name, found)
    return (
        f"{item.name} {found} instead of {_public(bound.version)}{', which no row of the table has' if unknown else ''}"
    )


def _public(version: str) -> str:
    return Version(version).public
