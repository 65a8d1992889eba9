"""Ways out of a misfit in words: whole sets that fit, those first that change the set least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.compatibility import CANN, PYTHON
from cannery.catalog.versions import without_build
from cannery.compat.solve import OTHER, SAME, Solver, cost, releases
from cannery.compat.table import here, is_held, listed, phrase, weight

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.compatibility import Row
    from cannery.compat.subject import Subject

OFFERED = 3
NO_SET = "the table has no set near this one that every row of it agrees with"


@dataclass(frozen=True)
class Whole:
    """A row that is offered, and what else of the set goes with it, by name; `cost` is how much it changes."""

    row: Row
    more: Mapping[str, str]
    cost: float


def offers(subject: Subject, name: str, own: Sequence[Row], clash: Collection[str] = ()) -> str:
    """Return sets that the table has, in words: `use torch 2.8.0 with torch-npu 2.8.0.post2, or …`.

    `own` are the rows of the release that does not fit, `clash` the keys that it clashes with. There is a way out to
    either side: that release with what it is made for, and another one for what is here; each is offered unless an
    offer brings the same. No row contradicts a set that is offered. Where there is none, the text reports that.
    """
    known = [one for row in releases(subject, name) for one in _on_canns(subject, row)]
    every = [row for row in known if _has_base(subject, row) and _answers(row, clash)]
    if not every:
        return NO_SET if subject.rows.get(name) else ""
    rows = _distinct(subject, every)
    kept = _nearest(subject, rows)
    if not any(is_held(subject, whole.row, clash) for whole in kept):
        kept += _first(_wholes(subject, (row for row in rows if is_held(subject, row, clash))), OFFERED - 1)
    mine = [row for row in every if own and row.version == own[0].version]
    present = [_beside(subject, whole.row) for whole in kept]
    kept += _wholes(subject, (row for row in mine if _beside(subject, row) not in present))
    return "use " + ", or ".join(dict.fromkeys(_words(subject, whole) for whole in kept)) if kept else NO_SET


def _nearest(subject: Subject, rows: Sequence[Row]) -> list[Whole]:
    """Return the sets that change least, a few; `rows` are in the order of what each alone changes."""
    found: list[Whole] = []
    for row in rows:
        if found and cost(subject, row) > min(whole.cost for whole in found) + SAME:
            break
        found += _wholes(subject, (row,))
    found.sort(key=lambda whole: whole.cost)
    return [whole for whole in found if whole.cost <= found[0].cost + SAME][:OFFERED]


def _wholes(subject: Subject, rows: Iterable[Row]) -> Iterator[Whole]:
    """Give the rows with which a whole set can be, and that set."""
    solver = Solver(subject)
    for row in rows:
        wanted = {key: fit for key, fit in _beside(subject, row).items() if fit[0].isdigit()}
        moved = {row.name: row.version, **{k: fit for k, fit in wanted.items() if not is_held(subject, row, (k,))}}
        found = solver.completed(moved, row.fits.get(CANN, ""))
        if found is not None and _asks_hold(subject, found):
            more = {name: version for name, version in found.items() if name not in moved}
            yield Whole(row, more, cost(subject, row) + len(more) * OTHER)


def _asks_hold(subject: Subject, moved: Mapping[str, str]) -> bool:
    """Whether what the sources of a set ask for is in it, `moved` being what moves, as far as that is known."""
    versions = {**subject.versions, **moved}
    for source in subject.recipe.sources:
        component, version = source.component, versions.get(source.package, "")
        commits = {known.version: known for known in component.revisions.values()}
        first, second = (commits, component.releases) if source.commit else (component.releases, commits)
        known = first.get(version) or second.get(version)
        for asked in subject.live(known.requires) if known else ():
            name = canonicalize_name(asked.name)
            is_fixed = name in versions and name not in subject.overridden
            if is_fixed and not asked.specifier.contains(versions[name], prereleases=True):
                return False
    return True


def _first(found: Iterator[Whole], count: int) -> list[Whole]:
    return [whole for whole, _number in zip(found, range(count), strict=False)]


def _distinct(subject: Subject, rows: Sequence[Row]) -> list[Row]:
    """Return releases; those of least change, of the target's CANN and final ones come first.

    Of builds of one release for one set the first counts.

    The table has 2.8.0.post2 and post3 for the same torch and CANN: one of them is enough of an offer.
    """
    found: dict[tuple[str, str, str], Row] = {}

    def order(row: Row) -> tuple[float, bool, bool, int]:
        return cost(subject, row), not is_held(subject, row, (CANN,)), _is_preview(row), weight(subject.table, row)

    for row in sorted(rows, key=order):
        same = Version(row.version).base_version, str(_beside(subject, row)), row.fits.get(CANN, "")
        found.setdefault(same, row)
    return list(found.values())


def _is_preview(row: Row) -> bool:
    return Version(row.version).is_prerelease


def _answers(row: Row, clash: Collection[str]) -> bool:
    """Whether a row states anything of what clashes."""
    return not clash or bool({*clash} & row.fits.keys())


def _on_canns(subject: Subject, row: Row) -> Iterator[Row]:
    """Give a row for the target's CANN, where the makers of the release call that compatible, and as it is."""
    cann = subject.recipe.target.cann
    if CANN in row.fits and subject.table.compatible_with(row.name, row.fits[CANN], cann):
        yield row.model_copy(update={"fits": {**row.fits, CANN: cann}})
    yield row


def _has_base(subject: Subject, row: Row) -> bool:
    """Whether there is an image of the row's CANN for the target's chip; a row without a CANN is for any."""
    cann = without_build(row.fits.get(CANN, ""))
    line, chip = subject.catalog.bases.get(cann), subject.recipe.target.chip
    return not cann or (line is not None and any(tag.startswith(f"{cann}-{chip}-") for tag in line.tags))


def _beside(subject: Subject, row: Row) -> dict[str, str]:
    """The distributions of a row that are in the set."""
    return {key: value for key, value in row.fits.items() if key not in {CANN, PYTHON} and here(subject, key)}


def _words(subject: Subject, whole: Whole) -> str:
    row = whole.row
    beside = [_release(subject, key, value) for key, value in {**_beside(subject, row), **whole.more}.items()]
    own = _release(subject, row.name, row.version)
    words = f"{listed(beside)} with {own}" if beside else own
    places = [key for key in (CANN, PYTHON) if key in row.fits and not is_held(subject, row, (key,))]
    return words + (f" on {listed(phrase(key, row.fits[key]) for key in places)}" if places else "")


def _release(subject: Subject, name: str, version: str) -> str:
    """Return a release in words; of a source that comes at a commit, with the commit of that version."""
    at = next((one for one in subject.recipe.sources if one.package == name and one.commit), None)
    found = [commit for commit, known in at.component.revisions.items() if known.version == version] if at else []
    return phrase(name, version) + (f" (commit {found[0]})" if found else "")
