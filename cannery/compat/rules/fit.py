"""The rule over the compatibility table: whether each release fits the rest of the set.

A row states which versions of other distributions, CANN and Python a release (`of`) fits. One release may have rows
from several sources:

- If the sources disagree about the set, a warning lists all of them, the weightiest first. A page or an image does not
  outweigh the metadata of the release.
- If no source agrees with the set, a different CANN is a warning, because such sets are in use. A different
  distribution is an error, unless the profile overrides it. An override cannot allow an extension of another release
  (torch_npu X.Y.Z needs torch X.Y.Z).

The rule `pythons` checks Python versions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.compatibility import CANN, Rank, Row
from cannery.catalog.target import order, package_name
from cannery.compat.solve import Solver, offers
from cannery.compat.subject import (
    Finding,
    cited,
    departure,
    error,
    here,
    holds,
    judged,
    judging,
    keys_of,
    listed,
    note,
    other_number,
    phrase,
    rows_of,
    supporting,
    warning,
)
from cannery.lock.request import set_aside
from cannery.recipe.select import parse_pin, same_release
from cannery.vocab import BaseKind, Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from cannery.compat.subject import Subject


def fits(subject: Subject) -> Iterator[Finding]:
    """Check every release in the set whose distribution has rows in the table."""
    for name in subject.with_rows():
        version = subject.versions[name]
        rows = judging(subject, name)
        if rows:
            yield from _check_release(subject, name, version, rows)
        else:
            yield from _unknown(subject, name, version)


def asked(subject: Subject) -> Iterator[Finding]:
    """Report the rows of each release that is pinned on the command line, and sources that are unknown."""
    for name in (name for name, _version in map(parse_pin, subject.recipe.pins)):
        rows = [row for row in judging(subject, name) if subject.table.sources[row.source].rank is not Rank.BUILD]
        if rows:
            cells = {key: fit for row in reversed(rows) for key, fit in row.fits.items()}
            made = listed(phrase(key, fit) for key, fit in cells.items())
            yield note("row", f"{name} {subject.versions[name]} is made for {made}", cited(subject.table, rows))
    for source in subject.recipe.unknown:
        release, file = f"{source.name} {source.version}", f"images/components/{source.name}.yaml"
        fix = f"to lock and build it: `build.py facts {source.name}=={source.version}` adds it to releases in {file}"
        if rows_of(subject, source.package):
            what = f"no component lists the requirements of {release}: only the table is checked"
            yield note("release-unknown", what, fix=fix)
        else:
            what = f"neither a component nor a row of the table has {release}: whether it fits is unknown"
            yield warning("release-unknown", what, fix=fix)


def _check_release(subject: Subject, name: str, version: str, rows: Sequence[Row]) -> Iterator[Finding]:
    found = judged(subject, name, rows)
    wrong, beside = found.wrong, found.beside
    if beside:
        yield _disagree(subject, f"{name} {version}", rows, beside)
    if found.compatible:
        canns = listed((row.fits[CANN] for row in rows if CANN in row.fits), "or")
        yield note(
            "fit-compatible",
            f"{name} {version} is made for {phrase(CANN, canns)}; its makers list {subject.recipe.target.cann} as "
            f"compatible, but {found.compatible.but}",
            str(subject.table.sources[found.compatible.source]),
        )
    if CANN in wrong - beside.keys():
        other = _other_cann(subject, name, version, rows)
        # The error below lists the fixes for this CANN.
        yield replace(other, fix="") if wrong - {CANN} else other
    if wrong - {CANN}:
        yield _misfit(subject, name, version, wrong - {CANN}, rows)


def _misfit(subject: Subject, name: str, version: str, wrong: Collection[str], rows: Sequence[Row]) -> Finding:
    wants = {key: row.fits[key] for row in reversed(rows) for key in row.fits if key in wrong}
    keys = [key for key in dict.fromkeys(key for row in rows for key in row.fits) if key in wrong]
    have = listed([*(phrase(key, here(subject, key) or "") for key in keys), f"{name} {version}"])
    # The profile already overrides the table here, so a set from the table is not a fix.
    pins = subject.recipe.pins
    overrides = [o for o in subject.recipe.profile.overrides if set_aside(o.requirement, pins)]
    overrides = [o for o in overrides if package_name(o.requirement) in {name, *wrong}]
    within = listed(f"{o.requirement}, which the profile asks for ({o.reason})" for o in overrides) if overrides else ""
    return error(
        "fit",
        f"{have} do not fit: {name} {version} is made for {listed(phrase(key, wants[key]) for key in keys)}",
        cited(subject.table, [row for row in rows if wrong & row.fits.keys()]),
        f"pin a version in {within}" if within else offers(subject, name, rows, wrong, with_pins=True),
    )


def _other_cann(subject: Subject, name: str, version: str, rows: Sequence[Row]) -> Finding:
    near = min(departure(subject, row) for row in rows if CANN in row.fits)
    every = [row for row in rows_of(subject, name) if departure(subject, row) == near]
    every = [row for row in every if CANN in row.fits and not holds(CANN, row.fits[CANN], subject.recipe.target.cann)]
    canns = listed(sorted((row.fits[CANN] for row in every), key=order), "or")
    return warning(
        "fit-cann",
        f"{name} {version} is made for {phrase(CANN, canns)}, the target has {subject.recipe.target.cann}",
        cited(subject.table, every),
        offers(subject, name, rows, {CANN}),
    )


def _disagree(subject: Subject, release: str, rows: Sequence[Row], disputed: Mapping[str, Sequence[Row]]) -> Finding:
    """Return the warning about a release whose `rows` disagree on the keys of `disputed`.

    The values of `disputed` are rows of other releases that are made for this release and for the set's version of the
    key.
    """
    sources = subject.table.sources
    voices = [(str(sources[row.source]), row) for row in rows]
    others = (row for found in disputed.values() for row in found)
    voices += [(f"{row.name} {row.version}: {sources[row.source]}", row) for row in others]
    by_words: dict[str, dict[str, None]] = {}
    for who, row in voices:
        for key in (key for key in row.fits if key in disputed):
            by_words.setdefault(phrase(key, row.fits[key]), {})[who] = None
    has = f"this set has {listed(phrase(key, here(subject, key) or '') for key in sorted(disputed))}"
    ranks = {sources[row.source].rank for row in rows if disputed.keys() & row.fits.keys()}
    notes = [row.note for row in rows if row.note and disputed.keys() & row.fits.keys()]
    return warning(
        "fit-disagree",
        f"sources disagree about {release}: "
        + "; ".join(f"{words} ({'; '.join(who)})" for words, who in by_words.items()),
        f"{has}; of these sources the first weighs most" if len(ranks) > 1 else has,
        "; ".join(dict.fromkeys(notes)),
    )


def _unknown(subject: Subject, name: str, version: str) -> Iterator[Finding]:
    """Report a release without a row: a warning, or a note on a stand-in, which has no CANN.

    It is an error if the release extends another one: torch_npu X.Y.Z only works with torch X.Y.Z.
    """
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
    cann, near = subject.recipe.target.cann, _nearest(subject, name)
    if others := supporting(subject, name):
        who = listed(f"{row.name} {row.version}" for row in others)
        what = f"no row of {name} has {version}, but {who} asks for it on CANN {cann}"
        why = f"without it: {cited(subject.table, subject.rows[name])}; with it: {cited(subject.table, others)}"
        yield warning("fit-unknown", what, why, near)
        return
    fit = phrase(CANN, cann) if CANN in beside else listed(phrase(key, here(subject, key) or "") for key in beside)
    what = f"no row of the table has {name} {version}: whether it fits {fit} is unknown"
    advice = f"look for a newer table of {name}'s makers, and add its row to images/compatibility.yaml"
    severity = Severity.NOTE if subject.recipe.base.kind is BaseKind.STANDIN else Severity.WARNING
    yield Finding(severity, "fit-unknown", what, fix="; ".join(filter(None, (advice, near))))


def _ways_out(subject: Subject, name: str, key: str) -> str:
    """Offer the `key` with the number of the release, and the release with the number of the `key` in the set.

    What neither the table nor a component has may not exist, and is not offered.
    """
    base, present = Version(subject.versions[name]).base_version, Version(here(subject, key) or "").base_version
    of_number = []
    if _is_known(subject, key, base):
        of_number.append((subject.versions[name], base))
    if _is_known(subject, name, present) and not any(row.fits.get(key) == present for row in subject.rows[name]):
        of_number.append((present, present))
    source = subject.rows[name][0].source
    rows = [Row(of=f"{name}=={version}", fits={key: number}, source=source) for version, number in of_number]
    return offers(subject, name, rows, {key})


def _is_known(subject: Subject, name: str, version: str) -> bool:
    """Whether the table or the component of a distribution has a release."""
    described = [v for one in subject.recipe.wheels if one.package == name for v in one.component.metadata]
    return any(same_release(version, known) for known in (*Solver(subject).known(name), *described))


def _nearest(subject: Subject, name: str) -> str:
    """Return the releases of the same feature line in the table, with their CANN, or ""."""
    line = Version(subject.versions[name]).release[:2]
    rows = [row for row in subject.rows[name] if Version(row.version).release[:2] == line]
    rows.sort(key=lambda row: Version(row.version))
    words = [f"{row.version} (CANN {row.fits[CANN]})" if CANN in row.fits else row.version for row in rows]
    return f"nearest there: {', '.join(dict.fromkeys(words))}" if words else ""


RULES = (asked, fits)
