"""What a profile bends is always shown, with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.core.findings import Finding
from cannery.core.words import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.core.rules.subject import Subject


def overrides(subject: Subject) -> Iterator[Finding]:
    """An override bends what packages ask for."""
    for override in subject.recipe.profile.overrides:
        yield Finding(Severity.NOTE, "override", f"{override.requirement} overrides what packages ask", override.reason)
