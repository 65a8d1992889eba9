"""Variables against what is installed, and the two names of Megatron's tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from factories import (
    ENGINE,
    PATCHER,
    catalog,
    compatibility,
    components,
    profile,
    recipe,
    source_components,
    source_recipe,
    subject,
)

from cannery.catalog.compatibility import Compatibility
from cannery.catalog.component import CxxAbi
from cannery.compat.rules.components import atb, environment, set_variables
from cannery.compat.subject import Finding, in_order
from cannery.recipe.recipe import Options
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from cannery.catalog.catalog import Catalog

NAMES = {"variable": "RAY_VERSION", "beside": "ray", "reason": "what is said is what is there"}
NEVER = {
    "variable": "NPU_ALLOC",
    "beside": "torch-npu",
    "value": "expandable_segments: *True",
    "reason": "the allocator asserts",
    "severity": "warning",
}
APPEND = "a module of the same name in the base would come first (ms-swift pull 9245)"


def data(env: dict[str, str], *rules: dict[str, str], of_ray: dict[str, str] | None = None) -> Catalog:
    table = Compatibility.model_validate({**compatibility().model_dump(), "env": rules})
    pins = [{"name": "torch-npu", "version": "2.9.0"}, {"name": "ray", "version": "2.50.0"}]
    ray = components()["ray"].model_copy(update={"env": of_ray or {}})
    stack = profile(components=pins, env=env)
    return catalog(profiles={"stack": stack}, compatibility=table, components={**components(), "ray": ray})


def judge(env: dict[str, str], *rules: dict[str, str], of_ray: dict[str, str] | None = None) -> tuple[Finding, ...]:
    found = data(env, *rules, of_ray=of_ray)
    return in_order(environment(subject(recipe(found=found), found)))


@pytest.mark.parametrize("value", ["2.50.0", "v2.50.0", "ray 2.50.0, not 2.51.0"])
def test_a_variable_that_names_the_version_which_is_there(value: str) -> None:
    assert judge({"RAY_VERSION": value}, NAMES) == ()


@pytest.mark.parametrize("value", ["2.50.1", "2.5", "12.50.0", "2.50.0.1", ""])
def test_a_variable_that_names_another_version(value: str) -> None:
    assert judge({"RAY_VERSION": value}, NAMES) == (
        Finding(
            Severity.ERROR,
            "env",
            f"RAY_VERSION={value} does not name ray 2.50.0, which is in the set",
            "what is said is what is there",
            "take RAY_VERSION out of images/profiles/stack.yaml or of the component that sets it",
        ),
    )


def test_a_rule_about_what_is_not_set_or_not_there_says_nothing() -> None:
    assert judge({}, NAMES, NEVER) == ()
    assert judge({"RAY_VERSION": "1"}, {**NAMES, "beside": "vllm"}) == ()


@pytest.mark.parametrize("of_ray", [False, True], ids=["profile", "component"])
def test_a_value_that_must_not_stand_beside_a_package(of_ray: bool) -> None:
    """T35: sleep mode's allocator asserts with expandable segments."""
    env = {"NPU_ALLOC": "max_split_size_mb:256,expandable_segments:True"}
    found = judge({}, NEVER, of_ray=env) if of_ray else judge(env, NEVER)
    assert [(f.severity, f.code, f.what, f.why) for f in found] == [
        (
            Severity.WARNING,
            "env",
            "NPU_ALLOC=max_split_size_mb:256,expandable_segments:True beside torch-npu 2.9.0",
            "the allocator asserts",
        )
    ]
    assert judge({"NPU_ALLOC": "expandable_segments:False"}, NEVER, of_ray=env) == (), "the profile's value counts"


def test_a_value_that_only_the_build_gets_counts_for_what_is_built() -> None:
    engine = source_components()["engine"].model_copy(update={"build_env": {"KERNELS": "0"}})
    rule = {"variable": "KERNELS", "beside": "engine", "value": "^0$", "reason": "it hardly works without"}
    table = Compatibility.model_validate({**compatibility().model_dump(), "env": [rule, {**rule, "beside": "torch"}]})
    found = catalog(components={**catalog().components, "engine": engine}, compatibility=table)
    assert [f.what for f in environment(subject(source_recipe(found=found), found))] == [
        "KERNELS=0 beside engine 0.11.0"
    ]


def test_values_refer_to_what_components_and_profile_set_before() -> None:
    found = data({"A": "${B}/a:${PATH}", "C": "${A}"}, of_ray={"B": "/b"})
    assert set_variables(recipe(found=found)) == {"B": "/b", "A": "/b/a:${PATH}", "C": "/b/a:${PATH}"}


# P04: modelscope/ms-swift pull 9245


@pytest.mark.parametrize(
    "path", ["/opt/src/megatron-lm:${PYTHONPATH}", "/opt/x:/opt/src/megatron-lm/:${PYTHONPATH}", "/opt/src/megatron-lm"]
)
def test_megatrons_tree_is_on_the_path(path: str) -> None:
    assert judge({"MEGATRON_LM_PATH": "/opt/src/megatron-lm", "PYTHONPATH": path}) == ()


def test_one_of_the_two_alone_contradicts_nothing() -> None:
    assert judge({"MEGATRON_LM_PATH": "/opt/src/megatron-lm"}) == ()
    assert judge({"PYTHONPATH": "/opt/x:${PYTHONPATH}"}) == ()


def test_two_trees_of_megatron() -> None:
    assert judge({"MEGATRON_LM_PATH": "/opt/mine", "PYTHONPATH": "/opt/mine2:${PYTHONPATH}"}) == (
        Finding(
            Severity.ERROR,
            "env",
            "MEGATRON_LM_PATH=/opt/mine is not in PYTHONPATH=/opt/mine2:${PYTHONPATH}",
            "two trees of Megatron: Python imports another one than the variable names (ms-swift pull 9245)",
            "put /opt/mine into PYTHONPATH, before ${PYTHONPATH}",
        ),
    )


def test_a_tree_behind_what_the_base_has_is_a_warning() -> None:
    found = judge({"PYTHONPATH": "${PYTHONPATH}:/opt/b:"}, of_ray={"PYTHONPATH": "/opt/a:${PYTHONPATH}"})
    assert found == (
        Finding(
            Severity.WARNING,
            "env",
            "PYTHONPATH has /opt/b behind what the base sets",
            APPEND,
            "write it before: PYTHONPATH=/opt/b:${PYTHONPATH}",
        ),
    )
    assert judge({"PYTHONPATH": "${PYTHONPATH}"}) == ()


# Trees: PYTHONPATH has them behind what the base sets

TREES = [{"name": "torch", "version": "2.9.0"}, {"name": "engine", "commit": ENGINE}]
TREES += [{"name": "torch-npu", "version": "2.9.0"}, {"name": "patcher", "commit": PATCHER}]


def with_tree(**env: str) -> tuple[Finding, ...]:
    found = source_recipe(components=TREES, env=env)
    return in_order(environment(subject(found)))


def test_megatrons_tree_counts_where_the_image_puts_it() -> None:
    assert with_tree(MEGATRON_LM_PATH="/opt/src/patcher") == ()
    assert with_tree(MEGATRON_LM_PATH="/opt/src/patcher", PYTHONPATH="/mine:${PYTHONPATH}") == ()
    (finding,) = with_tree(MEGATRON_LM_PATH="/opt/mine")
    assert finding.what == "MEGATRON_LM_PATH=/opt/mine is not in PYTHONPATH=${PYTHONPATH}:/opt/src/patcher"


# ATB's C++ ABI (T12)

ATB = "/usr/local/Ascend/nnal/atb/latest/atb"
ABI = CxxAbi(by_release={Arch.AMD64: {"==2.6.*": 0}, Arch.ARM64: {"==2.6.*": 1}}, source="symbols of the wheels")


def judge_atb(arch: str, version: str, of_ray: dict[str, str] | None = None, **env: str) -> tuple[Finding, ...]:
    found = data(env, of_ray=of_ray)
    of_npu = found.components["torch-npu"].model_copy(update={"cxx_abi": ABI})
    known = catalog(**{**vars(found), "components": {**found.components, "torch-npu": of_npu}})
    options = Options(arch=arch, pins=(f"torch-npu=={version}",))
    return in_order(atb(subject(recipe(options, known), known)))


def test_an_environment_that_names_the_other_atb() -> None:
    """verl-sglang's guide set was right on arm64 and wrong on x86-64."""
    assert judge_atb("amd64", "2.6.0.post3", ATB_HOME_PATH=f"{ATB}/cxx_abi_1") == (
        Finding(
            Severity.ERROR,
            "env",
            "ATB_HOME_PATH names ATB's build cxx_abi_1; torch-npu 2.6.0.post3 on amd64 has the C++ ABI 0",
            "images/components/torch-npu.yaml: symbols of the wheels",
            "take it out of images/profiles/stack.yaml or of the component that sets it: the image gets cxx_abi_0",
        ),
    )
    assert judge_atb("arm64", "2.6.0.post3", ATB_HOME_PATH=f"{ATB}/cxx_abi_1") == ()


def test_a_path_below_the_other_atb_in_any_variable() -> None:
    of_ray = {"LD_LIBRARY_PATH": f"/x:{ATB}/cxx_abi_0/lib:${{LD_LIBRARY_PATH}}"}
    (finding,) = judge_atb("arm64", "2.6.0", of_ray)
    assert finding.what.startswith("LD_LIBRARY_PATH names ATB's build cxx_abi_0; torch-npu 2.6.0 on arm64 ")
    assert judge_atb("amd64", "2.6.0", of_ray) == ()


def test_an_abi_that_nothing_is_known_of_is_a_note() -> None:
    assert judge_atb("amd64", "2.1.0", ATB_HOME_PATH=f"{ATB}/cxx_abi_0") == (
        Finding(
            Severity.NOTE,
            "env",
            "the C++ ABI of torch-npu 2.1.0 on amd64 is not known: ATB stays as the base has it, cxx_abi_1",
            "images/components/torch-npu.yaml: symbols of the wheels",
            "the check import.torch-npu-pair of the image compares it with torch's",
        ),
    )


def test_a_set_in_which_nothing_decides_the_abi_says_nothing() -> None:
    assert in_order(atb(subject(recipe()))) == ()
