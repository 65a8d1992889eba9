"""Finds sets of versions that fit by the compatibility table, and describes them in words.

torch, torch_npu, torchvision and packages that are built on them move together: a row of one names versions of the
others. A set fits if no row contradicts it (`cannery.compat.subject.misfits`). Pins move only if they must. An offer is
a complete set. The sets with the fewest changes come first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.compatibility import CANN, PYTHON, Row
from cannery.catalog.target import distance, parsed_version, without_build
from cannery.compat.subject import (
    Subject,
    here,
    holds,
    is_held,
    listed,
    misfits,
    on_cann,
    phrase,
    rows_of,
    unmet,
    weight,
)
from cannery.recipe.select import parse_pin, same_release, takes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.recipe.recipe import Recipe

# The cost of another build of the same release (2.7.1, 2.7.1.post2), and of another release.
SAME, OTHER = 0.5, 1.0
OFFERED = 3
NO_SET = "the table has no similar set on which all of its rows agree"


@dataclass(frozen=True)
class Solver:
    """Finds sets that fit, near the set of `subject`.

    - `movable`: the packages that may move; None: all that are not overridden
    - `has`: whether a release (name, version) is available; None: all are
    - `pythons`: further Pythons that have to fit
    - `keeps`: whether a misfit of the present set may stay if none of its packages moves
    """

    subject: Subject
    movable: frozenset[str] | None = None
    has: Callable[[str, str], bool] | None = field(default=None, compare=False)
    pythons: tuple[str, ...] = ()
    keeps: bool = False

    @cached_property
    def _present(self) -> frozenset[tuple[str, str]]:
        """The misfits that may stay. A misfit of the CANN always may, because such sets are in use."""
        return frozenset(pair for pair in misfits(self.subject) if self.keeps or pair[1] == CANN)

    def known(self, name: str) -> list[str]:
        """Return every version of a package in the table, in its own rows or in those of others, newest first."""
        rows = self.subject.rows
        own = [row.version for row in rows.get(name, ())]
        named = [row.fits[name] for other in self.subject.with_rows(name) for row in rows[other] if name in row.fits]
        return sorted({v for v in (*own, *named) if v[0].isdigit()}, key=Version, reverse=True)

    def completed(self, moved: Mapping[str, str], cann: str = "") -> Mapping[str, str] | None:
        """Return `moved` (name → version) and the other moves that make the set fit; None if no moves do.

        `cann` replaces the CANN of the target.
        """
        if self.has and not all(self.has(name, version) for name, version in self._changes(moved).items()):
            return None
        proposed = self.subject.moved_to(moved, cann)
        wrong = next(self._wrong(proposed, moved), None)
        if wrong is None:
            return moved
        for more in self._options(proposed, moved, *wrong):
            can_fit = all(on_cann(proposed, one, [version]) for one, version in more.items())
            found = self.completed({**moved, **more}, cann) if can_fit else None
            if found is not None:
                return found
        return None

    def exactly(self, name: str, version: str) -> dict[str, str] | None:
        """Return the pins to change for `name` at `version`; None if no set with it fits."""
        is_here = same_release(version, self.subject.versions.get(name, ""))
        found = {} if is_here else self.completed({name: version})
        return None if found is None else self._changes(found)

    def newest(self, name: str) -> dict[str, str]:
        """Return the pins to change for the newest `name` in the table; empty if no newer version fits.

        No pin moves from a final release to a preview, or to a release that only rows of other packages name.
        """
        present = Version(Version(self.subject.versions[name]).public)
        for version in self.known(name):
            if Version(version) > present and not self._is_preview(name, version):
                found = self.exactly(name, version)
                if found and not any(self._is_preview(*one) or self._lacks_row(*one) for one in found.items()):
                    return found
        return {}

    def _lacks_row(self, name: str, version: str) -> bool:
        """Whether a release has no row, although other releases of the package have rows."""
        rows = self.subject.rows.get(name, ())
        return bool(rows) and not any(same_release(row.version, version) for row in rows)

    def _changes(self, moved: Mapping[str, str]) -> dict[str, str]:
        versions = self.subject.versions
        return {name: text for name, text in moved.items() if not same_release(text, versions.get(name, ""))}

    def _is_preview(self, name: str, version: str) -> bool:
        """Whether `version` is a preview, and the set has a final release."""
        return Version(version).is_prerelease and not Version(self.subject.versions[name]).is_prerelease

    def _may_move(self, name: str, moved: Mapping[str, str]) -> bool:
        allowed = name in (self.subject.versions if self.movable is None else self.movable)
        return allowed and name not in moved and name not in self.subject.overridden

    def _wrong(self, proposed: Subject, moved: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield (name, key) for each misfit that the set must not have.

        With `keeps`, packages that move must fit the row of their weightiest source. Its CANN may come from any source.
        """
        for name, key in misfits(proposed):
            if name in moved or (self.keeps and key in moved) or (name, key) not in self._present:
                yield name, key
        excused = {CANN, *proposed.overridden}
        for rows in (rows for name in moved if self.keeps and (rows := rows_of(proposed, name))):
            row = release(proposed, rows)
            yield from ((row.name, key) for key in unmet(proposed, row) if key not in excused)
            if PYTHON in row.fits and not all(holds(PYTHON, row.fits[PYTHON], python) for python in self.pythons):
                yield row.name, PYTHON

    def _options(self, proposed: Subject, moved: Mapping[str, str], name: str, key: str) -> list[Mapping[str, str]]:
        """Return the moves that may fix a misfit: another release of `name`, or of `key` if `name` has moved."""
        if self._may_move(name, moved):
            every = proposed.rows.get(name, ())
            fitting = on_cann(proposed, name, dict.fromkeys(row.version for row in every))
            known = releases(proposed, (row for row in every if row.version in fitting))
            beside = {row.version: self._beside(proposed, row, moved) for row in known}
            able = {version: more for version, more in beside.items() if more is not None}
            options = [{name: version, **able[version]} for version in self._ranked(proposed, name, able)]
            return sorted(options, key=len)
        if name in moved and self._may_move(key, moved):
            rows = [row for row in proposed.rows.get(name, ()) if row.version == moved[name]]
            cell = release(proposed, rows).fits.get(key, "") if rows else ""
            fitting = [version for version in self.known(key) if takes(cell, version)]
            return [{key: version} for version in self._ranked(proposed, key, fitting)]
        return []

    def _beside(self, proposed: Subject, row: Row, moved: Mapping[str, str]) -> dict[str, str] | None:
        """Return the other moves that make a row fit; None if one of these packages may not move.

        The CANN is not checked here but with the set, since any source may name it.
        """
        more = {key: fit for key, fit in sorted(unmet(proposed, row).items()) if key != CANN}
        can_be = all(fit[0].isdigit() and self._may_move(key, moved) for key, fit in more.items())
        return more if can_be else None

    def _ranked(self, proposed: Subject, name: str, versions: Iterable[str]) -> list[str]:
        """Return versions in the order in which they are tried: final releases first, then the nearest."""
        present = proposed.versions[name]
        ordered = sorted(versions, key=lambda version: (distance(present, version), parsed_version(version)))
        return sorted(ordered, key=lambda version: parsed_version(version).is_prerelease)


def releases(subject: Subject, rows: Iterable[Row]) -> list[Row]:
    """Return one row for each release in the `rows` of a distribution, in their order."""
    by_version: dict[str, list[Row]] = {}
    for row in rows:
        by_version.setdefault(row.version, []).append(row)
    return [release(subject, rows) for rows in by_version.values()]


def release(subject: Subject, rows: Sequence[Row]) -> Row:
    """Return one row for the `rows` of a release. If its sources differ in a cell, the weightiest source decides.

    If one source has several rows, the row with the fewest changes to the set counts.
    """
    if len(rows) == 1:
        return rows[0]
    nearest: dict[str, Row] = {}
    for row in sorted(rows, key=partial(cost, subject)):
        nearest.setdefault(row.source, row)
    heavy = sorted(nearest.values(), key=partial(weight, subject.table))
    cells = {key: wanted for row in reversed(heavy) for key, wanted in row.fits.items()}
    order = dict.fromkeys(key for row in heavy for key in row.fits)
    return heavy[0].model_copy(update={"fits": {key: cells[key] for key in order}})


def cost(subject: Subject, row: Row) -> float:
    """Return how much a row changes the set: each cell that differs counts."""
    version = parsed_version(subject.versions[row.name])
    price = 0.0
    if parsed_version(row.version) != parsed_version(version.public):
        price = SAME if parsed_version(row.version).base_version == version.base_version else OTHER
    return price + len(unmet(subject, row))


def upgrader(
    recipe: Recipe, catalog: Catalog, pythons: tuple[str, ...] = (), has: Callable[[str, str], bool] | None = None
) -> Solver:
    """Return the solver that moves the recipe's pinned wheels to newer releases. `has` and `pythons` as in `Solver`."""
    subject = Subject(recipe, catalog, {})
    pins = frozenset(c.package for c in recipe.wheels if c.version) - subject.overridden
    return Solver(subject, pins, has, pythons, keeps=True)


def newest_pins(solver: Solver) -> dict[str, str]:
    """Return the pins (name → version) that can move to newer releases in the table, all at once."""
    found: dict[str, str] = {}
    for name in (c.package for c in solver.subject.recipe.wheels if c.package in (solver.movable or ())):
        if solver.known(name):
            found |= replace(solver, subject=solver.subject.moved_to(found)).newest(name)
    return found


@dataclass(frozen=True, eq=False)
class Offer:
    """A row that may be offered, and the other changes to the set. Each part is computed at its first use."""

    solver: Solver
    row: Row

    @cached_property
    def price(self) -> float:
        """How much the row alone changes."""
        return cost(self.solver.subject, self.row)

    @cached_property
    def beside(self) -> dict[str, str]:
        """The distributions of the row that are in the set."""
        row, subject = self.row, self.solver.subject
        return {key: value for key, value in row.fits.items() if key not in {CANN, PYTHON} and here(subject, key)}

    @cached_property
    def more(self) -> Mapping[str, str] | None:
        """The other moves that make the complete set fit, by name; None if no set fits."""
        row, subject = self.row, self.solver.subject
        wrong = unmet(subject, row)
        wanted = {key: fit for key, fit in self.beside.items() if key in wrong and fit[0].isdigit()}
        moved = {row.name: row.version, **wanted}
        found = self.solver.completed(moved, row.fits.get(CANN, ""))
        if found is None or not _asks_hold(subject, found):
            return None
        return {name: version for name, version in found.items() if name not in moved}

    @property
    def cost(self) -> float:
        """How much the complete set changes."""
        return self.price + len(self.more or ()) * OTHER


def offers(
    subject: Subject, name: str, own: Sequence[Row], clash: Collection[str] = (), *, with_pins: bool = False
) -> str:
    """Return sets that fit in words: `use torch 2.8.0 with torch-npu 2.8.0.post2, or …`, or that there is none.

    `own` are the rows of the release that does not fit, and `clash` its cells that do not fit. Two kinds of sets are
    offered: that release with the packages that it is made for, and another release for the packages in the set. If the
    user has set pins, `with_pins` adds the options for the first set, and the indexes that it needs.
    """
    cann, known = subject.recipe.target.cann, list[Row]()
    near = sorted(subject.rows.get(name, ()), key=partial(cost, subject))
    for row in {row.version: row for row in (*own, *releases(subject, near))}.values():
        # Also a row for the target's CANN, if the makers of the release list it as compatible.
        if CANN in row.fits and subject.table.compatible_with(row.name, row.fits[CANN], cann):
            known.append(row.model_copy(update={"fits": {**row.fits, CANN: cann}}))
        known.append(row)
    solver, fitting = Solver(subject), (row for row in known if _has_base(subject, row))
    every = [Offer(solver, row) for row in fitting if not clash or {*clash} & row.fits.keys()]
    if not every:
        return NO_SET if subject.rows.get(name) else ""
    distinct = _distinct(subject, every)
    kept = _nearest(distinct)
    if not any(is_held(subject, one.row, *clash) for one in kept):
        held = (one for one in distinct if is_held(subject, one.row, *clash) and one.more is not None)
        kept += islice(held, OFFERED - 1)
    mine = [one for one in every if own and one.row.version == own[0].version]
    present = [one.beside for one in kept]
    kept += [one for one in mine if one.beside not in present and one.more is not None]
    if not kept:
        return NO_SET
    ways = dict.fromkeys(map(_words, kept))
    words, first = "use " + ", or ".join(ways), kept[0]
    if not with_pins or not subject.recipe.pins or _places(subject, first.row):
        return words
    # Pins of the user that do not change are included.
    pins = dict(map(parse_pin, subject.recipe.pins))
    pins |= {key: fit for key, fit in first.beside.items() if fit[0].isdigit()}
    pins |= {first.row.name: first.row.version, **(first.more or {})}
    options = " ".join(f"--pin {name}=={version}" for name, version in sorted(pins.items()))
    return f"{words}{'; for the first' if len(ways) > 1 else ''}: `{options}`{_only_on(subject, pins)}"


def _only_on(subject: Subject, pins: Mapping[str, str]) -> str:
    """Return which indexes `pins` need: those of releases that are on one index, with requirements unknown here."""
    wheels = [(one, pins[one.package]) for one in subject.recipe.wheels if one.package in pins]
    found = [
        f"{one.package} {version} from index {index}"
        for one, version in wheels
        if version not in one.component.metadata and (index := one.component.index_on(one.arch, version))
    ]
    return f" (needs {listed(found)})" if found else ""


def _nearest(distinct: Sequence[Offer]) -> list[Offer]:
    """Return the few sets with the fewest changes. `distinct` is sorted by how much each row alone changes."""
    found: list[Offer] = []
    for one in distinct:
        if found and one.price > min(other.cost for other in found) + SAME:
            break
        found += [one] if one.more is not None else []
    found.sort(key=lambda one: one.cost)
    return [one for one in found if one.cost <= found[0].cost + SAME][:OFFERED]


def _asks_hold(subject: Subject, moved: Mapping[str, str]) -> bool:
    """Whether a set with the pins `moved` meets the known requirements of its sources."""
    versions = {**subject.versions, **moved}
    for source in subject.recipe.sources:
        component, version = source.component, versions.get(source.package, "")
        commits = {known.version: known for known in component.revisions.values()}
        first, second = (commits, component.releases) if source.commit else (component.releases, commits)
        known = first.get(version) or second.get(version)
        for requirement in subject.live(known.requires) if known else ():
            is_fixed = requirement.package in versions and requirement.package not in subject.overridden
            if is_fixed and not requirement.allows(versions[requirement.package]):
                return False
    return True


def _distinct(subject: Subject, every: Sequence[Offer]) -> list[Offer]:
    """Return releases in order: fewest changes first, then the target's CANN first, then final releases first.

    If several builds of a release (2.8.0.post2 and post3) are for the same set, only one is returned.
    """
    found: dict[tuple[str, str, str], Offer] = {}

    def order(one: Offer) -> tuple[float, bool, bool, int]:
        is_preview = parsed_version(one.row.version).is_prerelease
        return one.price, not is_held(subject, one.row, CANN), is_preview, weight(subject.table, one.row)

    for one in sorted(every, key=order):
        same = parsed_version(one.row.version).base_version, str(one.beside), one.row.fits.get(CANN, "")
        found.setdefault(same, one)
    return list(found.values())


def _has_base(subject: Subject, row: Row) -> bool:
    """Whether the catalog has an image with the row's CANN for the target's chip. A row without a CANN fits any."""
    cann = without_build(row.fits.get(CANN, ""))
    line, chip = subject.catalog.bases.get(cann), subject.recipe.target.chip
    return not cann or (line is not None and any(tag.startswith(f"{cann}-{chip}-") for tag in line.tags))


def _words(offer: Offer) -> str:
    subject, row = offer.solver.subject, offer.row
    beside = [_release(subject, key, value) for key, value in {**offer.beside, **(offer.more or {})}.items()]
    own = _release(subject, row.name, row.version)
    words = f"{listed(beside)} with {own}" if beside else own
    places = _places(subject, row)
    return words + (f" on {listed(phrase(key, row.fits[key]) for key in places)}" if places else "")


def _places(subject: Subject, row: Row) -> list[str]:
    return [key for key in (CANN, PYTHON) if key in row.fits and not is_held(subject, row, key)]


def _release(subject: Subject, name: str, version: str) -> str:
    """Return a release in words, with its commit if the source is pinned to a commit."""
    at = next((one for one in subject.recipe.sources if one.package == name and one.commit), None)
    found = [commit for commit, known in at.component.revisions.items() if known.version == version] if at else []
    return phrase(name, version) + (f" (commit {found[0]})" if found else "")
