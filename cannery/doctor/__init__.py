"""`doctor`: checks a host with small pure functions over its facts. `CHECKS` lists them in the order of printing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.doctor import machine, npus
from cannery.doctor.check import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cannery.doctor.check import Check, Wanted
    from cannery.host.facts import HostFacts

CHECKS: tuple[Callable[[HostFacts, Wanted], Iterator[Check]], ...] = (
    machine.inside,
    npus.cards,
    npus.managers,
    npus.access,
    npus.image_user,
    npus.chip,
    npus.files,
    npus.folders,
    npus.version,
    npus.firmware,
    npus.smi,
    machine.docker,
    machine.sandbox,
    machine.users,
    machine.runtime,
    machine.overlay,
    machine.disk,
    machine.emulation,
    machine.kernel,
    machine.page_size,
    machine.memory,
    machine.shared_memory,
    machine.hccn,
    machine.ranktable,
)


def diagnose(facts: HostFacts, wanted: Wanted) -> tuple[Check, ...]:
    """Return all checks of a host, in order. A fact that the host does not show is `unknown`, never ok."""
    return tuple(found for check in CHECKS for found in check(facts, wanted))


def counts(checks: Sequence[Check]) -> dict[State, int]:
    """Return how many checks have each state."""
    return {state: sum(check.state is state for check in checks) for state in State}


def report_lines(checks: Sequence[Check]) -> Iterator[str]:
    """Yield a line for each check, its next step below it, and the counts at the end."""
    width = max((len(check.id) for check in checks), default=0)
    for check in checks:
        yield f"{check.state:<8} {check.id:<{width}}  {check.message}"
        if check.next:
            yield f"{'':<8} {'':<{width}}  → {check.next}"
    found = counts(checks)
    yield ", ".join(f"{number} {state}" for state, number in found.items() if number)
