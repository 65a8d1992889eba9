"""A set near one that does not work, whether what the resolver makes of it is an offer, and the offer in words."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.core.held import same_release
from cannery.core.lock_request import lock_request
from cannery.core.profile_items import ItemKind
from cannery.core.rules.table import CANN, PYTHON, holds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cannery.core.catalog import Catalog
    from cannery.core.compatibility import Row
    from cannery.core.lock import LockRequest
    from cannery.core.profile_items import Item
    from cannery.core.recipe import Recipe


@dataclass(frozen=True)
class Candidate:
    """A set to try: pins that `moved` (name, old version, new one), or one item that is `dropped`.

    `cann` is the CANN that the set is made for, "" for that of the recipe.
    """

    recipe: Recipe
    moved: tuple[tuple[str, str, str], ...] = ()
    dropped: Item | None = None
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
    free = {canonicalize_name(Requirement(o.requirement).name) for o in candidate.recipe.profile.overrides}
    for name, version in answer.items():
        rows = _rows_of(catalog, name, version)
        agreeing = [row for row in rows if _agrees(row, known, free)]
        if rows and not agreeing:
            return f"{name} {version} is made for something else"
    return ""


def _rows_of(catalog: Catalog, name: str, version: str) -> list[Row]:
    return [row for row in catalog.compatibility.rows if row.name == name and same_release(row.version, version)]


def _agrees(row: Row, known: Mapping[str, str], free: Collection[str]) -> bool:
    return all(holds(key, fit, known[key]) for key, fit in row.fits.items() if key in known and key not in free)


def offer(candidate: Candidate, catalog: Catalog, answer: Mapping[str, str]) -> str:
    """Return a set that works in words: `tokenizers 0.21.4 instead of 0.20.3`; "" when nothing became otherwise."""
    item = candidate.dropped
    if item is None:
        words = " and ".join(f"{name} {new} instead of {old}" for name, old, new in candidate.moved)
        return words + (f" (made for CANN {candidate.cann})" if candidate.cann else "")
    found = _public(answer.get(item.name, "0"))
    if item.kind in {ItemKind.CONSTRAINT, ItemKind.OVERRIDE}:
        return f"no {item}; then {item.name} {found} comes in"
    old = _public(next(iter(Requirement(f"{item.name}{item.wanted}").specifier)).version)
    if item.name not in answer or found == old:
        return ""
    unknown = {row.name for row in catalog.compatibility.rows} & {item.name}
    is_known = not unknown or _rows_of(catalog, item.name, found)
    return f"{item.name} {found} instead of {old}" + ("" if is_known else ", which no row of the table has")


def _public(version: str) -> str:
    return Version(version).public
