"""A release that no row of the table has: unknown, never ok. Its number and other rows may still decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.compatibility import CANN
from cannery.compat.findings import Finding, error, warning
from cannery.compat.judgement import other_number, vouching
from cannery.compat.offers import NO_SET, offers
from cannery.compat.solve import Solver
from cannery.compat.table import cited, here, keys_of, listed, said
from cannery.vocab import BaseKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.compatibility import Row
    from cannery.compat.subject import Subject


def unknown(subject: Subject, name: str, version: str) -> Iterator[Finding]:
    """Say that nothing is known of a release, or what cannot be all the same: torch_npu X.Y.Z extends torch X.Y.Z."""
    beside = [key for key in keys_of(subject, name) if here(subject, key)]
    if not beside:
        return
    key = other_number(subject, name)
    if key:
        base = Version(version).base_version
        yield error(
            "fit",
            f"{key} {here(subject, key)} and {name} {version} do not fit: the latter is made for {key} {base}",
            f"no row of the table has this release; every one there carries the number of its {key}",
            _ways_out(subject, name, key),
        )
        return
    others = vouching(subject, name)
    yield _named_elsewhere(subject, name, version, others) if others else _in_no_row(subject, name, version, beside)


def _named_elsewhere(subject: Subject, name: str, version: str, others: tuple[Row, ...]) -> Finding:
    who = listed(f"{row.name} {row.version}" for row in others)
    return warning(
        "fit-unknown",
        f"no row of {name} has {version}, but {who} asks for it on CANN {subject.recipe.target.cann}",
        f"without it: {cited(subject.table, subject.rows[name])}; with it: {cited(subject.table, others)}",
        _nearest(subject, name),
    )


def _in_no_row(subject: Subject, name: str, version: str, beside: list[str]) -> Finding:
    """Report a release without a row, in a note where the stand-in has no CANN."""
    cann = subject.recipe.target.cann
    fit = said(CANN, cann) if CANN in beside else listed(said(key, here(subject, key) or "") for key in beside)
    advice = f"look for a newer table of {name}'s makers, and add its row to images/compatibility.yaml"
    return Finding(
        Severity.NOTE if subject.recipe.base.kind is BaseKind.STANDIN else Severity.WARNING,
        "fit-unknown",
        f"no row of the table has {name} {version}: whether it fits {fit} is unknown",
        fix="; ".join(part for part in (advice, _nearest(subject, name)) if part),
    )


def _ways_out(subject: Subject, name: str, key: str) -> str:
    """Offer the `key` of the release's number, and what goes with the one that is here: rows, or its number."""
    version, present = subject.versions[name], here(subject, key) or ""
    base, other = Version(version).base_version, Version(present).base_version
    ways = [_way(subject, name, key, base, version)]
    if any(row.fits.get(key) == other for row in subject.rows[name]):
        text = offers(subject, name, (), {key})
        ways.append("" if text == NO_SET else text.removeprefix("use "))
    else:
        ways.append(_way(subject, name, key, other, other))
    found = [way for way in ways if way]
    return f"use {', or '.join(found)}" if found else NO_SET


def _way(subject: Subject, name: str, key: str, version: str, release: str) -> str:
    """Offer `key` at a version with a release of `name`, and what goes with them; "" when rows contradict it."""
    found = Solver(subject).completed({key: version, name: release})
    if found is None:
        return ""
    beside = [said(other, text) for other, text in found.items() if other != name]
    return f"{listed(beside)} with {name} {release}"


def _nearest(subject: Subject, name: str) -> str:
    """Return the releases of the same feature line that the table has, with their CANN; "" when it has none."""
    line = Version(subject.versions[name]).release[:2]
    rows = [row for row in subject.rows[name] if Version(row.version).release[:2] == line]
    rows.sort(key=lambda row: Version(row.version))
    words = [f"{row.version} (CANN {row.fits[CANN]})" if CANN in row.fits else row.version for row in rows]
    return f"nearest there: {', '.join(dict.fromkeys(words))}" if words else ""
