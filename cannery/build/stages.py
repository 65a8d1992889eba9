"""The rows of the progress view: steps put together by stage."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.build.progress import Status, busy_seconds, counts
from cannery.build.stepname import SETUP

if TYPE_CHECKING:
    from cannery.build.progress import BuildState, Step
    from cannery.build.stepname import StepName

ENDED = frozenset({Status.CACHED, Status.DONE, Status.FAILED, Status.CANCELLED})
FLAGS = re.compile(r"(?<=\s)--(?:mount|network|security)(?:=\S+)?\s+")


@dataclass(frozen=True)
class Stage:
    """One stage of one target and platform; times are seconds.

    `instruction` is what it is at (or failed in), without the flags (mounts, network) that say nothing of the work.
    """

    label: str
    status: Status
    seconds: float
    bytes: int
    instruction: str
    cached: int
    total: int
    ended: float | None

    @property
    def shown(self) -> bool:
        """Reading the bake file, Dockerfile and .dockerignore takes milliseconds: shown only when it fails."""
        return self.label.rpartition(":")[2] != SETUP or self.status is Status.FAILED


def stages(state: BuildState) -> tuple[Stage, ...]:
    """Return the stages in the order in which the stream named them first."""
    groups: dict[str, list[Step]] = {}
    labels = labeller(state)
    for step in state.steps:
        groups.setdefault(labels(step.name), []).append(step)
    return tuple(_stage(label, steps, state.now) for label, steps in groups.items())


class labeller:  # noqa: N801 - a function with a memory of the state, used as one
    """Name a stage: with its target when there are several targets, with its platform when there are several."""

    def __init__(self, state: BuildState) -> None:
        names = [step.name for step in state.steps]
        self._targets = len({name.target for name in names if name.target}) > 1
        self._platforms = len({name.platform for name in names if name.platform}) > 1

    def __call__(self, name: StepName) -> str:
        """Return the label; "image" for the stage of a Dockerfile that has only one."""
        target = f"{name.target}:" if self._targets and name.target else ""
        platform = f" ({name.platform})" if self._platforms and name.platform else ""
        return f"{target}{name.stage or 'image'}{platform}"


def _stage(label: str, steps: list[Step], now: float) -> Stage:
    status = _status(steps)
    wanted = {Status.FAILED, Status.RUNNING}
    current = next((step for step in steps if step.status in wanted), steps[-1])
    ends = [step.completed for step in steps if step.completed is not None]
    cached, total = counts(steps)
    return Stage(
        label=label,
        status=status,
        seconds=busy_seconds((span for step in steps for span in step.intervals), now),
        bytes=sum(step.bytes for step in steps),
        instruction=FLAGS.sub("", current.name.instruction),
        cached=cached,
        total=total,
        ended=max(ends, default=None) if status in ENDED else None,
    )


def _status(steps: list[Step]) -> Status:
    found = {step.status for step in steps}
    for first in (Status.FAILED, Status.RUNNING, Status.CANCELLED, Status.WAITING):
        if first in found:
            return first
    cached, total = counts(steps)
    return Status.CACHED if total and cached == total else Status.DONE
