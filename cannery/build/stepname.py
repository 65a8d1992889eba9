"""Names of build steps, as the Dockerfile frontend and bake write them.

`[stage 2/3] RUN …`, `[2/3] RUN …` (the only stage), `[linux/arm64 stage 2/3] …` (several platforms), `[internal] load
build context`, `exporting to image`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(r"\[([^\]]*)\]\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"\d+/\d+")
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
    """A step's name in parts. `is_step`: a step of the Dockerfile; of any other, `stage` is a word for it."""

    text: str
    stage: str
    instruction: str
    is_step: bool = False


def parse_name(text: str) -> StepName:
    """Take a vertex name apart. Never fails: an unknown form is a step of the stage "setup"."""
    match = _HEAD.match(text)
    words = match[1].split() if match else []
    instruction = " ".join((match[2] if match else text).split())
    if words and _NUMBER.fullmatch(words[-1]):
        names = [word for word in words[:-1] if not _PLATFORM.fullmatch(word)]
        return StepName(text, names[-1] if names else "image", instruction, is_step=True)
    around = next((word for start, word in _AROUND if instruction.startswith(start)), SETUP)
    return StepName(text, "base image" if "auth" in words else around, instruction)
