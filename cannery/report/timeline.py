"""The last build of an image as bars: what it made, when and for how long. What has no bar was reused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.build.stages import words_for
from cannery.render.render import stage_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.build.stages import Span
    from cannery.plan import Plan

# Where bars begin, and how long the longest may be, in the units of the drawing.
LEFT, WIDTH = 130.0, 220.0


@dataclass(frozen=True)
class Bar:
    """One bar, by its left end."""

    label: str
    x: float
    width: float
    seconds: float


def timeline(plan: Plan, spans: Sequence[Span]) -> Iterator[Bar]:
    """Give the bars, in the order in which they begin. What took less than a hundredth of the whole has none."""
    names = {stage_name(layer): layer.name for layer in plan.layers}
    first, total = min((one.start for one in spans), default=0.0), _seconds(spans)
    for one in sorted(spans, key=lambda span: span.start):
        if one.seconds * 100 >= total:
            x, width = ((part / total * WIDTH) if total else 0.0 for part in (one.start - first, one.seconds))
            yield Bar(names.get(one.stage) or words_for(one.stage, {}), LEFT + x, width, one.seconds)


def timeline_words(plan: Plan, spans: Sequence[Span]) -> str:
    """Return the last build in words; "" where it is not known."""
    if not spans:
        return ""
    took = f"{_seconds(spans):.1f} s"
    if plan.recipe.pins and any(one.stage == "trial" for one in spans):
        return f"{took}: one layer on the image of the locked set"
    made = {one.stage for one in spans} & {stage_name(layer) for layer in plan.layers}
    rest = ", the others reused" if len(made) < len(plan.layers) else ""
    return f"{took}: {len(made)} of {len(plan.layers)} layers made{rest}"


def _seconds(spans: Sequence[Span]) -> float:
    return max(one.start + one.seconds for one in spans) - min(one.start for one in spans) if spans else 0.0
