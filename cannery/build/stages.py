"""The stages of a build as the view shows them: status of their steps, content of each stage, and the time left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.build.progress import ENDED, SETUP, Status
from cannery.plan import LayerKind
from cannery.render.render import stage_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.build.progress import BuildState, Step
    from cannery.plan import Layer, Plan

# Words for stages that are not layers of the plan.
_WORDS = {
    "image": "system packages, and the layers put together",
    "context": "files of the build sent to the engine",
    "export": "image written to the engine",
    "cache": "read from a registry, and written there",
}
# Stages that compile a source (templates/stages/source.j2): their time cannot be estimated.
_COMPILES = "made-"
# For the time left, a stage counts at least as this part of all wheel bytes: even one without wheels takes time.
_SMALLEST = 0.02
# A running stage counts as this part of itself at most.
_MOST_OF = 0.9
# The time left is shown once this part of the build is done; before, it would be a guess.
_TOO_EARLY = 0.1


@dataclass(frozen=True)
class Stage:
    """One stage; `seconds` is how long its steps took, `ended` when the last one ended."""

    label: str
    status: Status
    seconds: float
    bytes: int
    cached: int
    total: int
    ended: float | None

    @property
    def shown(self) -> bool:
        """Whether it is shown. The set-up (reading Dockerfile and the like) takes milliseconds: only if it fails."""
        return self.label != SETUP or self.status is Status.FAILED


@dataclass(frozen=True)
class Brought:
    """The content of a stage in a few words, and the bytes of its wheels."""

    words: str
    bytes: int = 0


def brought(plan: Plan) -> dict[str, Brought]:
    """Return {stage: what it brings} for the layers of a plan."""
    return {stage_name(layer): Brought(_words(layer), layer.wheel_bytes) for layer in plan.layers}


def words_for(label: str, brings: Mapping[str, Brought]) -> str:
    """Return the content of a stage in a few words; its name if the plan does not know it."""
    if label.startswith(_COMPILES):
        return f"{label.removeprefix(_COMPILES)}, compiled from source"
    return brings[label].words if label in brings else _WORDS.get(label, label)


def stages(state: BuildState) -> tuple[Stage, ...]:
    """Return the stages in the order in which the stream named them first."""
    groups: dict[str, list[Step]] = {}
    for step in state.steps.values():
        groups.setdefault(step.name.stage, []).append(step)
    return tuple(_stage(label, steps, state.now) for label, steps in groups.items())


@dataclass(frozen=True)
class Span:
    """One stage that a build has made: its name, its start in seconds since the epoch, and how long it took."""

    stage: str
    start: float
    seconds: float


def spans(state: BuildState) -> Iterator[Span]:
    """Yield the stages that a build has made, without those from a cache."""
    for stage in stages(state):
        if stage.shown and stage.status is Status.DONE and stage.ended is not None:
            yield Span(stage.label, stage.ended - stage.seconds, stage.seconds)


def seconds_left(found: tuple[Stage, ...], brings: Mapping[str, Brought], seconds: float) -> float | None:
    """Return about how many seconds a build still takes after `seconds`, by the bytes that are to be installed.

    A running stage counts by its seconds, at the rate of those that ended. None if it is too early to know, while a
    stage compiles, and if nothing is left.
    """
    if any(stage.status is Status.RUNNING and stage.label.startswith(_COMPILES) for stage in found):
        return None
    smallest = max(1.0, _SMALLEST * sum(one.bytes for one in brings.values()))
    real = [stage for stage in found if stage.shown and stage.status is not Status.CACHED]
    weights = {s.label: max(smallest, brings[s.label].bytes if s.label in brings else 0) for s in real}
    ended = [stage for stage in real if stage.status in ENDED]
    total, done = sum(weights.values()), sum(weights[stage.label] for stage in ended)
    rate = done / max(1.0, sum(stage.seconds for stage in ended))
    running = (stage for stage in real if stage.status is Status.RUNNING)
    done += sum(min(_MOST_OF * weights[stage.label], stage.seconds * rate) for stage in running)
    if done < _TOO_EARLY * total or len(ended) == len(real):
        return None
    return seconds * (total - done) / done


def duration(seconds: float) -> str:
    """Return a time that is left: `about 40 s`, `about 3 min`."""
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} min"


def _words(layer: Layer) -> str:
    if layer.kind is LayerKind.GROUP and layer.name.endswith("-deps"):
        count = f"{layer.packages} package{'s' if layer.packages != 1 else ''}"
        return f"what {layer.name.removesuffix('-deps')} needs: {count}"
    if layer.kind is LayerKind.GROUP and layer.packages > 1:
        return f"{layer.name} and {layer.packages - 1} more"
    return layer.summary.rstrip(".")


def _stage(label: str, steps: list[Step], now: float) -> Stage:
    found = [step.status for step in steps]
    order = (Status.FAILED, Status.RUNNING, Status.CANCELLED, Status.WAITING)
    real = [step.status for step in steps if not step.name.instruction.startswith("FROM ")]
    cached = real.count(Status.CACHED)
    rest = Status.CACHED if real and cached == len(real) else Status.DONE
    status = next((one for one in order if one in found), rest)
    spans = sorted((step.span for step in steps if step.span), key=lambda span: span[0])
    ends = [end for _, end in spans if end is not None]
    return Stage(
        label=label,
        status=status,
        seconds=_busy(spans, now),
        bytes=sum(step.bytes for step in steps),
        cached=cached,
        total=len(real),
        ended=max(ends, default=None) if status in ENDED else None,
    )


def _busy(spans: list[tuple[float, float | None]], now: float) -> float:
    """Return the seconds in which at least one of `spans` (in order) ran; one without an end runs until `now`."""
    total, reached = 0.0, float("-inf")
    for start, stop in spans:
        end = max(start, now if stop is None else stop)
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
