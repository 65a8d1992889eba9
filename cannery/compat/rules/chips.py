"""What a chip can run, and what is compiled for it when the image is built.

The chip is one word of the target: tag, kernels and what builds call it follow from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.catalog.component import Native
from cannery.compat.findings import Finding, error, warning
from cannery.compat.table import listed
from cannery.vocab import ComponentKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import Chosen, ChosenSource, Recipe

# Who reported that a build needs to know its chip.
REPORT = "vllm-project/vllm-ascend pull 7278"


def chips(subject: Subject) -> Iterator[Finding]:
    """Refuse what does not work on the target's chip, and ready-made kernels for another one."""
    chip = subject.recipe.target.chip
    for chosen in subject.recipe.chosen:
        file, known = f"images/components/{chosen.name}.yaml", chosen.known
        if chosen.component.chips and chip not in chosen.component.chips:
            names = listed(chosen.component.chips, "or")
            yield error(
                "chip",
                f"{chosen.name} does not work on chip {chip}: it is for {names}",
                file,
                f"leave it out of {subject.recipe.file}, or build for {names}",
            )
        elif known and known.chips and chip not in known.chips:
            made, whose = listed(known.chips, "or"), f"{chosen.name} {chosen.version}"
            yield error(
                "chip",
                f"{whose} has ready-made kernels for chip {made} alone, the target has {chip}",
                f"{file}: {known.source}",
                _from_source(subject, chosen) or f"build for {made}",
            )


def _from_source(subject: Subject, chosen: Chosen) -> str:
    """Say how it comes to have kernels for the chip; "" when no commit of it is known that would be compiled."""
    component, chip = chosen.component, subject.recipe.target.chip
    if not isinstance(component, Native):
        return ""
    commits = [(revision.version, commit) for commit, revision in component.revisions.items() if not revision.chips]
    if not commits:
        return ""
    commits.sort(key=lambda pair: pair[0] != chosen.version)
    pins = " or ".join(f"{commit} ({version})" for version, commit in commits)
    socs = _socs(subject).get(chip, ())
    value = f", with {component.soc_variable}={socs[0]}" if component.soc_variable and socs else ""
    return f"pin a commit in the release's place, so that it is compiled for {chip}{value}: {pins}"


def socs(subject: Subject) -> Iterator[Finding]:
    """Refuse a setting that names another chip than the target, and a native build whose chip has no known name."""
    chip = subject.recipe.target.chip
    known = _socs(subject).get(chip, ())
    built = {c.name for c in compiled(subject.recipe)}
    for chosen in subject.recipe.sources:
        variable = chosen.component.soc_variable if isinstance(chosen.component, Native) else None
        if variable and known:
            for where, value in _settings(subject, chosen, variable).items():
                if value.lower() not in {soc.lower() for soc in known}:
                    yield error(
                        "soc",
                        f"{where} sets {variable}={value}, which is not the target's chip {chip}",
                        f"{chosen.name} is compiled for the value of {variable}; tag and wheels follow CHIP ({REPORT})",
                        f"leave {variable} out, it follows from CHIP; values of {chip}: {', '.join(known)}",
                    )
        elif variable and chosen.name in built:
            usual = ", ".join(f"{values[0]} ({name})" for name, values in sorted(_socs(subject).items()))
            yield error(
                "soc",
                f"the value of {variable} for chip {chip} is not known, and {chosen.name} is compiled for it",
                f"no build host can ask npu-smi ({REPORT})",
                f"add `socs` of {chip} to images/chips.yaml; the values of other chips: {usual or 'none'}",
            )


def _socs(subject: Subject) -> Mapping[str, tuple[str, ...]]:
    """Chip → what native builds call it, of the chips of which that is known."""
    return {str(chip): access.socs for chip, access in subject.catalog.chips.items() if access.socs}


def _settings(subject: Subject, chosen: ChosenSource, variable: str) -> dict[str, str]:
    """Where the variable is set → its value: the profile's environment, components', and the build's own."""
    found = {f"env of {subject.recipe.file}": subject.recipe.profile.env}
    found |= {f"env of images/components/{c.name}.yaml": c.component.env for c in subject.recipe.chosen}
    found[f"build_env of images/components/{chosen.name}.yaml"] = chosen.component.build_env
    return {where: env[variable] for where, env in found.items() if variable in env}


def compiled(recipe: Recipe) -> tuple[Chosen, ...]:
    """Return the native components that are compiled: all but releases that come with ready-made kernels.

    A stand-in has nothing to compile against: components with a `standin` entry are not compiled there.
    """
    native = (c for c in recipe.sources if c.component.kind is ComponentKind.NATIVE)
    return tuple(c for c in native if not (c.release and c.known and c.known.chips) and recipe.standin_of(c) is None)


def emulation(subject: Subject) -> Iterator[Finding]:
    """Warn before a build starts that compiles under QEMU; all else is done on the build machine's own arch."""
    names = [chosen.name for chosen in compiled(subject.recipe)]
    arch = subject.recipe.target.arch
    if names and subject.build_arch not in {None, arch}:
        yield warning(
            "emulation",
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} compiled under emulation: "
            f"the target is {arch}, this machine {subject.build_arch}",
            "about eight times slower (docker/buildx issue 2810)",
            f"BUILDER=<name> of a buildx builder with a native {arch} node, or a machine of that arch",
        )
