"""Ways out of a misfit: the rows of the same distribution, those first that change the set least."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.core.rules.table import CANN, PYTHON, here, holds, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.core.compatibility import Row
    from cannery.core.rules.subject import Subject

OFFERED = 3
# What another version costs when it is a build of the same release (2.7.1, 2.7.1.post2), and when it is another one.
SAME, OTHER = 0.5, 1.0


def offers(subject: Subject, name: str, own: Sequence[Row]) -> str:
    """Return sets that the table has, in words: `use torch 2.8.0 with torch-npu 2.8.0.post2, or …`; "" without any.

    `own` are the rows of the release that does not fit: that release with what it is made for is offered too, unless
    another offer brings the same.
    """
    rows = [row for row in subject.table.rows if row.name == name]
    if not rows:
        return ""
    costs = {id(row): _cost(subject, row) for row in rows}
    least = min(costs.values())
    near = [row for row in rows if costs[id(row)] <= least + SAME]
    kept = sorted(near, key=lambda row: costs[id(row)])[:OFFERED]
    kept += [row for row in own[:1] if _beside(subject, row) not in [_beside(subject, other) for other in kept]]
    return "use " + ", or ".join(dict.fromkeys(_words(subject, row) for row in kept))


def _cost(subject: Subject, row: Row) -> float:
    """How much of the set another row changes: each thing that it wants otherwise counts."""
    version = Version(subject.versions[row.name])
    cost = 0.0
    if Version(row.version) != Version(version.public):
        cost = SAME if Version(row.version).base_version == version.base_version else OTHER
    wanted = [(key, value, here(subject, key)) for key, value in row.fits.items()]
    return cost + sum(1 for key, value, version in wanted if version and not holds(key, value, version))


def _beside(subject: Subject, row: Row) -> dict[str, str]:
    """The distributions of a row that are in the set."""
    return {key: value for key, value in row.fits.items() if key not in {CANN, PYTHON} and here(subject, key)}


def _words(subject: Subject, row: Row) -> str:
    beside = [said(key, value) for key, value in _beside(subject, row).items()]
    words = f"{' and '.join(beside)} with {row.name} {row.version}" if beside else f"{row.name} {row.version}"
    for key in (CANN, PYTHON):
        version, value = here(subject, key), row.fits.get(key)
        if version and value and not holds(key, value, version):
            words += f" on {said(key, value)}"
    return words
