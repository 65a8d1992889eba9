"""Chips, what native builds call them, and compiling under emulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from factories import KERNELS, KERNELS_OLD, catalog, source_components, source_profile, source_recipe, subject

from cannery.catalog.component import parse_component
from cannery.compat.rules.target import chips, emulation, socs
from cannery.compat.subject import Finding, in_order
from cannery.recipe.recipe import Options
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from cannery.catalog.catalog import Catalog
    from cannery.recipe.recipe import Recipe


def kernels(**changes: object) -> Catalog:
    """The catalog with another component `kernels`."""
    value = source_components()["kernels"].model_dump(exclude_defaults=True)
    return catalog(components={**catalog().components, "kernels": parse_component({**value, **changes})})


def on(chip: str, data: Catalog | None = None, **changes: object) -> Recipe:
    return source_recipe(Options(chip=chip), data, **changes)


def released() -> list[dict[str, object]]:
    """The profile's components with the release of `kernels` in the place of its commit."""
    pins = [pin.model_dump(exclude_defaults=True) for pin in source_profile().components]
    return [{"name": "kernels", "release": "1.2.0"} if pin["name"] == "kernels" else pin for pin in pins]


# Which chips a component works on


@pytest.mark.parametrize("chip", ["910b", "a3"])
def test_a_component_on_a_chip_of_its_list_and_one_without_a_list(chip: str) -> None:
    data = kernels(chips=["910b", "a3"])
    assert list(chips(subject(on(chip, data), data))) == []
    assert list(chips(subject(on(chip)))) == []


def test_a_component_on_another_chip() -> None:
    """triton-ascend has no 310P."""
    data = kernels(chips=["910b", "a3"])
    assert list(chips(subject(on("310p", data), data))) == [
        Finding(
            Severity.ERROR,
            "chip",
            "kernels does not work on chip 310p: it is for 910b or a3",
            "images/components/kernels.yaml",
            "leave it out of images/profiles/sources.yaml, or build for 910b or a3",
        )
    ]


def test_ready_made_kernels_for_another_chip_ask_for_a_commit_compiled_for_this_one() -> None:
    """C01 (vllm-project/vllm-ascend issue 11160)."""
    assert list(chips(subject(on("910b", components=released())))) == []
    assert list(chips(subject(on("a3", components=released())))) == [
        Finding(
            Severity.ERROR,
            "chip",
            "kernels 1.2.0 has ready-made kernels for chip 910b alone, the target has a3",
            "images/components/kernels.yaml: the wheel's content",
            "pin a commit in the release's place, so that it is compiled for a3, with SOC_VERSION=ascend910_9391: "
            f"{KERNELS} (1.2.0) or {KERNELS_OLD} (1.1.0)",
        )
    ]


def test_ready_made_kernels_of_which_no_commit_is_known() -> None:
    data = kernels(revisions={}, hosts={})
    (finding,) = chips(subject(on("a3", data, components=released()), data))
    assert finding.fix == "build for 910b"


# What builds call the chip


def test_the_soc_follows_from_the_chip() -> None:
    assert list(socs(subject(on("910b")))) == []
    assert list(socs(subject(on("a3")))) == []


@pytest.mark.parametrize("value", ["ascend910b1", "Ascend910B2"])
def test_a_soc_of_the_targets_chip_may_be_said(value: str) -> None:
    assert list(socs(subject(on("910b", env={"SOC_VERSION": value})))) == []


def test_a_soc_of_another_chip_is_refused_wherever_it_is_said() -> None:
    """C11 (sgl-project/sglang issue 11691): one build argument is turned, and the rest is left."""
    data = kernels(build_env={"SOC_VERSION": "ascend910b1"})
    found = on("a3", data, env={"SOC_VERSION": "ascend310p1"})
    report = "vllm-project/vllm-ascend pull 7278"
    why = f"kernels is compiled for the value of SOC_VERSION; tag and wheels follow CHIP ({report})"
    fix = "leave SOC_VERSION out, it follows from CHIP; values of a3: ascend910_9391"
    assert in_order(socs(subject(found, data))) == (
        Finding(
            Severity.ERROR,
            "soc",
            "build_env of images/components/kernels.yaml sets SOC_VERSION=ascend910b1, "
            "which is not the target's chip a3",
            why,
            fix,
        ),
        Finding(
            Severity.ERROR,
            "soc",
            "env of images/profiles/sources.yaml sets SOC_VERSION=ascend310p1, which is not the target's chip a3",
            why,
            fix,
        ),
    )


def test_a_chip_whose_soc_nothing_says_is_refused_with_the_usual_three() -> None:
    """C08 (vllm-project/vllm-ascend pull 7278): a build cannot ask npu-smi."""
    assert list(socs(subject(on("910")))) == [
        Finding(
            Severity.ERROR,
            "soc",
            "the value of SOC_VERSION for chip 910 is not known, and kernels is compiled for it",
            "no build host can ask npu-smi (vllm-project/vllm-ascend pull 7278)",
            "add `socs` of 910 to images/chips.yaml; the values of other chips: "
            "ascend310p1 (310p), ascend910b1 (910b), ascend910_9391 (a3)",
        )
    ]
    assert list(socs(subject(on("910", components=released())))) == [], "nothing is compiled"


# Emulation


def test_compiling_on_another_arch_is_a_warning_that_names_what_and_the_way_out() -> None:
    """C12 (docker/buildx issue 2810)."""
    found = source_recipe(Options(arch="arm64"))
    assert list(emulation(subject(found, build_arch=Arch.AMD64))) == [
        Finding(
            Severity.WARNING,
            "emulation",
            "kernels is compiled under emulation: the target is arm64, this machine amd64",
            "about eight times slower (docker/buildx issue 2810)",
            "BUILDER=<name> of a buildx builder with a native arm64 node, or a machine of that arch",
        )
    ]


def test_nothing_is_emulated_on_the_targets_arch_on_an_unknown_one_or_without_compiling() -> None:
    found = source_recipe(Options(arch="arm64"))
    assert list(emulation(subject(found, build_arch=Arch.ARM64))) == []
    assert list(emulation(subject(found))) == []
    ready = source_recipe(Options(arch="arm64"), components=released())
    assert list(emulation(subject(ready, build_arch=Arch.AMD64))) == []


def test_a_release_without_ready_made_kernels_is_compiled_too() -> None:
    data = kernels(releases={"1.2.0": {"source": "an sdist"}})
    found = source_recipe(Options(arch="arm64"), data, components=released())
    (finding,) = emulation(subject(found, data, Arch.AMD64))
    assert finding.what.startswith("kernels is compiled under emulation")
