"""The rule over the compatibility table: what each release fits, and what stands beside it here.

One row says that a release (`of`) fits versions of other things. Rows of one release may come from several sources;
the weightiest decides (a release's metadata, then a table, then a page or image), and a source that says otherwise is
shown beside it. A CANN that no source names is a warning, since sets that no table has are in use; a distribution or a
Python that does not fit is an error, unless the profile overrides it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.core.findings import Finding
from cannery.core.rules.offers import offers
from cannery.core.rules.table import CANN, DRIVER, PYTHON, cited, here, holds, rows_of, said
from cannery.core.words import BaseKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.core.compatibility import Compatibility, Row
    from cannery.core.rules.subject import Subject


def fits(subject: Subject) -> Iterator[Finding]:
    """Judge every release of the set that the table has rows of, or has other releases of."""
    for name in sorted({row.name for row in subject.table.rows} & {*subject.versions}):
        version = subject.versions[name]
        rows = rows_of(subject.table, name, version)
        if rows:
            yield from _judge(subject, name, version, rows)
        else:
            yield from _unknown(subject, name, version)


def _judge(subject: Subject, name: str, version: str, rows: Sequence[Row]) -> Iterator[Finding]:
    wrong: dict[str, str] = {}
    for key in dict.fromkeys(key for row in rows for key in row.fits):
        is_here = here(subject, key)
        saying = [row for row in rows if key in row.fits]
        if is_here is None:
            continue
        agreeing = [row for row in saying if holds(key, row.fits[key], is_here)]
        if len(agreeing) == len(saying):
            continue
        if agreeing and (agreeing[0] is saying[0] or key == CANN):
            yield _disagreement(subject, name, version, key, saying)
        elif key == CANN:
            yield _other_cann(subject, name, version, saying)
        elif key in subject.overridden:
            yield Finding(
                Severity.NOTE,
                "fit-overridden",
                f"{name} {version} asks for {said(key, saying[0].fits[key])}, the profile holds {is_here}",
                subject.overridden[key],
            )
        else:
            wrong[key] = saying[0].fits[key]
    if wrong:
        yield _misfit(subject, name, version, wrong, rows)


def _misfit(subject: Subject, name: str, version: str, wrong: dict[str, str], rows: Sequence[Row]) -> Finding:
    have = " and ".join(said(key, here(subject, key) or "") for key in wrong)
    wants = " and ".join(said(key, wanted) for key, wanted in wrong.items())
    return Finding(
        Severity.ERROR,
        "fit",
        f"{have} and {name} {version} do not fit: {name} {version} is made for {wants}",
        cited(subject.table, rows),
        offers(subject, name, rows),
    )


def _disagreement(subject: Subject, name: str, version: str, key: str, saying: Sequence[Row]) -> Finding:
    table = subject.table
    each = "; ".join(f"{said(key, row.fits[key])} ({table.sources[row.source]})" for row in saying)
    return Finding(
        Severity.WARNING,
        "fit-disagree",
        f"sources disagree about {name} {version}: {each}",
        f"this set has {said(key, here(subject, key) or '')}",
        next((row.note for row in saying if row.note), ""),
    )


def _other_cann(subject: Subject, name: str, version: str, saying: Sequence[Row]) -> Finding:
    canns = " or ".join(dict.fromkeys(row.fits[CANN] for row in saying))
    return Finding(
        Severity.WARNING,
        "fit-cann",
        f"{name} {version} is made for CANN {canns}, the target has {subject.recipe.target.cann}",
        cited(subject.table, saying),
        offers(subject, name, saying),
    )


def _unknown(subject: Subject, name: str, version: str) -> Iterator[Finding]:
    """A release that no row has. Its number may still say what cannot be: torch_npu X.Y.Z extends torch X.Y.Z."""
    base = Version(version).base_version
    for key in _followed(subject.table, name):
        other = Version(here(subject, key) or base).base_version
        if other != base and key not in subject.overridden:
            yield Finding(
                Severity.ERROR,
                "fit",
                f"{key} {here(subject, key)} and {name} {version} do not fit: the latter is made for {key} {base}",
                f"no row of the table has this release; every one there carries the number of its {key}",
                f"use {key} {base} with {name} {version}, or {_for_the_other(subject, name, key, other)}",
            )
            return
    severity = Severity.NOTE if subject.recipe.base.kind is BaseKind.STANDIN else Severity.WARNING
    advice = f"look for a newer table of {name}'s makers, and add its row to images/compatibility.yaml"
    yield Finding(
        severity,
        "fit-unknown",
        f"no row of the table has {name} {version}: whether it fits CANN {subject.recipe.target.cann} is unknown",
        fix=advice + _nearest(subject, name),
    )


def _for_the_other(subject: Subject, name: str, key: str, other: str) -> str:
    """Say what goes with the `key` that is here: what the table has, or the release that carries its number."""
    known = any(row.fits.get(key) == other for row in subject.table.rows if row.name == name)
    return offers(subject, name, ()).removeprefix("use ") if known else f"{key} {other} with {name} {other}"


def _nearest(subject: Subject, name: str) -> str:
    """Return the releases of the same feature line that the table has, with their CANN; "" when it has none."""
    line = Version(subject.versions[name]).release[:2]
    rows = [row for row in subject.table.rows if row.name == name and Version(row.version).release[:2] == line]
    rows.sort(key=lambda row: Version(row.version))
    words = [f"{row.version} (CANN {row.fits[CANN]})" if CANN in row.fits else row.version for row in rows]
    return f"; nearest there: {', '.join(dict.fromkeys(words))}" if words else ""


def _followed(table: Compatibility, name: str) -> Iterator[str]:
    """Give the distributions whose number the releases of `name` carry, in every row."""
    rows = [row for row in table.rows if row.name == name]
    for key in dict.fromkeys(key for row in rows for key in row.fits):
        if key not in {CANN, PYTHON, DRIVER} and all(Version(r.version).base_version == r.fits.get(key) for r in rows):
            yield key
