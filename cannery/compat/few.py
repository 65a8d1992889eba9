"""Notes kept few: what is to be read stands among what is merely good to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.findings import Finding, in_order
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 3


def few(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in order, more than three notes of one code made one; nothing that they say is lost."""
    found = in_order(findings)
    notes: dict[str, list[Finding]] = {}
    for finding in found:
        if finding.severity is Severity.NOTE:
            notes.setdefault(finding.code, []).append(finding)
    merged = [
        Finding(Severity.NOTE, code, f"{len(same)}: " + "; ".join(f.what for f in same), *_rest(same))
        for code, same in notes.items()
        if len(same) > MOST
    ]
    return in_order(
        [*(f for f in found if len(notes.get(f.code, ())) <= MOST or f.severity is not Severity.NOTE), *merged]
    )


def _rest(same: list[Finding]) -> tuple[str, str]:
    whys, fixes = (
        dict.fromkeys(text for text in texts if text) for texts in ((f.why for f in same), (f.fix for f in same))
    )
    return "; ".join(whys), "; ".join(fixes)
