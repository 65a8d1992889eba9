"""Where pins can move by the compatibility table: the newest releases that fit each other and the target.

torch, torch_npu, torchvision and what is built on them move together: a release of one is a row that names versions of
the others. What the profile overrides or takes from git stays where it is, and so does every pin that need not move.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.compatibility import CANN, DRIVER, PYTHON
from cannery.catalog.requirement import package_name
from cannery.compat.table import holds, weight
from cannery.recipe.bounds import held_bounds, rows_for, same_release

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.compatibility import Compatibility, Row
    from cannery.recipe.recipe import Recipe


class PinMoves:
    """The pins of one recipe, and where the table lets them go.

    `pythons` are those that have to fit; `has` says whether an index has a release (name, version) for the target.
    Unless `strict`, what comes from git and the target's CANN have no say. With `named`, a release without rows of its
    own is one to move to when the row of another names it; its Pythons are not known then.
    """

    def __init__(  # noqa: PLR0913 - what a move depends on, and two words on how the table is read
        self,
        recipe: Recipe,
        table: Compatibility,
        pythons: Sequence[str],
        has: Callable[[str, str], bool],
        *,
        strict: bool = True,
        named: bool = False,
    ) -> None:
        self.table = table
        self.named = named
        self.has = has
        self.overridden = {package_name(o.requirement) for o in recipe.profile.overrides}
        self.pins = {c.package: c.version for c in recipe.wheels if c.version and c.package not in self.overridden}
        self.fixed = {c.package: c.version for c in recipe.sources if c.version and strict}
        self.targets: Mapping[str, Sequence[str]] = {CANN: (recipe.target.cann,) if strict else (), PYTHON: pythons}
        here = {*self.pins, *self.fixed}
        # Every version that the table has of a pinned name: its own rows, and what rows of the others say of it.
        said = [(row.name, row.version) for row in table.rows]
        said += [(key, fit) for row in table.rows if row.name in here for key, fit in row.fits.items()]
        self.known: dict[str, list[str]] = {
            name: _newest_first(version for key, version in said if key == name and version[0].isdigit())
            for name in self.pins
        }
        self.about = {name: {key for row in table.rows if row.name == name for key in row.fits} for name in here}
        self._rows: dict[tuple[str, str], tuple[Row, ...]] = {}

    def in_table(self, name: str) -> bool:
        """Whether the table says anything of a pinned name."""
        return bool(self.known.get(name))

    def is_only_named(self, name: str, version: str) -> bool:
        """Whether rows of others name a release that has none of its own, where other releases have some."""
        has_none = bool(self.about.get(name)) and not self._rows_of(name, version)
        return has_none and any(same_release(known, version) for known in self.known.get(name, ()))

    def newest(self, name: str) -> dict[str, str]:
        """Return the pins to change (name → version) for the newest `name` of the table; empty when none is newer.

        No pin moves from a final release to a preview.
        """
        present = Version(self.pins[name])
        for version in self._further(name, previews=False):
            if Version(version) <= Version(present.public):
                continue
            found = self._extended({**self.fixed, name: version}, self._others(name), previews=False)
            if found is not None:
                return self._changes(found)
        return {}

    def exactly(self, name: str, version: str) -> dict[str, str] | None:
        """Return the pins to change for `name` at `version`; None when the table has no set with it."""
        for previews in (False, True):
            found = self._extended({**self.fixed, name: version}, self._others(name), previews=previews)
            if found is not None:
                return self._changes(found)
        return None

    def _others(self, name: str) -> list[str]:
        return [other for other in self.pins if other != name and self.known[other]]

    def _changes(self, pins: Mapping[str, str]) -> dict[str, str]:
        return {name: version for name, version in pins.items() if self._moved(name, version)}

    def _further(self, name: str, *, previews: bool) -> Iterator[str]:
        """Give the other versions of a pinned name that there are, the newest first."""
        previews = previews or Version(self.pins[name]).is_prerelease
        for version in self.known[name]:
            is_wanted = previews or not Version(version).is_prerelease
            if is_wanted and self._moved(name, version) and self.has(name, version):
                yield version

    def _extended(self, pins: dict[str, str], others: Sequence[str], *, previews: bool) -> dict[str, str] | None:
        """Add a version of each of `others`, the present one where it fits; None when there is no such set."""
        if not self._agrees(pins):
            return None
        if not others:
            return pins
        name, *rest = others
        for version in chain((self.pins[name],), self._further(name, previews=previews)):
            found = self._extended({**pins, name: version}, rest, previews=previews)
            if found is not None:
                return found
        return None

    def _moved(self, name: str, version: str) -> bool:
        present = self.pins.get(name) or self.fixed.get(name)
        return present is None or not same_release(present, version)

    def _agrees(self, pins: Mapping[str, str]) -> bool:
        """Whether no row speaks against what has moved. What stands as before is not judged anew."""
        moved = {name for name, version in pins.items() if self._moved(name, version)}
        for name, version in pins.items():
            about = self.about[name]
            if not about or not ({name, *about} & moved):
                continue
            if self.named and name in moved and self.is_only_named(name, version):
                continue
            keys = (about - {DRIVER} if name in moved else about & moved) - self.overridden
            if not self._fits(self._rows_of(name, version), keys, pins):
                return False
        return True

    def _fits(self, rows: Sequence[Row], keys: Collection[str], pins: Mapping[str, str]) -> bool:
        """Whether rows of one release, weightiest source first, speak for what is here; no row speaks for nothing.

        Rows of one source are sets to choose from. About a key the weightiest source that names it decides; any source
        may name the target's CANN, and CANNs that no table has are in use, but they are nothing to move to.
        """
        decided: set[str] = set()
        for source in dict.fromkeys(row.source for row in rows):
            mine = [row for row in rows if row.source == source]
            open_keys = {key for row in mine for key in row.fits if key in keys} - {CANN} - decided
            if not any(self._holds(row, open_keys, pins) for row in mine):
                return False
            decided |= open_keys
        return any(self._holds(row, keys, pins) for row in rows)

    def _holds(self, row: Row, keys: Collection[str], pins: Mapping[str, str]) -> bool:
        return all(
            holds(key, wanted, value)
            for key, wanted in row.fits.items()
            if key in keys
            for value in self.targets.get(key) or ((pins[key],) if key in pins else ())
        )

    def _rows_of(self, name: str, version: str) -> tuple[Row, ...]:
        found = self._rows.get((name, version))
        if found is None:
            found = tuple(sorted(rows_for(self.table, name, version), key=lambda row: weight(self.table, row)))
            self._rows[name, version] = found
        return found


def newest_pins(
    recipe: Recipe,
    table: Compatibility,
    pythons: Sequence[str],
    has: Callable[[str, str], bool],
    newest: Callable[[str], str | None],
) -> dict[str, str]:
    """Return the pins (name → version) that can move, all of them together.

    `newest` names the release to take of a pinned package that the table says nothing about.
    """
    found: dict[str, str] = {}
    for name, version in PinMoves(recipe, table, pythons, has).pins.items():
        moves = PinMoves(with_pins(recipe, table, found), table, pythons, has)
        if moves.in_table(name):
            found |= moves.newest(name)
        elif (latest := newest(name)) is not None and Version(latest) > Version(Version(version).public):
            found[name] = latest
    return found


def with_pins(recipe: Recipe, table: Compatibility, pins: Mapping[str, str]) -> Recipe:
    """Return `recipe` with other versions of its pinned wheels, and the bounds that follow from them."""
    chosen = tuple(replace(c, version=pins.get(c.package, c.version)) for c in recipe.chosen)
    return replace(recipe, chosen=chosen, held=held_bounds(chosen, table))


def _newest_first(versions: Iterable[str]) -> list[str]:
    return sorted(set(versions), key=Version, reverse=True)
