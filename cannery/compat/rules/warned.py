"""What a profile itself warns of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.findings import Finding
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject


def warned(subject: Subject) -> Iterator[Finding]:
    """The profile's own warnings, each a finding."""
    for item in subject.recipe.profile.warnings:
        yield Finding(Severity.WARNING, "profile", item.what, f"{subject.recipe.file}: {item.reason}")
