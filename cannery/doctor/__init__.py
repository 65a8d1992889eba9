"""`doctor`: judges a host by small pure functions over what it shows; `CHECKS` lists them, in the order printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.doctor.check import State
from cannery.doctor.devices import access, cards, chip, image_user, managers, smi
from cannery.doctor.driver import files, firmware, folders, version
from cannery.doctor.machine import (
    disk,
    docker,
    emulation,
    hccn,
    inside,
    kernel,
    memory,
    overlay,
    page_size,
    ranktable,
    runtime,
    shared_memory,
    users,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cannery.doctor.check import Check, Wanted
    from cannery.host.facts import HostFacts

CHECKS: tuple[Callable[[HostFacts, Wanted], Iterator[Check]], ...] = (
    inside,
    cards,
    managers,
    access,
    image_user,
    chip,
    files,
    folders,
    version,
    firmware,
    smi,
    docker,
    users,
    runtime,
    overlay,
    disk,
    emulation,
    kernel,
    page_size,
    memory,
    shared_memory,
    hccn,
    ranktable,
)


def diagnose(facts: HostFacts, wanted: Wanted) -> tuple[Check, ...]:
    """Return every check of a host, in order. What it does not show is `unknown`, never ok."""
    return tuple(found for check in CHECKS for found in check(facts, wanted))


def counts(checks: Sequence[Check]) -> dict[State, int]:
    """Return how many checks have each state."""
    return {state: sum(check.state is state for check in checks) for state in State}


def report_lines(checks: Sequence[Check]) -> Iterator[str]:
    """Yield a line a check, with its next step below it, and the counts at the end."""
    width = max((len(check.id) for check in checks), default=0)
    for check in checks:
        yield f"{check.state:<8} {check.id:<{width}}  {check.message}"
        if check.next:
            yield f"{'':<8} {'':<{width}}  → {check.next}"
    found = counts(checks)
    yield ", ".join(f"{number} {state}" for state, number in found.items() if number)
