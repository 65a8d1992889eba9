"""Findings, and the set that they are about: a recipe, its catalog and locks, and what the compatibility table has.

The table is read here: which rows a release has, whether the set fits a row, and what a release is not made for. The
rule `fit` reports that in words, and the solver looks for sets that have nothing to report.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.compatibility import BOUND, CANN, DRIVER, PYTHON, Rank
from cannery.catalog.target import live, marker_environment, order, package_name, parsed_version, without_build
from cannery.lock.request import set_aside
from cannery.recipe.select import parse_pin, same_release, takes
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.compatibility import Compatibility, Compatible, Row
    from cannery.catalog.target import Key, PackageRequirement
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.recipe.recipe import Recipe
    from cannery.vocab import Arch

WORDS = {CANN: "CANN", PYTHON: "Python", DRIVER: "driver"}
WEIGHT = {rank: number for number, rank in enumerate(Rank)}
COMPARE: dict[str, Callable[[Key, Key], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}

RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


@dataclass(frozen=True)
class Finding:
    """One finding: its severity, a stable code, what is the case, why it matters (with its source), what to do."""

    severity: Severity
    code: str
    what: str
    why: str = ""
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.severity} [{self.code}] {self.what}"
        text += f"\n    why: {self.why}" if self.why else ""
        return text + (f"\n    fix: {self.fix}" if self.fix else "")


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings without repeats, errors first, then by code and text."""
    return tuple(sorted(set(findings), key=lambda f: (RANK[f.severity], f.code, f.what)))


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that stop a build."""
    return tuple(f for f in findings if f.severity is Severity.ERROR)


# A finding that stops a build, one that may be a fault, and one that needs no action.
error, warning, note = (partial(Finding, severity) for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE))


@dataclass(frozen=True)
class Subject:
    """One set to judge. `locks` is empty where only the pins are judged; `build_arch` is None where unknown."""

    recipe: Recipe
    catalog: Catalog
    locks: Mapping[Arch, Lock]
    build_arch: Arch | None = None
    # Versions of a proposed set, in place of those of the recipe and its lock.
    moved: Mapping[str, str] = field(default_factory=dict)

    def moved_to(self, versions: Mapping[str, str], cann: str = "") -> Subject:
        """Return the set with other versions of what is in it, and on another CANN when one is named."""
        target = replace(self.recipe.target, cann=cann) if cann else self.recipe.target
        return replace(self, recipe=replace(self.recipe, target=target), moved={**self.moved, **versions})

    @property
    def table(self) -> Compatibility:
        """The compatibility table."""
        return self.catalog.compatibility

    @property
    def rows(self) -> Mapping[str, tuple[Row, ...]]:
        """Normalised name → the table's rows of its releases, in the table's order."""
        return self.table.by_name

    def with_rows(self, *keys: str) -> list[str]:
        """Return the names of the set, sorted, that the table has rows of with all of `keys`."""
        wanted = {*keys}
        return sorted(
            name
            for name, rows in self.rows.items()
            if name in self.versions and any(wanted <= row.fits.keys() for row in rows)
        )

    @property
    def lock(self) -> Lock | None:
        """The lock of the recipe's own arch, when it is there."""
        return self.locks.get(self.recipe.target.arch)

    @property
    def packages(self) -> tuple[LockedPackage, ...]:
        """The packages of that lock; empty while there is none."""
        return self.lock.packages if self.lock else ()

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """Normalised name → version of all that would be installed: the lock's and the sources', else the pins."""
        pinned = {c.package: c.version for c in self.recipe.chosen if c.version and c.component.kind.is_package}
        if self.lock is None:
            return {**dict(map(parse_pin, self.recipe.pins)), **pinned, **self.moved}
        sources = {c.package: c.version for c in self.recipe.sources if c.version}
        return {**sources, **{p.name: p.version for p in self.packages}, **self.moved}

    @cached_property
    def overridden(self) -> frozenset[str]:
        """Normalised names of what the profile overrides and no pin by hand sets aside, and of substitutes."""
        texts = [o.requirement for o in self.recipe.profile.overrides if not set_aside(o.requirement, self.recipe.pins)]
        names = {one.name for one in self.recipe.substitutes}
        return frozenset([*map(package_name, texts), *(c.package for c in self.recipe.chosen if c.name in names)])

    def live(self, texts: Iterable[str]) -> Iterator[PackageRequirement]:
        """Yield the requirements, PEP 508 texts, that count on the target."""
        target = self.recipe.target
        return live(texts, marker_environment(target.python, target.arch))


def rows_of(subject: Subject, name: str) -> tuple[Row, ...]:
    """Return the rows of the release of `name` that is in the set, the weightiest source first."""
    found = [row for row in subject.rows.get(name, ()) if same_release(row.version, subject.versions[name])]
    return tuple(sorted(found, key=lambda row: weight(subject.table, row)))


def judging(subject: Subject, name: str) -> tuple[Row, ...]:
    """Return, of each source's `rows_of` a release, the one that the set departs from least.

    Several rows of one source are sets to choose from, so the others do not contradict this one.
    """
    closest: dict[str, Row] = {}
    for row in rows_of(subject, name):
        other = closest.setdefault(row.source, row)
        if departure(subject, row) < departure(subject, other):
            closest[row.source] = row
    return tuple(closest.values())


def departure(subject: Subject, row: Row) -> int:
    """Return how far the set is from a row. CANN weighs least: sets that no table has are in use."""
    wrong = [key for key in row.fits if not is_held(subject, row, (key,))]
    return sum(1 if key == CANN else 2 for key in wrong)


def is_held(subject: Subject, row: Row, keys: Iterable[str]) -> bool:
    """Whether the set fits a row's cells `keys`. A cell that the row or the set does not have fits."""
    cells = [(key, row.fits[key], here(subject, key)) for key in keys if key in row.fits]
    return all(version is None or holds(key, wanted, version) for key, wanted, version in cells)


def keys_of(subject: Subject, name: str) -> tuple[str, ...]:
    """Return the keys that rows of `name` have, without the driver and Python."""
    keys = dict.fromkeys(key for row in subject.rows.get(name, ()) for key in row.fits)
    return tuple(key for key in keys if key not in {PYTHON, DRIVER})


def followed(subject: Subject, name: str) -> tuple[str, ...]:
    """Return the distributions whose number the releases of `name` carry, in every row that has them.

    torch_npu X.Y.Z is an extension of torch X.Y.Z, and works with no other release.
    """
    rows = subject.rows.get(name, ())
    return tuple(
        key
        for key in keys_of(subject, name)
        if key != CANN
        and all(parsed_version(row.version).base_version == row.fits[key] for row in rows if key in row.fits)
    )


def weight(table: Compatibility, row: Row) -> int:
    """Return the place of the row's source among the ranks; the least weighs most."""
    return WEIGHT[table.sources[row.source].rank]


def here(subject: Subject, key: str) -> str | None:
    """Return what the set has for a key of a row: a version, the CANN, the Python; None when it has nothing.

    The driver is the host's, so it is always None.
    """
    target = subject.recipe.target
    known = {CANN: target.cann, PYTHON: target.python, DRIVER: None}
    return known[key] if key in known else subject.versions.get(key)


def holds(key: str, wanted: str, version: str) -> bool:
    """Whether `version` fits the cell `wanted` of `key`. Of `driver` a version alone is the oldest that works."""
    if key == DRIVER:
        cell = wanted if BOUND.match(wanted) else f">={wanted}"
        bounds = [BOUND.fullmatch(part.strip()) for part in cell.split(",")]
        asked = [(match[1], order(match[2])) if match else ("", ()) for match in bounds]
        return all(bound and COMPARE[sign](order(version), bound) for sign, bound in asked)
    if key == CANN and wanted[0].isdigit():
        return without_build(wanted) == without_build(version)
    if key == PYTHON and wanted[0].isdigit():
        return wanted == version
    return takes(wanted, version)


def phrase(key: str, wanted: str) -> str:
    """Return a cell of a row in words: `torch 2.7.1`, `Python >=3.9,<3.12`, `CANN 8.5.0`."""
    return f"{WORDS.get(key, key)} {wanted}"


def listed(words: Iterable[str], last: str = "and") -> str:
    """Return words as a sentence has them: `a`, `a and b`, `a, b and c`."""
    *before, end = dict.fromkeys(words)
    return f"{', '.join(before)} {last} {end}" if before else end


def cited(table: Compatibility, rows: Iterable[Row]) -> str:
    """Return the sources of rows with their dates, each once."""
    return "; ".join(dict.fromkeys(str(table.sources[row.source]) for row in rows))


@dataclass(frozen=True)
class Judgement:
    """The judgement of one release: the keys that are `wrong` here, and those about which sources disagree.

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
        naming = [row for row in rows if key in row.fits]
        agreeing = [row for row in naming if is_held(subject, row, (key,))]
        if len(agreeing) == len(naming):
            continue
        if key == CANN:
            cann = subject.recipe.target.cann
            listed_as = [subject.table.compatible_with(name, row.fits[CANN], cann) for row in naming]
            if found := next(filter(None, listed_as), None):
                compatible = None if agreeing else found
                continue
        others = () if key in fixed else supporting(subject, name, key)
        ranks = [subject.table.sources[row.source].rank for row in naming]
        if {*ranks} == {Rank.BUILD} and any(judging(subject, other) for other in subject.with_rows(name, key)):
            continue  # all are of another build, and a release of the set with a row of its own decides
        if agreeing or others:
            beside[key] = others
        # A page or an image alone does not outweigh the release's own metadata.
        is_weak = bool(agreeing) and subject.table.sources[agreeing[0].source].rank is Rank.DOCUMENT
        if not others and (not agreeing or (is_weak and ranks[0] is Rank.METADATA)):
            wrong.add(key)
    return Judgement(frozenset(wrong), beside, compatible)


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
    """Yield (distribution, key) for all that the rows contradict: what `fit` reports as errors, and other CANNs."""
    for name in subject.with_rows():
        rows = judging(subject, name)
        if rows:
            found = judged(subject, name, rows)
            # A CANN that sources disagree about is no reason to move anything.
            yield from ((name, key) for key in sorted(found.wrong - ({CANN} & found.beside.keys())))
        elif other := other_number(subject, name):
            yield name, other
