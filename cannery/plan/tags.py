"""Image tags: `<profile>:<cann>-<chip>-<os>-py<python>-<plan>[-standin][-forced]`, and the moving alias without plan.

Format and parse round-trip (CONTRACTS, "Tags").
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cannery.errors import UsageError

PLAN_DIGITS = 12
TAG = re.compile(
    r"(?P<cann>\d+\.\d+\.(?:\d+|rc\d+)(?:\.[a-z0-9.]+)?)-(?P<chip>910b|a3|310p|910|950|a5)-(?P<os>[a-z][a-z_]*[\d._]+)"
    r"-py(?P<python>3\.\d+)(?:-(?P<plan>[0-9a-f]{12}))?(?P<standin>-standin)?(?P<custom>-custom)?(?P<forced>-forced)?",
    re.ASCII,
)


@dataclass(frozen=True)
class ImageTag:
    """A tag's parts. `plan` is 12 hex digits, or "" for the moving alias; `custom` marks a base of the user's."""

    cann: str
    chip: str
    os: str
    python: str
    plan: str = ""
    standin: bool = False
    custom: bool = False
    forced: bool = False

    def __str__(self) -> str:
        parts = [f"{self.cann}-{self.chip}-{self.os}-py{self.python}"]
        parts += [self.plan] if self.plan else []
        parts += [word for word in ("standin", "custom", "forced") if getattr(self, word)]
        return "-".join(parts)

    @property
    def alias(self) -> str:
        """The moving tag: the same without the plan."""
        return str(replace(self, plan=""))


def parse_tag(text: str) -> ImageTag:
    """Parse a tag that `str(ImageTag)` wrote; raise `UsageError` for any other text."""
    match = TAG.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a Cannery tag",
            hint="written like 8.5.0-910b-ubuntu22.04-py3.11-0123456789ab[-standin][-forced]",
        )
    found = match.groupdict()
    return ImageTag(
        found["cann"],
        found["chip"],
        found["os"],
        found["python"],
        found["plan"] or "",
        standin=bool(found["standin"]),
        custom=bool(found["custom"]),
        forced=bool(found["forced"]),
    )
