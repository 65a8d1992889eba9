"""Findings: what the rules report about a version set, sorted, so that all of them are seen at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

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
