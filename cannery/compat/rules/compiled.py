"""What is compiled for its chip when the image is built, and what of it on a machine of another arch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.findings import Finding, warning
from cannery.compat.table import listed
from cannery.vocab import ComponentKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import Chosen, Recipe


def compiled(recipe: Recipe) -> tuple[Chosen, ...]:
    """Return the native components that are compiled: all but releases that come with ready-made kernels.

    A stand-in has nothing to compile against: components with a `standin` entry are not compiled there.
    """
    native = (c for c in recipe.sources if c.component.kind is ComponentKind.NATIVE)
    return tuple(c for c in native if not (c.release and c.known and c.known.chips) and recipe.standin_of(c) is None)


def emulation(subject: Subject) -> Iterator[Finding]:
    """Warn before a build starts that compiles under QEMU; all else is done on the build machine's own arch."""
    names = [chosen.name for chosen in (*compiled(subject.recipe), *subject.recipe.archives)]
    arch = subject.recipe.target.arch
    if names and subject.build_arch not in {None, arch}:
        yield warning(
            "emulation",
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} compiled under emulation: "
            f"the target is {arch}, this machine {subject.build_arch}",
            "about eight times slower (docker/buildx issue 2810)",
            f"BUILDER=<name> of a buildx builder with a native {arch} node, or a machine of that arch",
        )
