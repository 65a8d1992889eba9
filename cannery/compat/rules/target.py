"""Whether the target exists, as a CANN image, whether each part runs on its Python, and which driver a set asks for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from packaging.specifiers import SpecifierSet

from cannery.catalog.compatibility import DRIVER, PYTHON, Rank
from cannery.catalog.versions import order, without_build
from cannery.compat.findings import Finding, error, note, warning
from cannery.compat.table import cited, departure, holds, judging, listed
from cannery.util.image_reference import parse_reference
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.catalog.compatibility import Row
    from cannery.catalog.target import Target
    from cannery.catalog.versions import Key
    from cannery.compat.subject import Subject

OFFERED = 8
# A tag as CANN images have it: <cann>-<chip>-<os>-py<python>, and whatever follows.
TAG = re.compile(
    r"(?P<cann>\d+\.\d+(?:\.\w+)?)-(?P<chip>910b|910|a3|310p|950\w*|a5)-(?P<os>[a-z_]+[\d.]+)-py(?P<python>3\.\d+)"
)


def base_tag(subject: Subject) -> Iterator[Finding]:
    """CANN images exist for some combinations of chip, OS and Python only."""
    base, target = subject.recipe.base, subject.recipe.target
    if base.found is not None:
        return
    rest = target.base_tag.removeprefix(without_build(target.cann))
    same = [tag for line in subject.catalog.bases.values() for tag in line.tags if tag.endswith(rest)]
    elsewhere = f"; {', '.join(near(same, target))} of other CANN lines" if same else ""
    yield error(
        "base-tag",
        f"no CANN image {base.tag_name} exists",
        f"images/bases/{base.line.cann}.yaml: {base.line.source}",
        f"existing: {', '.join(near(tuple(base.line.tags), target))}{elsewhere}",
    )


def custom_base(subject: Subject) -> Iterator[Finding]:
    """Hold the tag of the user's own base against the target: copies of CANN images under other names keep it."""
    recipe, target = subject.recipe, subject.recipe.target
    if recipe.base.kind is not BaseKind.CUSTOM:
        return
    (reference,) = recipe.base.references
    found = TAG.search(parse_reference(reference).tag.lower())
    named = found.groupdict() if found else {}
    if named:
        named["chip"] = "950" if named["chip"].startswith(("950", "a5")) else named["chip"]
    mine = {"cann": without_build(target.cann), "chip": str(target.chip), "os": target.os, "python": target.python}
    wrong = {name: value for name, value in named.items() if value != mine[name]}
    if wrong:
        words = ", ".join(f"{name} {value} (target: {mine[name]})" for name, value in wrong.items())
        fix = " ".join(f"{name.upper()}={value}" for name, value in wrong.items())
        yield warning("base.tag", f"the tag of {reference} names {words}", "checks and locks are the target's", fix)


def near(tags: Sequence[str], target: Target) -> list[str]:
    """Return up to eight tags, those first that have most parts of the target's."""
    parts = {*target.base_tag.split("-")}
    return sorted(tags, key=lambda tag: (-len(parts & {*tag.split("-")}), tag))[:OFFERED]


class Range(NamedTuple):
    """The Pythons of a release, the source of that, and whether it is only a page or an image."""

    wanted: str
    source: str
    is_weak: bool = False


def pythons(subject: Subject) -> Iterator[Finding]:
    """Refuse what does not run on the target's Python.

    Both have to hold, a source's own metadata and the weightiest row: a package without an upper bound may still not
    work with the next Python. A page alone against the package's own metadata is a disagreement.
    """
    target = subject.recipe.target
    own, rows = _own(subject), _rows(subject)
    for name in sorted({*own, *rows}):
        ranges = [*rows.get(name, []), *own.get(name, [])]
        deciding = [*rows.get(name, [])[:1], *own.get(name, [])]
        wrong = [one for one in deciding if not _contains(one.wanted, target.python)]
        heavy = wrong if len(wrong) == len(deciding) else [one for one in wrong if not one.is_weak]
        release = f"{name} {subject.versions[name]}"
        if heavy:
            yield error(
                "python-range",
                f"{release} does not fit Python {target.python}: it is for Python {heavy[0].wanted}",
                heavy[0].source,
                _bases(subject, heavy[0].wanted),
            )
        elif not all(_contains(one.wanted, target.python) for one in ranges):
            yield warning(
                "fit-disagree",
                f"sources disagree about the Pythons of {release}: "
                + "; ".join(f"{one.wanted} ({one.source})" for one in ranges),
                f"the target has Python {target.python}",
            )


def _own(subject: Subject) -> dict[str, list[Range]]:
    """Distribution → the Pythons of a source's metadata at its commit or release."""
    return {
        one.package: [Range(one.known.requires_python, f"images/components/{one.name}.yaml: {one.known.source}")]
        for one in subject.recipe.sources
        if one.known and one.known.requires_python and one.package in subject.versions
    }


def _rows(subject: Subject) -> dict[str, list[Range]]:
    """Distribution → the Pythons of its release in rows of the table, the weightiest source first."""
    sources = subject.table.sources
    return {
        name: [
            Range(row.fits[PYTHON], str(sources[row.source]), sources[row.source].rank is Rank.DOCUMENT)
            for row in judging(subject, name)
            if PYTHON in row.fits
        ]
        for name in subject.with_rows(PYTHON)
    }


def _contains(wanted: str, python: str) -> bool:
    """Whether Pythons `X.Y` are in a range or are the ones named; a bound like >=3.9.2 leaves out no later patch."""
    if wanted[0].isdigit():
        return holds(PYTHON, wanted, python)
    return SpecifierSet(wanted).contains(python) or SpecifierSet(wanted).contains(f"{python}.99")


def _bases(subject: Subject, wanted: str) -> str:
    """Name the CANN images whose Python fits, those first that are most like the target's."""
    tags = [
        tag
        for line in subject.catalog.bases.values()
        for tag, found in line.tags.items()
        if _contains(wanted, ".".join(found.python.split(".")[:2]))
    ]
    return (
        f"bases that fit: {', '.join(near(tags, subject.recipe.target))}" if tags else "no CANN image has such a Python"
    )


def driver(subject: Subject) -> Iterator[Finding]:
    """Name the oldest driver that every release of the set works with, by the rows that the set is in."""
    deciding = asking(subject)
    if deciding:
        cell = deciding[0].fits[DRIVER]
        wanted = f"{cell} or newer" if cell[0].isdigit() else cell
        yield note(
            "driver",
            f"the host needs driver {wanted}: {who(deciding)} asks for it",
            cited(subject.table, deciding),
        )


def who(rows: Sequence[Row]) -> str:
    """Return the releases of rows, in words."""
    return listed(f"{row.name} {row.version}" for row in rows)


def asking(subject: Subject) -> list[Row]:
    """Return the rows, of those that the set is in, that ask for the newest driver; empty when none asks for any."""
    rows = [
        row
        for name in subject.with_rows(DRIVER)
        for row in judging(subject, name)
        if DRIVER in row.fits and not departure(subject, row)
    ]
    newest = max((row.fits[DRIVER] for row in rows), key=_oldest, default="")
    return [row for row in rows if row.fits[DRIVER] == newest]


def _oldest(cell: str) -> Key:
    """Return the order of a cell's lower bound among drivers; of a range it is the first one."""
    return order(cell.partition(",")[0].lstrip(">=< "))
