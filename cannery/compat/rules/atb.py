"""ATB in the image's environment against torch_npu: a process that uses ATB of another C++ ABI dies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.compat.findings import Finding, error, note
from cannery.compat.rules.environment import set_variables
from cannery.recipe.environment import deciding, known_abi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject

NAMED = re.compile(r"/atb/cxx_abi_([01])(?![\w.-])")


def atb(subject: Subject) -> Iterator[Finding]:
    """Refuse variables that name ATB of another C++ ABI; report an ABI that is not known."""
    recipe = subject.recipe
    chosen, known = deciding(recipe), known_abi(recipe)
    if chosen is None or chosen.component.cxx_abi is None:
        return
    source = f"images/components/{chosen.name}.yaml: {chosen.component.cxx_abi.source}"
    if known is None:
        yield from _unknown(subject, f"{chosen.package} {chosen.version or 'without a version'}", source)
        return
    for name, value in set_variables(recipe).items():
        others = sorted({abi for abi in NAMED.findall(value) if int(abi) != known})
        if others:
            yield error(
                "env",
                f"{name} names ATB's build cxx_abi_{others[0]}; {chosen.package} {chosen.version} on "
                f"{recipe.target.arch} has the C++ ABI {known}",
                source,
                f"take it out of {recipe.file} or of the component that sets it: the image gets cxx_abi_{known}",
            )


def _unknown(subject: Subject, what: str, source: str) -> Iterator[Finding]:
    found = subject.recipe.base.found
    if found is not None:
        yield note(
            "env",
            f"the C++ ABI of {what} on {subject.recipe.target.arch} is not known: "
            f"ATB stays as the base has it, cxx_abi_{found.atb_abi}",
            source,
            "the check import.torch-npu-pair of the image holds it against torch's",
        )
