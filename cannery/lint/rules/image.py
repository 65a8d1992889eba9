"""The image: what its name says of chip, kind and registry, against the rest of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.lint.case import remark
from cannery.util.image_reference import DEFAULT_REGISTRY, registry_of
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.lint.case import Case, Remark


def chip(case: Case) -> Iterator[Remark]:
    """Refuse an image of another chip than the host's, where that was said."""
    image, host = case.container.image, case.ground.chip
    if case.told.chip and host and case.told.chip is not host:
        what = f"{image} is for chip {case.told.chip}, and the host has {host}"
        why = "kernels of one chip do not run on another, and at times only a log line says so (vllm-ascend issue 2725)"
        yield remark(Severity.ERROR, "chip", image, what, why, f"the image for {host}")


def standin(case: Case) -> Iterator[Remark]:
    """Refuse NPUs to an image on the stand-in base, which has no CANN."""
    if case.told.standin and case.uses_npu:
        what = f"{case.container.image} stands on the stand-in base, and NPUs are given to it"
        fix = "an image on a real base: its tag has no -standin"
        yield remark(Severity.ERROR, "standin", case.container.image, what, "it has no CANN: nothing runs there", fix)


def registry(case: Case) -> Iterator[Remark]:
    """Name a registry that is glued before a reference that has one already."""
    image = case.container.image
    first = registry_of(image)
    rest = image.removeprefix(f"{first}/")
    second = registry_of(rest) if rest != image else DEFAULT_REGISTRY
    if second != DEFAULT_REGISTRY:
        what = f"{image} has two registries, {first} and {second}"
        why = "the first is asked for a repository of the second's name (gpustack/gpustack issue 5456)"
        yield remark(Severity.WARNING, "image.registry", image, what, why, f"{rest}, unless {first} is a mirror of it")


def strange_image(case: Case) -> Iterator[Remark]:
    """Name an image that is none: a path of what was meant to be an option's value."""
    image = case.container.image
    if image.startswith(("/", "-")) or not image.strip():
        what = f"{image if image.strip() else 'an empty word'} stands where the image does"
        why = "docker takes the first word that is no option, and no option's value, for the image"
        fix = "write the option before it, such as --device; it takes one value each time"
        yield remark(Severity.ERROR, "image.path", image, what, why, fix)
