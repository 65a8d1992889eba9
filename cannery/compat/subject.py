"""Findings, the set that they are about, and the reading of the compatibility table.

The functions here return which rows a release has, whether the set meets a row, and what a release is not made for.
The rule `fit` reports this, and the solver searches for sets without such a finding.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.compatibility import BOUND, CANN, DRIVER, PYTHON, Rank
from cannery.catalog.target import live, marker_environment, order, package_name, without_build
from cannery.lock.request import set_aside
from cannery.recipe.select import parse_pin, takes
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.compatibility import Compatibility, Compatible, Row
    from cannery.catalog.target import Key, PackageRequirement
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.recipe.recipe import ChosenSource, Recipe
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
    """One finding: its severity, a stable code, what is wrong, why it matters (with its source), and what to do."""

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


# Make a finding: one that stops a build, one that may be a problem, and one that needs no action.
error, warning, note = (partial(Finding, severity) for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE))


@dataclass(frozen=True)
class Subject:
    """One set to check. Without `locks`, only the pins are checked; `build_arch` is None if unknown."""

    recipe: Recipe
    catalog: Catalog
    locks: Mapping[Arch, Lock]
    build_arch: Arch | None = None
    # Every version of a proposed set, which replace those of the recipe and its lock.
    proposed: Mapping[str, str] = field(default_factory=dict)

    def moved_to(self, versions: Mapping[str, str], cann: str = "") -> Subject:
        """Return the set with other versions of its packages, and on CANN `cann` if that is given."""
        target = replace(self.recipe.target, cann=cann) if cann else self.recipe.target
        recipe = self.recipe if target == self.recipe.target else replace(self.recipe, target=target)
        return replace(self, recipe=recipe, proposed={**self.versions, **versions})

    @property
    def table(self) -> Compatibility:
        """The compatibility table."""
        return self.catalog.compatibility

    @property
    def rows(self) -> Mapping[str, tuple[Row, ...]]:
        """Normalised name → its rows, in the table's order."""
        return self.table.by_name

    def with_rows(self, *keys: str) -> list[str]:
        """Return the sorted names in the set that have a row with all of `keys`."""
        wanted, versions = {*keys}, self.versions
        known = ((name, sets) for name, sets in self.table.key_sets.items() if name in versions)
        return sorted(name for name, sets in known if any(wanted <= keys for keys in sets))

    @property
    def lock(self) -> Lock | None:
        """The lock for the recipe's arch, if there is one."""
        return self.locks.get(self.recipe.target.arch)

    @property
    def packages(self) -> tuple[LockedPackage, ...]:
        """The packages of that lock; empty without a lock."""
        return self.lock.packages if self.lock else ()

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """Normalised name → version of everything to install: from the lock and the sources, or from the pins."""
        if self.proposed:
            return self.proposed
        pinned = {c.package: c.version for c in self.recipe.chosen if c.version and c.component.kind.is_package}
        if self.lock is None:
            return {**dict(map(parse_pin, self.recipe.pins)), **pinned}
        sources = {c.package: c.version for c in self.recipe.sources if c.version}
        return {**sources, **{p.name: p.version for p in self.packages}}

    @cached_property
    def overridden(self) -> frozenset[str]:
        """Normalised names of overrides that no pin on the command line replaces, and of substitutes."""
        texts = [o.requirement for o in self.recipe.profile.overrides if not set_aside(o.requirement, self.recipe.pins)]
        names = {one.name for one in self.recipe.substitutes}
        return frozenset([*map(package_name, texts), *(c.package for c in self.recipe.chosen if c.name in names)])

    @cached_property
    def asks(self) -> tuple[tuple[ChosenSource, PackageRequirement], ...]:
        """The requirements of the sources that apply on the target, each with its source."""
        known = ((who, who.known) for who in self.recipe.sources)
        return tuple((who, asked) for who, one in known if one for asked in self.live(one.requires))

    def live(self, texts: Iterable[str]) -> Iterator[PackageRequirement]:
        """Yield the requirements in `texts` that apply on the target."""
        target = self.recipe.target
        return live(texts, marker_environment(target.python, target.arch))


def rows_of(subject: Subject, name: str) -> tuple[Row, ...]:
    """Return the rows of the set's release of `name`, the weightiest source first."""
    return tuple(sorted(subject.table.rows_of(name, subject.versions[name]), key=partial(weight, subject.table)))


def judging(subject: Subject, name: str) -> tuple[Row, ...]:
    """Return the rows that count for a release: from each source, the one nearest to the set.

    Several rows of one source are alternatives, so the other rows do not contradict it.
    """
    by_source: dict[str, list[Row]] = {}
    for row in rows_of(subject, name):
        by_source.setdefault(row.source, []).append(row)
    closest = partial(min, key=partial(departure, subject))
    return tuple(closest(rows) if len(rows) > 1 else rows[0] for rows in by_source.values())


def departure(subject: Subject, row: Row) -> int:
    """Return the distance from the set to a row. CANN weighs least, because sets on another CANN are in use."""
    return sum(1 if key == CANN else 2 for key in unmet(subject, row))


def unmet(subject: Subject, row: Row) -> dict[str, str]:
    """Return the cells of a row that the set does not meet."""
    return {key: wanted for key, wanted in row.fits.items() if not is_held(subject, row, key)}


def is_held(subject: Subject, row: Row, *keys: str) -> bool:
    """Whether the set meets the cells `keys` of a row. A cell that is missing in the row or the set counts as met."""
    for key in keys:
        wanted, version = row.fits.get(key), here(subject, key)
        if wanted is not None and version is not None and not holds(key, wanted, version):
            return False
    return True


def keys_of(subject: Subject, name: str) -> tuple[str, ...]:
    """Return the keys in the rows of `name`, without driver and Python."""
    keys = dict.fromkeys(key for row in subject.rows.get(name, ()) for key in row.fits)
    return tuple(key for key in keys if key not in {PYTHON, DRIVER})


def weight(table: Compatibility, row: Row) -> int:
    """Return the rank of a row's source as a number; the lowest weighs most."""
    return WEIGHT[table.sources[row.source].rank]


def here(subject: Subject, key: str) -> str | None:
    """Return the set's version for a key of a row (a distribution, CANN or Python), or None.

    The driver belongs to the host, so it is always None.
    """
    if key in WORDS:
        target = subject.recipe.target
        return {CANN: target.cann, PYTHON: target.python}.get(key)
    return subject.versions.get(key)


def holds(key: str, wanted: str, version: str) -> bool:
    """Whether `version` meets the cell `wanted` of `key`. For `driver`, a plain version is the oldest that works."""
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
    """Return a cell of a row as a text: `torch 2.7.1`, `Python >=3.9,<3.12`, `CANN 8.5.0`."""
    return f"{WORDS.get(key, key)} {wanted}"


def listed(words: Iterable[str], last: str = "and") -> str:
    """Return words as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    *before, end = dict.fromkeys(words)
    return f"{', '.join(before)} {last} {end}" if before else end


def cited(table: Compatibility, rows: Iterable[Row]) -> str:
    """Return the sources of rows with their dates, each once."""
    return "; ".join(dict.fromkeys(str(table.sources[row.source]) for row in rows))


@dataclass(frozen=True)
class Judgement:
    """The result of checking one release: the `wrong` keys, and the keys that sources disagree about (`beside`).

    The values of `beside` are rows of other releases that are made for this release and for the set's version of the
    key. `compatible`: no row names the CANN, but the makers state that the release works with it.
    """

    wrong: frozenset[str]
    beside: Mapping[str, tuple[Row, ...]]
    compatible: Compatible | None = None


def judged(subject: Subject, name: str, rows: Sequence[Row]) -> Judgement:
    """Check the release of `name` against `rows`, the weightiest first."""
    fixed = {*subject.table.followed[name]}
    beside: dict[str, tuple[Row, ...]] = {}
    wrong: set[str] = set()
    compatible: Compatible | None = None
    excused = {PYTHON, DRIVER} | (subject.overridden - fixed)
    for key in sorted({key for row in rows for key in row.fits} - excused):
        naming = [row for row in rows if key in row.fits]
        agreeing = [row for row in naming if is_held(subject, row, key)]
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
            continue  # these rows are of another build, and another release in the set has its own row for this key
        if agreeing or others:
            beside[key] = others
        # A page or an image does not outweigh the metadata of the release.
        is_weak = bool(agreeing) and subject.table.sources[agreeing[0].source].rank is Rank.DOCUMENT
        if not others and (not agreeing or (is_weak and ranks[0] is Rank.METADATA)):
            wrong.add(key)
    return Judgement(frozenset(wrong), beside, compatible)


def supporting(subject: Subject, name: str, key: str = CANN) -> tuple[Row, ...]:
    """Return the rows of other releases in the set that are made for the set's `name` and `key`."""
    rows = (row for other in subject.with_rows(name, key) for row in judging(subject, other))
    return tuple(row for row in rows if {name, key} <= row.fits.keys() and is_held(subject, row, name, key))


def on_cann(subject: Subject, name: str, versions: Iterable[str]) -> list[str]:
    """Return the `versions` that `judged` can find to fit the CANN of the target, if other packages of the set move."""
    table, cann = subject.table, subject.recipe.target.cann
    others = (row for other in subject.with_rows(name, CANN) for row in subject.rows[other])
    supporting = [row.fits[name] for row in others if {name, CANN} <= row.fits.keys() and is_held(subject, row, CANN)]

    def can_fit(version: str) -> bool:
        rows = table.rows_of(name, version)
        naming = [row for row in rows if CANN in row.fits]
        if any(is_held(subject, row, CANN) or table.compatible_with(name, row.fits[CANN], cann) for row in naming):
            return True
        # A source with a row that names no CANN may be judged by that row.
        always = {row.source for row in naming} - {row.source for row in rows if CANN not in row.fits}
        is_weak = all(table.sources[source].rank is Rank.BUILD for source in always)
        return is_weak or any(takes(cell, version) for cell in supporting)

    return [version for version in versions if can_fit(version)]


def other_number(subject: Subject, name: str) -> str:
    """Return the distribution that a release without a row conflicts with, or "": torch_npu X.Y.Z needs torch X.Y.Z."""
    if not any(here(subject, key) for key in keys_of(subject, name)):
        return ""
    base = Version(subject.versions[name]).base_version
    others = (key for key in subject.table.followed[name] if Version(here(subject, key) or base).base_version != base)
    return next(others, "")


def misfits(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield (distribution, key) that the rows contradict: the errors of `fit`, and a CANN that does not match."""
    for name in subject.with_rows():
        rows = judging(subject, name)
        if rows:
            found = judged(subject, name, rows)
            # If sources disagree about the CANN, nothing has to change.
            yield from ((name, key) for key in sorted(found.wrong - ({CANN} & found.beside.keys())))
        elif other := other_number(subject, name):
            yield name, other
