"""What the name of an image shows: of Cannery's images, of CANN's, and of others with a chip in the tag."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.plan.tags import parse_tag
from cannery.util.image_reference import parse_reference
from cannery.vocab import CHIP_ALIASES, Chip

if TYPE_CHECKING:
    from collections.abc import Container

_CHIP = re.compile(r"(?:^|[-_])(910b|a2|a3|310p|a5|950[a-z]*)(?=[-_]|$)")
_CANN = re.compile(r"(?:^|[-_])(?:cann)?(\d+\.\d+\.(?:rc\d+|\d+))(?=[-_])")
_OS = re.compile(r"(?:^|[-_])((?:ubuntu|openeuler)[\d.]*)(?=[-_]|$)")
# What is filled in later in a tag: `{{ version }}`, `<version>`, `$VERSION`; not the whole image.
_FILLED_IN = re.compile(r"(?<=[\w:/.-])(?:\{\{?[^{}]*\}?\}|<[^<>]*>|\$\{\w+\}|\$\w+)")
# Their tags name a chip only where it is another one (vllm-ascend: v0.11.0rc1, v0.11.0rc1-a3, …-310p).
_DEFAULT_CHIPS = {"vllm-ascend": Chip.A2}


@dataclass(frozen=True)
class ImageName:
    """What a name shows; "" and None for nothing. `ours`: an image of Cannery's, of `profile` where that is known."""

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


def read_image_name(image: str, profiles: Container[str] = ()) -> ImageName:
    """Return what the reference `image` shows; `profiles` are those of Cannery."""
    image, holes = _FILLED_IN.subn("x", image)
    try:
        reference = parse_reference(image, "image")
    except UsageError:
        return ImageName(repository=image.partition(":")[0].lower())
    name, tag = reference.repository.rpartition("/")[2], reference.tag.lower()
    try:
        found = parse_tag(tag)
    except UsageError:
        chip, cann, os = (match[1] if (match := one.search(tag)) else "" for one in (_CHIP, _CANN, _OS))
        family = _family(chip) if chip else None if holes else _DEFAULT_CHIPS.get(name)
        return ImageName(reference.repository, "", cann, family, os)
    ours = name in profiles or bool(found.plan) or found.standin or found.custom or found.forced
    profile = name if name in profiles else ""
    return ImageName(
        reference.repository, profile, found.cann, CHIP_ALIASES[found.chip], found.os, ours=ours, standin=found.standin
    )


def _family(chip: str) -> Chip:
    """Return the chip of a tag: some call the A2 a2, and the 950 a5 or by its models (`950dt`)."""
    return Chip.A5 if chip.startswith("950") else CHIP_ALIASES[chip]
