from __future__ import annotations

from datetime import date

import pytest
from factories import profile
from pydantic import ValidationError

from cannery.core.catalog import BaseTag, Component, Pin, Reasoned, StandIn
from cannery.core.catalog_errors import key_path, sentence
from cannery.core.compatibility import Compatibility, Row
from cannery.core.fields import NPU_CHECKS, component_name_fault, profile_name_fault, yaml_kind
from cannery.core.words import Arch, BaseKind, Chip
from verifying.checks import CHECKS


def problem(call: object, *args: object, **kwargs: object) -> str:
    with pytest.raises(ValidationError) as caught:
        call(*args, **kwargs)  # type: ignore[operator]
    return " / ".join(detail["msg"] for detail in caught.value.errors())


TARGET = {"cann": "8.5.0", "chip": "910b", "os": "ubuntu22.04", "python": "3.11"}


@pytest.mark.parametrize("value", [3.1, 3, True, date(2026, 11, 20)])
def test_an_unquoted_scalar_says_to_quote_it(value: object) -> None:
    assert "quote it" in problem(Pin, name="x", version=value)
    assert yaml_kind(value)


def test_a_text_is_no_yaml_scalar() -> None:
    assert yaml_kind("3.10") is None


def test_target_words_are_parsed_once() -> None:
    target = profile(target={**TARGET, "cann": "8.3.RC1", "chip": "A2", "arch": ["x86_64"]}).target
    assert (target.cann, target.chip, target.arch) == ("8.3.rc1", Chip.A2, (Arch.AMD64,))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("arch", [], "at least 1"),
        ("cann", "8.5", "is not a CANN version"),
        ("chip", "910x9", "is not known"),
        ("os", "beos", "is not an OS name"),
        ("python", "3", "is not a Python version"),
        ("python", 3.1, "quote it"),
        ("arch", ["riscv"], "is not known"),
        ("python", ["3.11"], "a text is wanted here"),
    ],
)
def test_a_wrong_target_word(field: str, value: object, says: str) -> None:
    assert says in problem(profile, target={**TARGET, field: value})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"colour": "red"}, "Extra inputs"),
        ({"shm_size": "16gb"}, "like 16g"),
        ({"shm_size": "lots"}, "is not a size"),
        ({"exclude_newer": "2026-13-01"}, "written like"),
        ({"exclude_newer": "20261120"}, "written like"),
        ({"env": {"A-B": "x"}}, "is not the name of an environment variable"),
        ({"env": {"A": "x\ny"}}, "is not one line"),
        ({"components": []}, "at least 1"),
        ({"components": [{"name": "torch_npu"}, {"name": "torch-npu"}]}, "named twice: torch-npu"),
        ({"components": [{"name": "torch", "version": "newest"}]}, "'newest' is not a version"),
        ({"base": "stand-in"}, "'cann' or 'standin'"),
        ({"overrides": [{"requirement": "torch==2.7.1"}]}, "Field required"),
        ({"overrides": [{"requirement": "torch = 2.7.1", "reason": "long enough"}]}, "is not a requirement"),
        ({"may_skip": {"fake": []}}, "'real', 'standin' or 'custom'"),
    ],
)
def test_a_wrong_profile(changes: dict[str, object], says: str) -> None:
    assert says in problem(profile, **changes)


def test_a_reason_is_not_a_word() -> None:
    assert "at least 8" in problem(Reasoned, requirement="torch==2.7.1", reason="why")


def test_rows_hold_versions() -> None:
    row = {
        "of": "Torch_NPU==2.9.0.post1",
        "fits": {"torch": "2.9.0", "cann": "8.3.RC1", "python": ">=3.9,<3.12"},
        "source": "s",
    }
    made = Row.model_validate(row)
    assert (made.name, made.version) == ("torch-npu", "2.9.0.post1")
    assert made.fits == {"torch": "2.9.0", "cann": "8.3.rc1", "python": ">=3.9,<3.12"}
    assert "is not NAME==VERSION" in problem(Row, **{**row, "of": "torch-npu>=2.9"})
    assert "is not a range of versions" in problem(Row, **{**row, "fits": {"torch": "two"}})
    assert "is not a CANN version" in problem(Row, **{**row, "fits": {"cann": "9"}})


def test_a_row_names_a_source_that_the_table_has() -> None:
    row = {"of": "a==1", "fits": {"torch": "1"}, "source": "nowhere"}
    assert "nowhere" in problem(Compatibility, sources={}, rows=[row])


def test_values_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        profile().summary = "other"  # type: ignore[misc]


def test_closed_words_of_components() -> None:
    assert "'wheels', 'system', 'source' or 'native'" in problem(Component, kind="wheel", summary="x")
    assert problem(Component, kind="system", summary="x", system={"yum": ["a"]})
    assert problem(BaseTag, python="3.11.14", atb_abi=2)


def test_the_stand_in_calls_its_schema_schema() -> None:
    value = {"schema": 0, "suite": "s", "python": "3.11", "epoch": 0, "packages": ["a"], "libraries": {"l": {}}}
    assert "greater than or equal to 1" in problem(StandIn.model_validate, value)
    assert StandIn.model_validate({**value, "schema": 2}).schema_number == 2


def test_may_skip_is_by_base_kind() -> None:
    assert profile().may_skip[BaseKind.REAL] == ("npu.nodes",)


@pytest.mark.parametrize("name", ["quickstart", "a", "0", "a.b", "a_b-c", "x" * 60])
def test_names_that_an_image_can_have(name: str) -> None:
    assert not profile_name_fault(name)


@pytest.mark.parametrize("name", ["", "_tools", "My Prof", "a..b", "-a", "a_", "ä", "x" * 61, "a/b", "a\n"])
def test_names_that_an_image_cannot_have(name: str) -> None:
    assert "cannot be the name of an image" in profile_name_fault(name)


@pytest.mark.parametrize(("name", "ok"), [("torch-npu", True), ("torch_npu", False), ("a b", False), ("A", False)])
def test_names_of_components(name: str, ok: bool) -> None:
    assert (not component_name_fault(name)) is ok


def test_the_npu_checks_are_the_verify_scripts() -> None:
    assert tuple(name for name in CHECKS if name.startswith("npu.")) == NPU_CHECKS


@pytest.mark.parametrize("name", ["my pkg", "", "a-", "a[b]", "a==1"])
def test_a_name_is_no_requirement(name: str) -> None:
    assert "is not a name" in problem(Component, kind="wheels", summary="x", package=name)
    assert "is not a name" in problem(Pin, name=name)


def test_a_fault_without_words_of_ours_keeps_pydantics() -> None:
    with pytest.raises(ValidationError) as caught:
        StandIn.model_validate({"epoch": float("inf")})
    found = {key_path(detail): sentence(detail, StandIn) for detail in caught.value.errors()}
    assert "finite" in found["epoch",]
    assert found["suite",] == "missing; this key has to be given"
