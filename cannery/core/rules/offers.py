"""Ways out of a misfit: the rows of the same distribution, those first that change the set least."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.core.rules.table import CANN, PYTHON, here, is_held, listed, said, weight

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cannery.core.compatibility import Row
    from cannery.core.rules.subject import Subject

OFFERED = 3
# What another version costs when it is a build of the same release (2.7.1, 2.7.1.post2), and when it is another one.
SAME, OTHER = 0.5, 1.0


def offers(subject: Subject, name: str, own: Sequence[Row], clash: Collection[str] = ()) -> str:
    """Return sets that the table has, in words: `use torch 2.8.0 with torch-npu 2.8.0.post2, or …`; "" without any.

    `own` are the rows of the release that does not fit, `clash` the keys that it clashes with. There is a way out to
    either side: that release with what it is made for, and another one for what is here; each is offered unless an
    offer brings the same.
    """
    releases = _releases(subject, name)
    if not releases:
        return ""
    rows = _distinct(subject, releases)
    least = _cost(subject, rows[0])
    kept = [row for row in rows if _cost(subject, row) <= least + SAME][:OFFERED]
    if not any(is_held(subject, row, clash) for row in kept):
        kept += [row for row in rows if is_held(subject, row, clash)][: OFFERED - 1]
    mine = [row for row in releases if own and row.version == own[0].version]
    kept += [row for row in mine if _beside(subject, row) not in [_beside(subject, other) for other in kept]]
    return "use " + ", or ".join(dict.fromkeys(_words(subject, row) for row in kept))


def _releases(subject: Subject, name: str) -> list[Row]:
    """Return one row for each release of `name`: what its sources say together, the weightiest first where they differ.

    Of one source's rows the one counts that changes the set least.
    """
    nearest: dict[str, dict[str, Row]] = {}
    for row in sorted(subject.rows.get(name, ()), key=lambda row: _cost(subject, row)):
        nearest.setdefault(row.version, {}).setdefault(row.source, row)
    found = []
    for by_source in nearest.values():
        heavy = sorted(by_source.values(), key=lambda row: weight(subject.table, row))
        cells = {key: wanted for row in reversed(heavy) for key, wanted in row.fits.items()}
        order = dict.fromkeys(key for row in heavy for key in row.fits)
        found.append(heavy[0].model_copy(update={"fits": {key: cells[key] for key in order}}))
    return found


def _distinct(subject: Subject, releases: Sequence[Row]) -> list[Row]:
    """Return releases, least change and weightiest source first; of builds of one release for one set the first.

    The table has 2.8.0.post2 and post3 for the same torch and CANN: one of them is enough of an offer.
    """
    found: dict[tuple[str, str, str], Row] = {}
    for row in sorted(releases, key=lambda row: (_cost(subject, row), weight(subject.table, row))):
        same = Version(row.version).base_version, str(_beside(subject, row)), row.fits.get(CANN, "")
        found.setdefault(same, row)
    return list(found.values())


def _cost(subject: Subject, row: Row) -> float:
    """How much of the set another row changes: each thing that it wants otherwise counts."""
    version = Version(subject.versions[row.name])
    cost = 0.0
    if Version(row.version) != Version(version.public):
        cost = SAME if Version(row.version).base_version == version.base_version else OTHER
    return cost + sum(1 for key in row.fits if not is_held(subject, row, (key,)))


def _beside(subject: Subject, row: Row) -> dict[str, str]:
    """The distributions of a row that are in the set."""
    return {key: value for key, value in row.fits.items() if key not in {CANN, PYTHON} and here(subject, key)}


def _words(subject: Subject, row: Row) -> str:
    beside = [said(key, value) for key, value in _beside(subject, row).items()]
    words = f"{listed(beside)} with {row.name} {row.version}" if beside else f"{row.name} {row.version}"
    for key in (CANN, PYTHON):
        if key in row.fits and not is_held(subject, row, (key,)):
            words += f" on {said(key, row.fits[key])}"
    return words
