"""torch is held: torch_npu trails it by months, and a resolver that is left free takes the newest one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cannery.catalog.compatibility import CANN
from cannery.compat.findings import Finding, error
from cannery.compat.table import here, holds, listed
from cannery.recipe.bounds import TORCH, TORCH_NPU

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject

EXACT = {"==", "==="}
OFFERED = 3


def torch_free(subject: Subject) -> Iterator[Finding]:
    """Refuse a set with torch in which no pin, bound, override or source decides which torch."""
    who = sorted(_wanting(subject))
    if not who or any(_exact(text) for text in _bounds(subject)):
        return
    cann = subject.recipe.target.cann
    rows = [row for row in subject.rows.get(TORCH_NPU, ()) if {CANN, TORCH} <= row.fits.keys()]
    pairs = [
        f"{TORCH} {row.fits[TORCH]} with {TORCH_NPU} {row.version}" for row in rows if holds(CANN, row.fits[CANN], cann)
    ]
    known = f"; for CANN {cann} the table has {', or '.join(pairs[:OFFERED])}" if pairs else ""
    yield error(
        "torch-free",
        f"nothing holds {TORCH}, and {listed(who)} {'needs' if len(who) == 1 else 'need'} it: "
        f"a resolver takes the newest one",
        f"{TORCH_NPU} trails {TORCH} by months (flagos-ai/sglang-plugin-FL issue 14)",
        f"pin {TORCH} in {subject.recipe.file}{known}",
    )


def _wanting(subject: Subject) -> set[str]:
    """The parts that need torch: itself, torch_npu, what has rows about it, and sources that ask for it."""
    made_for = {name for name, rows in subject.rows.items() if any(TORCH in row.fits for row in rows)}
    made_for |= {TORCH, TORCH_NPU}
    found: set[str] = {c.name for c in subject.recipe.chosen if c.package in made_for}
    for chosen in subject.recipe.sources:
        asked = subject.live(chosen.known.requires if chosen.known else ())
        found |= {chosen.name for one in asked if canonicalize_name(one.name) == TORCH}
    return found or ({TORCH} if here(subject, TORCH) else set())


def _bounds(subject: Subject) -> Iterator[Requirement]:
    """Everything that may decide which torch: pins, what follows from the table, the profile, sources."""
    recipe, profile = subject.recipe, subject.recipe.profile
    pins = [c.requirement for c in recipe.wheels if c.version]
    bent = [item.requirement for item in (*profile.constraints, *profile.overrides)]
    yield from map(Requirement, (*pins, *recipe.pins, *recipe.held))
    yield from subject.live(bent)
    for chosen in recipe.sources:
        yield from subject.live(chosen.known.requires if chosen.known else ())


def _exact(requirement: Requirement) -> bool:
    operators = {part.operator for part in requirement.specifier}
    return canonicalize_name(requirement.name) == TORCH and bool(operators & EXACT)
