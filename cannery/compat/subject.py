"""What the rules look at, a recipe, the catalog it is from and its locks; and what they report: findings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from cannery.catalog.target import live, marker_environment, package_name
from cannery.lock.request import set_aside
from cannery.recipe.select import parse_pin
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.requirements import Requirement

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.compatibility import Compatibility, Row
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.recipe.recipe import Recipe
    from cannery.vocab import Arch


RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


@dataclass(frozen=True)
class Finding:
    """One finding: how much it weighs, a stable code, what is so, why that matters (with its source), what mends it."""

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


def error(code: str, what: str, why: str = "", fix: str = "") -> Finding:
    """Return a finding that stops a build."""
    return Finding(Severity.ERROR, code, what, why, fix)


def warning(code: str, what: str, why: str = "", fix: str = "") -> Finding:
    """Return a finding that may be a fault."""
    return Finding(Severity.WARNING, code, what, why, fix)


def note(code: str, what: str, why: str = "", fix: str = "") -> Finding:
    """Return a finding that is good to know."""
    return Finding(Severity.NOTE, code, what, why, fix)


@dataclass(frozen=True)
class Subject:
    """One set to judge. `locks` is empty while only the pins are looked at; `build_arch` is None where unknown."""

    recipe: Recipe
    catalog: Catalog
    locks: Mapping[Arch, Lock]
    build_arch: Arch | None = None
    # Versions that take the place of those of the recipe and its lock, of a proposed set.
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

    def live(self, texts: Iterable[str]) -> Iterator[Requirement]:
        """Give the requirements, PEP 508 texts, that count on the target."""
        target = self.recipe.target
        return live(texts, marker_environment(target.python, target.arch))
