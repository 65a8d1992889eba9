"""What the name of an image tells of it: of Cannery's own, of CANN's, and of those who name a chip in the tag."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.plan.tags import parse_tag
from cannery.util.image_reference import parse_reference
from cannery.vocab import Chip

if TYPE_CHECKING:
    from collections.abc import Container

_CHIP = re.compile(r"(?:^|[-_])(910b|a2|a3|310p|a5)(?=[-_]|$)")
_CANN = re.compile(r"(?:^|[-_])(\d+\.\d+\.(?:rc\d+|\d+))(?=[-_])")
_OS = re.compile(r"(?:^|[-_])((?:ubuntu|openeuler)[\d.]*)(?=[-_]|$)")
# What stands for a word in a tag of a guide or a script: `{{ version }}`, `<version>`, `$VERSION`; not the whole image.
_FILLED_IN = re.compile(r"(?<=[\w:/.-])(?:\{\{?[^{}]*\}?\}|<[^<>]*>|\$\{\w+\}|\$\w+)")
# Their tags name a chip where it is not this one (vllm-ascend, installation page: v0.11.0rc1, v0.11.0rc1-a3, …-310p).
_DEFAULT_CHIPS = {"vllm-ascend": Chip.A2}


@dataclass(frozen=True)
class Told:
    """What is told; "" and None where nothing is. `ours`: an image of Cannery's, of `profile` where that is known."""

    repository: str = ""
    profile: str = ""
    cann: str = ""
    chip: Chip | None = None
    os: str = ""
    ours: bool = False
    standin: bool = False

    @property
    def ascend(self) -> bool:
        """Whether the image is one for NPUs, as far as its name goes."""
        return bool(self.chip or self.cann) or re.search(r"ascend|cann\b|npu", self.repository) is not None


def told_by(image: str, profiles: Container[str] = ()) -> Told:
    """Return what the reference `image` tells; `profiles` are those of Cannery."""
    image, holes = _FILLED_IN.subn("x", image)
    try:
        reference = parse_reference(image, "image")
    except UsageError:
        return Told(repository=image.partition(":")[0].lower())
    name, tag = reference.repository.rpartition("/")[2], reference.tag.lower()
    try:
        found = parse_tag(tag)
    except UsageError:
        chip, cann, os = (match[1] if (match := one.search(tag)) else "" for one in (_CHIP, _CANN, _OS))
        family = {"a2": Chip.A2}.get(chip) or (Chip(chip) if chip else None if holes else _DEFAULT_CHIPS.get(name))
        return Told(reference.repository, "", cann, family, os)
    ours = name in profiles or bool(found.plan) or found.standin or found.custom or found.forced
    profile = name if name in profiles else ""
    return Told(reference.repository, profile, found.cann, Chip(found.chip), found.os, ours=ours, standin=found.standin)
