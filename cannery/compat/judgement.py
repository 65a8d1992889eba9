"""What the table has about the releases of a set: what each is not made for, and which rows of others support it.

The findings of `fit` are these judgements in words; an offer is a set that has none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.compatibility import CANN, DRIVER, PYTHON, Rank
from cannery.compat.table import followed, here, is_held, judging, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.catalog.compatibility import Compatible, Row
    from cannery.compat.subject import Subject


@dataclass(frozen=True)
class Judgement:
    """Of one release: the keys that are `wrong` here, and those about which sources disagree.

    The values of `beside` are rows of other releases that are made for this one with what is here of the key.
    `compatible`: no row is made for the CANN, and the makers state that the release works with it all the same.
    """

    wrong: frozenset[str]
    beside: Mapping[str, tuple[Row, ...]]
    compatible: Compatible | None = None


def judged(subject: Subject, name: str, rows: Sequence[Row]) -> Judgement:
    """Judge the release of `name` by `rows`, the ones that judge it, the weightiest first."""
    fixed = {*followed(subject, name)}
    beside: dict[str, tuple[Row, ...]] = {}
    wrong: set[str] = set()
    compatible: Compatible | None = None
    excused = {PYTHON, DRIVER} | (subject.overridden - fixed)
    for key in sorted({key for row in rows for key in row.fits} - excused):
        saying = [row for row in rows if key in row.fits]
        agreeing = [row for row in saying if is_held(subject, row, (key,))]
        if len(agreeing) == len(saying):
            continue
        if key == CANN and (found := _compatible(subject, name, saying)):
            compatible = None if agreeing else found
            continue
        others = () if key in fixed else supporting(subject, name, key)
        if _gives_way(subject, name, key, saying):
            continue
        if agreeing or others:
            beside[key] = others
        if not others and not (agreeing and _counts(subject, agreeing[0], saying[0])):
            wrong.add(key)
    return Judgement(frozenset(wrong), beside, compatible)


def _gives_way(subject: Subject, name: str, key: str, rows: Sequence[Row]) -> bool:
    """Whether `rows` are of another build, and a release of the set with a row of its own decides about the key."""
    is_other = all(subject.table.sources[row.source].rank is Rank.BUILD for row in rows)
    return is_other and any(judging(subject, other) for other in subject.with_rows(name, key))


def _compatible(subject: Subject, name: str, rows: Sequence[Row]) -> Compatible | None:
    """Return why the release works with the target's CANN although `rows` are made for others; None: no one says so."""
    found = (subject.table.compatible_with(name, row.fits[CANN], subject.recipe.target.cann) for row in rows)
    return next(filter(None, found), None)


def _counts(subject: Subject, agreeing: Row, first: Row) -> bool:
    """Whether a row that holds is heard beside the weightiest one."""
    sources = subject.table.sources
    return sources[agreeing.source].rank is not Rank.DOCUMENT or sources[first.source].rank is not Rank.METADATA


def supporting(subject: Subject, name: str, key: str = CANN) -> tuple[Row, ...]:
    """Return the rows of other releases of the set that are made for this `name` and for what is here of `key`."""
    rows = (row for other in subject.with_rows(name, key) for row in judging(subject, other))
    return tuple(row for row in rows if {name, key} <= row.fits.keys() and is_held(subject, row, (name, key)))


def other_number(subject: Subject, name: str) -> str:
    """Return what a release without a row cannot be used with, "" for nothing: torch_npu X.Y.Z extends torch X.Y.Z."""
    if not any(here(subject, key) for key in keys_of(subject, name)):
        return ""
    base = Version(subject.versions[name]).base_version
    others = (key for key in followed(subject, name) if Version(here(subject, key) or base).base_version != base)
    return next(others, "")


def misfits(subject: Subject) -> Iterator[tuple[str, str]]:
    """Give (distribution, key) for all that the rows contradict: what `fit` reports as errors, and other CANNs."""
    for name in subject.with_rows():
        rows = judging(subject, name)
        if rows:
            found = judged(subject, name, rows)
            # A CANN that sources disagree about is no reason to move anything.
            yield from ((name, key) for key in sorted(found.wrong - ({CANN} & found.beside.keys())))
        elif other := other_number(subject, name):
            yield name, other
