"""What has to be compiled on the target's CPU architecture, on a machine of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.findings import Finding
from cannery.compat.rules.compiled import compiled
from cannery.compat.table import listed
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject


def emulation(subject: Subject) -> Iterator[Finding]:
    """Warn before a build starts that compiles under QEMU; all else is done on the build machine's own arch."""
    names = [chosen.name for chosen in (*compiled(subject.recipe), *subject.recipe.archives)]
    arch = subject.recipe.target.arch
    if names and subject.build_arch not in {None, arch}:
        yield Finding(
            Severity.WARNING,
            "emulation",
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} compiled under emulation: "
            f"the target is {arch}, this machine {subject.build_arch}",
            "about eight times slower (docker/buildx issue 2810)",
            f"BUILDER=<name> of a buildx builder with a native {arch} node, or a machine of that arch",
        )
