"""Distributions that must not be there, or not together, or not at any version; what a lock leaves open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from factories import catalog, compatibility, package, packages, recipe, source_profile, source_recipe, subject

from cannery.catalog.addresses import Index
from cannery.catalog.compatibility import Compatibility
from cannery.catalog.io.read import load_catalog
from cannery.compat.rules import check_recipe
from cannery.compat.rules.packages import denied, excluded, exclusive, incomplete, torch_free
from cannery.compat.subject import Finding, in_order
from cannery.lock.lock import public_mirrors
from cannery.recipe.recipe import Options
from cannery.vocab import Severity

if TYPE_CHECKING:
    from cannery.recipe.recipe import Recipe

BOTH = (
    package("torch", "2.9.0"),
    package("triton", "3.5.0", via=("torch",)),
    package("kernels-of-all", "1.0"),
    package("triton-ascend", "3.2.0", via=("kernels-of-all[npu]",)),
)


# Exclusive


def test_two_that_share_files_are_refused_with_who_asks_for_each() -> None:
    """C05 (vllm-project/vllm-ascend issue 7359)."""
    found = subject(recipe(), amd64=BOTH)
    assert list(exclusive(found)) == [
        Finding(
            Severity.ERROR,
            "exclusive",
            "triton 3.5.0 and triton-ascend 3.2.0 are both in the set; who asks: "
            "profile → torch → triton; profile → kernels-of-all → triton-ascend",
            "they install files of the same names: the later overwrites the earlier, and removing one breaks the other",
            "take one out: `excludes: [{requirement: triton, reason: …}]` in images/profiles/stack.yaml",
        )
    ]


def test_the_arch_that_has_one_of_them_alone_is_clean() -> None:
    locks = {"amd64": BOTH, "arm64": (BOTH[0], *BOTH[2:])}
    assert len(list(exclusive(subject(recipe(), **locks)))) == 1
    assert list(exclusive(subject(recipe(Options(arch="arm64")), **locks))) == []
    assert list(exclusive(subject(recipe()))) == []


def test_the_one_that_the_profile_does_not_name_is_the_one_to_take_out() -> None:
    value = {**compatibility().model_dump(), "exclusive": [["torch", "The_Other"]]}
    data = catalog(compatibility=Compatibility.model_validate(value))
    (finding,) = exclusive(subject(recipe(), data, amd64=(*packages(), package("the-other", via=("ray",)))))
    assert "torch 2.9.0+cpu and the-other 1.0 are both in the set" in finding.what
    assert "{requirement: the-other, reason: …}" in finding.fix


def test_of_two_that_the_profile_names_neither_is_to_be_excluded() -> None:
    value = {**compatibility().model_dump(), "exclusive": [["torch", "ray"]]}
    data = catalog(compatibility=Compatibility.model_validate(value))
    (finding,) = exclusive(subject(recipe(), data, amd64=packages()))
    assert finding.fix == "take one out: torch or ray of `components` in images/profiles/stack.yaml"


# Excluded, and asked for


def excluding(*names: str) -> Recipe:
    reasons = [{"requirement": name, "reason": "a reason of ours"} for name in names]
    return source_recipe(excludes=reasons)


def test_what_the_profile_or_cann_asks_for_is_not_excluded() -> None:
    file = "images/profiles/sources.yaml"
    assert list(excluded(subject(excluding("Torch_NPU", "engine", "NumPy", "timm")))) == [
        Finding(
            Severity.ERROR,
            "excluded",
            f"{file} excludes torch-npu, and has it as component torch-npu",
            "a reason of ours",
            "take torch-npu out of `components` or of `excludes`",
        ),
        Finding(
            Severity.ERROR,
            "excluded",
            f"{file} excludes engine, and has it as component engine",
            "a reason of ours",
            "take engine out of `components` or of `excludes`",
        ),
        Finding(
            Severity.ERROR,
            "excluded",
            f"{file} excludes numpy, and is for CANN 8.5.0, which imports it",
            "a reason of ours",
            "take numpy out of `excludes`",
        ),
    ]
    bound = excluding("engine")
    assert "excluded" in {finding.code for finding in check_recipe(bound, catalog())}
    assert list(excluded(subject(excluding("timm")))) == []


# Denied


def test_a_denied_package_is_told_with_its_chain_and_the_reason() -> None:
    """P03 (modelscope/ms-swift issue 6968)."""
    content = (*packages(), package("nvidia-nccl", "2.28", via=("torch",)))
    assert list(denied(subject(recipe(), amd64=content))) == [
        Finding(
            Severity.ERROR,
            "denied",
            "not for an NPU image (nvidia-*): nvidia-nccl 2.28: profile → torch → nvidia-nccl",
            "CUDA",
            "bind the first package of a chain to an index with another build, "
            "or exclude the last one in images/profiles/stack.yaml",
        )
    ]
    assert list(denied(subject(recipe(), amd64=packages()))) == []
    assert list(denied(subject(recipe(), arm64=content))) == []


def test_many_that_one_pattern_denies_are_one_finding() -> None:
    content = (*packages(), *(package(f"nvidia-{letter}", via=("torch",)) for letter in "gfedcba"))
    (finding,) = denied(subject(recipe(), amd64=content))
    assert finding.what.startswith("not for an NPU image (nvidia-*): nvidia-a 1.0: profile → torch → nvidia-a; ")
    assert finding.what.endswith("nvidia-e 1.0: profile → torch → nvidia-e; and 2 more")


def test_what_is_refused_as_a_pair_is_not_refused_again() -> None:
    value = {**compatibility().model_dump(), "deny": [{"pattern": "triton", "reason": "owns the folder"}]}
    data = catalog(compatibility=Compatibility.model_validate(value))
    assert list(denied(subject(recipe(), data, amd64=BOTH))) == []
    assert [f.why for f in denied(subject(recipe(), data, amd64=BOTH[:2]))] == ["owns the folder"]
    codes = [f.code for f in check_recipe(recipe(), data, subject(recipe(), data, amd64=BOTH).locks)]
    assert codes == ["exclusive"]


# torch is never free


def test_a_torch_that_nothing_holds_is_refused_with_the_pairs_of_the_targets_cann() -> None:
    """V11 (flagos-ai/sglang-plugin-FL issue 14)."""
    found = source_recipe(components=[{"name": "torch"}, {"name": "torch-npu"}])
    assert list(torch_free(subject(found))) == [
        Finding(
            Severity.ERROR,
            "torch-free",
            "nothing holds torch, and torch and torch-npu need it: a resolver takes the newest one",
            "torch-npu trails torch by months (flagos-ai/sglang-plugin-FL issue 14)",
            "pin torch in images/profiles/sources.yaml; for CANN 8.5.0 the table has torch 2.9.0 with torch-npu 2.9.0, "
            "or torch 2.8.0 with torch-npu 2.8.0.post2, or torch 2.7.1 with torch-npu 2.7.1.post2",
        )
    ]


@pytest.mark.parametrize(
    ("pins", "changes"),
    [
        ([{"name": "torch", "version": "2.9.0"}, {"name": "torch-npu"}], {}),
        ([{"name": "torch-npu", "version": "2.9.0"}], {}),
        ([{"name": "torch-npu"}, {"name": "engine", "release": "0.11.0"}], {}),
        ([{"name": "torch-npu"}], {"constraints": [{"requirement": "torch==2.9.0", "reason": "made up here"}]}),
        ([{"name": "torch-npu"}], {"overrides": [{"requirement": "torch==2.9.*", "reason": "made up here"}]}),
        ([{"name": "ray"}], {}),
    ],
    ids=["pin", "row of torch-npu", "source", "constraint", "override", "no torch"],
)
def test_a_torch_that_something_holds(pins: list[dict[str, str]], changes: dict[str, object]) -> None:
    assert list(torch_free(subject(source_recipe(components=pins, **changes)))) == []


@pytest.mark.parametrize(
    ("pins", "changes", "who"),
    [
        ([{"name": "torch-npu", "version": "2.13.0"}], {}, "torch-npu needs"),
        ([{"name": "kernels", "release": "1.2.0"}, {"name": "torch-npu"}], {}, "torch-npu needs"),
        ([{"name": "plugin", "commit": source_profile().components[4].commit}], {}, "plugin needs"),
        (
            [{"name": "torch"}],
            {"constraints": [{"requirement": "torch>=2.7", "reason": "made up here"}]},
            "torch needs",
        ),
    ],
    ids=["no row of torch-npu", "source that asks for none", "source that asks for a range", "lower bound"],
)
def test_a_torch_that_nothing_holds_exactly(pins: list[dict[str, str]], changes: dict[str, object], who: str) -> None:
    (finding,) = torch_free(subject(source_recipe(components=pins, **changes)))
    assert f"and {who} it" in finding.what


def test_a_torch_that_only_the_lock_has_is_free_too() -> None:
    found = source_recipe(components=[{"name": "ray"}])
    (finding,) = torch_free(subject(found, amd64=(package("torch", "2.13.0"),)))
    assert "nothing holds torch, and torch needs it" in finding.what


# Locks


def test_an_incomplete_lock_is_one_warning_for_each_index() -> None:
    gone = {"file": "", "sha256": "", "size": 0}
    content = [
        package("torch", "2.9.0+cpu", index="torch-cpu", **gone),
        package("ray"),
        package("a", index="b", **gone),
    ]
    found = subject(recipe(), amd64=[*content, package("torchvision", "0.24.0+cpu", index="torch-cpu", **gone)])
    assert in_order(incomplete(found)) == (
        Finding(
            Severity.WARNING,
            "lock-incomplete",
            "the lock has no hash of a 1.0 for Python 3.11 on amd64",
            "a is published on index b",
            "a build takes it from there if it can reach that index; `build.py lock` writes it into the lock",
        ),
        Finding(
            Severity.WARNING,
            "lock-incomplete",
            "the lock has no hash of torch 2.9.0+cpu and torchvision 0.24.0+cpu for Python 3.11 on amd64",
            "torch is published on index torch-cpu (https://index.example/cpu/torch/); "
            "torchvision is published on index torch-cpu (https://index.example/cpu/torchvision/)",
            "a build takes it from there if it can reach that index; `build.py lock` writes it into the lock",
        ),
    )
    assert list(incomplete(subject(recipe(), amd64=packages()))) == []


def test_a_public_mirror_of_an_index_is_named_until_one_is_set() -> None:
    index = Index(urls=("https://index.example/cpu",), public_pages=("https://mirror.example/wheels/cpu",))
    words = 'use a public mirror: export CANNERY_MIRROR_PAGES="cpu=https://mirror.example/wheels/cpu"'
    assert public_mirrors({"cpu", "x"}, {"cpu": index, "y": index}) == words
    assert public_mirrors({"cpu"}, {"cpu": index.model_copy(update={"pages": ("https://own.example/cpu",)})}) == ""
    real = load_catalog(Path(__file__).parents[2] / "images").indexes
    content = [package("torch", "2.9.0+cpu", index="pytorch-cpu", file="", sha256="", size=0)]
    (finding,) = incomplete(subject(recipe(), catalog(indexes=real), amd64=content))
    assert finding.fix.endswith(f"; {public_mirrors({'pytorch-cpu'}, real)}")
    assert "https://" in finding.fix
    assert public_mirrors({"ascend"}, real) == ""
