"""Names of build steps, as the Dockerfile frontend and bake write them.

`[stage 2/3] RUN …`, `[2/3] RUN …` (the only stage), `[linux/arm64 stage 2/3] …` (several platforms),
`[target stage 2/3] …` (several bake targets), `[internal] load build context`, `exporting to image`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(r"\[([^\]]*)\]\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"(\d+)/(\d+)")
_PLATFORM = re.compile(r"[a-z0-9]+/[a-z0-9/]+(->[a-z0-9/]+)?")
# What BuildKit does around the Dockerfile's steps, by the first words of its name. Order matters: first match.
_AROUND = (
    ("load metadata", "base image"),
    ("load build context", "context"),
    ("exporting cache", "cache"),
    ("importing cache", "cache"),
    ("exporting", "export"),
    ("pushing", "export"),
    ("sending tarball", "export"),
)
SETUP = "setup"


@dataclass(frozen=True)
class StepName:
    """A step's name in parts. `number` is 0 for what is no step of the Dockerfile; `stage` is then a word for it."""

    text: str
    stage: str
    instruction: str
    number: int = 0
    of: int = 0
    target: str = ""
    platform: str = ""


def parse_name(text: str) -> StepName:
    """Take a vertex name apart. Never fails: an unknown form is a step of the stage "setup"."""
    head, instruction = "", " ".join(text.split())
    match = _HEAD.match(text)
    if match:
        head, instruction = match[1], " ".join(match[2].split())
    words = head.split()
    number = _NUMBER.fullmatch(words[-1]) if words else None
    if number:
        words.pop()
    platform = next((word for word in words if _PLATFORM.fullmatch(word)), "")
    names = [word for word in words if word != platform]
    if not number:
        target = names[0] if names and names[0] not in {"internal", "auth", "context"} else ""
        return StepName(text, _around(names, instruction), instruction, target=target, platform=platform)
    stage = names[-1] if names else ""
    target = names[0] if len(names) > 1 else ""
    return StepName(text, stage, instruction, int(number[1]), int(number[2]), target, platform)


def _around(words: list[str], instruction: str) -> str:
    if "auth" in words:
        return "base image"
    return next((word for start, word in _AROUND if instruction.startswith(start)), SETUP)
