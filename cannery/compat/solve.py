"""The one solver over the compatibility table: which other versions would make a whole set that fits.

torch, torch_npu, torchvision and what is built on them move together: a row of one names versions of the others. A set
fits when no row contradicts it (`judgement.misfits`). Every pin that need not move stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.compatibility import CANN, PYTHON
from cannery.catalog.versions import distance, parsed_version
from cannery.compat.judgement import misfits
from cannery.compat.subject import Subject
from cannery.compat.table import holds, is_held, weight
from cannery.recipe.bounds import same_release, takes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.compatibility import Row
    from cannery.recipe.recipe import Recipe


def _anything(_name: str, _version: str) -> bool:
    return True


@dataclass(frozen=True)
class Solver:
    """Finds sets that fit, near the set of `subject`.

    `movable` names what may move (None: all that is not overridden), `has` whether a release (name, version) can be
    had, `pythons` further Pythons that have to fit. With `keeps` a misfit that is there already may stay where nothing
    moves. With `upwards` what moves along goes to its newest release that fits, else to the nearest one.
    """

    subject: Subject
    movable: frozenset[str] | None = None
    has: Callable[[str, str], bool] = field(default=_anything, compare=False)
    pythons: tuple[str, ...] = ()
    keeps: bool = False
    upwards: bool = False

    @cached_property
    def _present(self) -> frozenset[tuple[str, str]]:
        """The misfits that may stay. A CANN that a release is in use on already, against its row, always may."""
        return frozenset(pair for pair in misfits(self.subject) if self.keeps or pair[1] == CANN)

    def known(self, name: str) -> list[str]:
        """Return every version that the table has of a name of the set, in its rows or those of others; newest first.

        Empty when the table has none.
        """
        rows = self.subject.rows
        own = [row.version for row in rows.get(name, ())]
        named = [row.fits[name] for other in self.subject.with_rows(name) for row in rows[other] if name in row.fits]
        return sorted({v for v in (*own, *named) if v[0].isdigit()}, key=Version, reverse=True)

    def completed(self, moved: Mapping[str, str], cann: str = "") -> Mapping[str, str] | None:
        """Return `moved` (name → version) with what else has to move so that the set fits; None when nothing does.

        `cann` takes the place of the target's.
        """
        if not all(self._can_be_had(name, version) for name, version in moved.items()):
            return None
        proposed = self.subject.moved_to(moved, cann)
        wrong = next(self._wrong(proposed, moved), None)
        if wrong is None:
            return moved
        for more in self._options(proposed, moved, *wrong):
            found = self.completed({**moved, **more}, cann)
            if found is not None:
                return found
        return None

    def exactly(self, name: str, version: str) -> dict[str, str] | None:
        """Return the pins to change for `name` at `version`; None when no set with it fits."""
        is_here = same_release(version, self.subject.versions.get(name, ""))
        found = {} if is_here else self.completed({name: version})
        return None if found is None else self._changes(found)

    def newest(self, name: str) -> dict[str, str]:
        """Return the pins to change for the newest `name` of the table; empty when none that fits is newer.

        No pin moves from a final release to a preview, nor to a release that only rows of others name.
        """
        present = Version(Version(self.subject.versions[name]).public)
        for version in self.known(name):
            if Version(version) > present and not self._is_preview(name, version):
                found = self.exactly(name, version)
                if found and not any(self._is_preview(*one) or self._lacks_row(*one) for one in found.items()):
                    return found
        return {}

    def _lacks_row(self, name: str, version: str) -> bool:
        """Whether a release has no row of its own, where other releases of it have some."""
        rows = self.subject.rows.get(name, ())
        return bool(rows) and not any(same_release(row.version, version) for row in rows)

    def disagreeing(self, moved: Mapping[str, str], changed: frozenset[str]) -> str:
        """Return the first release of the set at `moved` that a row contradicts, "" for none.

        Only rows that have to do with the names in `changed` count: the rules have judged the others.
        """
        proposed = self.subject.moved_to(moved)
        return next((name for name, key in misfits(proposed) if {name, key} & changed), "")

    def _changes(self, moved: Mapping[str, str]) -> dict[str, str]:
        versions = self.subject.versions
        return {name: text for name, text in moved.items() if not same_release(text, versions.get(name, ""))}

    def _is_preview(self, name: str, version: str) -> bool:
        """Whether a move to `version` is one from a final release to a preview."""
        return Version(version).is_prerelease and not Version(self.subject.versions[name]).is_prerelease

    def _can_be_had(self, name: str, version: str) -> bool:
        return same_release(version, self.subject.versions.get(name, "")) or self.has(name, version)

    def _may_move(self, name: str, moved: Mapping[str, str]) -> bool:
        allowed = name in (self.subject.versions if self.movable is None else self.movable)
        return allowed and name not in moved and name not in self.subject.overridden

    def _wrong(self, proposed: Subject, moved: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Give (name, key) of each misfit that the set must not have."""
        for name, key in misfits(proposed):
            if name in moved or (self.keeps and key in moved) or (name, key) not in self._present:
                yield name, key
        if self.keeps:
            yield from ((name, key) for name in moved for key in self._against(proposed, name))

    def _against(self, proposed: Subject, name: str) -> Iterator[str]:
        """Give the cells of a release that are not as its weightiest source has them. Any source may name the CANN."""
        excused = {CANN, *proposed.overridden}
        for row in releases(proposed, name):
            if same_release(row.version, proposed.versions[name]):
                yield from (key for key in row.fits if key not in excused and not is_held(proposed, row, (key,)))
                if PYTHON in row.fits and not all(holds(PYTHON, row.fits[PYTHON], python) for python in self.pythons):
                    yield PYTHON

    def _options(self, proposed: Subject, moved: Mapping[str, str], name: str, key: str) -> list[Mapping[str, str]]:
        """Return what may move to mend a misfit: another release of `name`, or of `key` where `name` has moved."""
        if self._may_move(name, moved):
            rows = {row.version: row for row in releases(proposed, name)}
            options = [
                {name: version, **more}
                for version in self._ranked(proposed, name, rows)
                if (more := self._beside(proposed, rows[version], moved)) is not None
            ]
            return sorted(options, key=len)
        if name in moved and self._may_move(key, moved):
            cells = [row.fits[key] for row in releases(proposed, name) if row.version == moved[name] if key in row.fits]
            fitting = [version for version in self.known(key) if any(takes(cell, version) for cell in cells)]
            return [{key: version} for version in self._ranked(proposed, key, fitting)]
        return []

    def _beside(self, proposed: Subject, row: Row, moved: Mapping[str, str]) -> dict[str, str] | None:
        """Return what has to move along for a row to hold; None when something that cannot move is in the way.

        Its CANN is judged with the set, since any source may name it.
        """
        keys = row.fits.keys() - {CANN}
        more = {key: row.fits[key] for key in sorted(keys) if not is_held(proposed, row, (key,))}
        can_be = all(fit[0].isdigit() and self._may_move(key, moved) for key, fit in more.items())
        return more if can_be else None

    def _ranked(self, proposed: Subject, name: str, versions: Iterable[str]) -> list[str]:
        """Return versions in the order in which they are tried: final ones first, then the newest or the nearest."""
        if self.upwards:
            ordered = sorted(versions, key=parsed_version, reverse=True)
        else:
            present = proposed.versions[name]
            ordered = sorted(versions, key=lambda version: (distance(present, version), parsed_version(version)))
        return sorted(ordered, key=lambda version: parsed_version(version).is_prerelease)


def releases(subject: Subject, name: str) -> list[Row]:
    """Return one row for each release of `name`: the cells of all its sources, the weightiest first where they differ.

    Of one source's rows the one counts that changes the set least.
    """
    nearest: dict[str, dict[str, Row]] = {}
    for row in sorted(subject.rows.get(name, ()), key=lambda row: cost(subject, row)):
        nearest.setdefault(row.version, {}).setdefault(row.source, row)
    found = []
    for by_source in nearest.values():
        heavy = sorted(by_source.values(), key=lambda row: weight(subject.table, row))
        cells = {key: wanted for row in reversed(heavy) for key, wanted in row.fits.items()}
        order = dict.fromkeys(key for row in heavy for key in row.fits)
        found.append(heavy[0].model_copy(update={"fits": {key: cells[key] for key in order}}))
    return found


# What another version costs when it is a build of the same release (2.7.1, 2.7.1.post2), and when it is another one.
SAME, OTHER = 0.5, 1.0


def cost(subject: Subject, row: Row) -> float:
    """Return how much of the set another row changes: each cell that differs counts."""
    version = parsed_version(subject.versions[row.name])
    price = 0.0
    if parsed_version(row.version) != parsed_version(version.public):
        price = SAME if parsed_version(row.version).base_version == version.base_version else OTHER
    return price + sum(1 for key in row.fits if not is_held(subject, row, (key,)))


def upgrader(
    recipe: Recipe, catalog: Catalog, pythons: tuple[str, ...] = (), has: Callable[[str, str], bool] = _anything
) -> Solver:
    """Return the solver for moves of the recipe's pinned wheels: to newer releases that `has` allows, for `pythons`."""
    subject = Subject(recipe, catalog, {})
    pins = frozenset(c.package for c in recipe.wheels if c.version) - subject.overridden
    return Solver(subject, pins, has, pythons, keeps=True, upwards=True)


def newest_pins(solver: Solver, newest: Callable[[str], str | None]) -> dict[str, str]:
    """Return the pins (name → version) of the solver's set that can move to newer releases, all of them together.

    `newest` names the release to take of a pinned package that the table has nothing about.
    """
    found: dict[str, str] = {}
    versions = solver.subject.versions
    for name in (c.package for c in solver.subject.recipe.wheels if c.package in (solver.movable or ())):
        if solver.known(name):
            found |= replace(solver, subject=solver.subject.moved_to(found)).newest(name)
        elif (latest := newest(name)) is not None and Version(latest) > Version(Version(versions[name]).public):
            found[name] = latest
    return found
