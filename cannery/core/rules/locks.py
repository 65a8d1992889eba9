"""What a lock leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.core.findings import Finding
from cannery.core.words import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.core.rules.subject import Subject


def incomplete(subject: Subject) -> Iterator[Finding]:
    """A package without a hash can be checked, not built."""
    for package in subject.packages:
        if not package.complete:
            yield Finding(
                Severity.WARNING,
                "lock-incomplete",
                f"{package.name} {package.version} is locked by version only: index {package.index} was not reached",
                "its wheel and hash stand on that index alone",
                f"run `python build.py lock` for this profile where index {package.index} can be reached",
            )
