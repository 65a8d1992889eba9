from __future__ import annotations

import pytest
from factories import profile
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from table_rows import contradictions

from cannery.catalog.catalog import BaseTag, Pin, Profile, Reasoned, StandIn
from cannery.catalog.compatibility import Compatibility, Row
from cannery.catalog.component import Component, parse_component
from cannery.catalog.errors import faults
from cannery.catalog.fields import (
    NPU_CHECKS,
    ChipName,
    IndexName,
    Name,
    component_name_fault,
    profile_name_fault,
)
from cannery.compat.subject import holds
from cannery.vocab import Arch, BaseKind, Chip
from verifying.checks import CHECKS


def problem(call: object, *args: object, **kwargs: object) -> str:
    with pytest.raises(ValidationError) as caught:
        call(*args, **kwargs)  # type: ignore[operator]
    return " / ".join(detail["msg"] for detail in caught.value.errors())


# What a cell may look like: bounds and versions of all kinds.
CELL = r"\A((>=|<=|==|!=|<|>|~=|===)? ?[0-9]{1,2}(\.(rc|b|post)?[0-9]{1,2}){0,3}(\.\*)?,?){1,2}\Z"
TARGET = {"cann": "8.5.0", "chip": "910b", "os": "ubuntu22.04", "python": "3.11"}


def test_a_truth_value_says_to_quote_it() -> None:
    assert "quote it" in problem(Pin, name="x", version=True)


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
        ("python", True, "quote it"),
        ("arch", ["riscv"], "is not known"),
        ("python", ["3.11"], "a text is expected here"),
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
        ({"components": [{"name": "torch_npu"}, {"name": "torch-npu"}]}, "torch-npu is given twice"),
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
    assert "'wheels'" in problem(parse_component, {"kind": "wheel"})
    assert problem(parse_component, {"kind": "system", "summary": "x", "system": {"yum": ["a"]}})
    assert problem(BaseTag, python="3.11.14", atb_abi=2)


def paths(value: object) -> list[tuple[object, ...]]:
    """Where the faults of a component are."""
    with pytest.raises(ValidationError) as caught:
        parse_component(value)
    return [fault.path for fault in faults(caught.value, Component)]


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (["cmake", "-j{job}"], (0, 1)),
        (["cmake", "-D{}"], (0, 1)),
        (["cmake", "{soc}"], ()),  # there is no soc_variable
        (["cmake", "a\nb"], (0, 1)),
        ([""], (0, 0)),
        ([], (0,)),
    ],
)
def test_a_command_ahead_of_a_build_that_nobody_could_run(command: list[str], place: tuple[int, ...]) -> None:
    known = {"a" * 40: {"version": "1.0", "source": "its list"}}
    native = {"kind": "native", "summary": "x", "hosts": {"h": "a/b"}, "install": "wheel", "revisions": known}
    assert parse_component({**native, "before": [["cmake", "{python}{jobs}{toolkit_home}"]]})
    assert paths({**native, "before": [command]}) == [("before", *place)]
    assert paths({**native, "kind": "source", "before": [["a"]]}) == [("before",)]


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
    assert "is not a name" in problem(parse_component, {"kind": "wheels", "summary": "x", "package": name})
    assert "is not a name" in problem(Pin, name=name)


def test_a_fault_without_words_of_ours_keeps_pydantics() -> None:
    with pytest.raises(ValidationError) as caught:
        StandIn.model_validate({"epoch": float("inf")})
    found = {fault.path: fault for fault in faults(caught.value, StandIn)}
    assert "finite" in found["epoch",].what
    assert found["suite",].what == "missing"


REASON = "long enough"


@pytest.mark.parametrize(
    ("changes", "path", "says"),
    [
        (
            {"target": {**TARGET, "arch": ["amd64", "x86_64"]}},
            ("target", "arch", 1),
            "amd64 is given twice; remove one",
        ),
        ({"target": {**TARGET, "pythons": ["3.10", " 3.10"]}}, ("target", "pythons", 1), "3.10 is given twice; remove"),
        ({"components": [{"name": "a_b"}, {"name": "c"}, {"name": "A-B"}]}, ("components", 2), "a-b is given twice"),
        (
            {
                "exclude_newer_packages": {
                    name: {"date": "2026-01-01", "reason": REASON} for name in ("Foo_Bar", "foo-bar")
                }
            },
            ("exclude_newer_packages", "foo-bar"),
            "foo-bar and Foo_Bar are one package; remove one of them",
        ),
        ({"exclude_newer": "9999-12-31"}, ("exclude_newer",), "9999-12-31 is out of range"),
        ({"exclude_newer": "0001-01-01"}, ("exclude_newer",), "a day from 2000-01-01 to 2099-12-31"),
        (
            {"components": [{"name": "torch", "version": " 2.7.1"}]},
            ("components", 0, "version"),
            "' 2.7.1' is not how this version is written; write \"2.7.1\"",
        ),
        ({"components": [{"name": "t", "version": "v2.7.1"}]}, ("components", 0, "version"), 'write "2.7.1"'),
        ({"components": [{"name": "t", "version": "2.7.1-1"}]}, ("components", 0, "version"), 'write "2.7.1.post1"'),
        ({"components": [{"name": "t", "version": "9" * 25}]}, ("components", 0, "version"), "has a number that no"),
        ({"components": [{"name": "t", "version": "9" * 9999}]}, ("components", 0, "version"), "is not a version"),
        (
            {"constraints": [{"requirement": "torch===weird", "reason": REASON}]},
            ("constraints", 0, "requirement"),
            "===weird names no version; name a version, with ==",
        ),
        (
            {"overrides": [{"requirement": "torch==99999999999999999999", "reason": REASON}]},
            ("overrides", 0, "requirement"),
            "numbers of a version have at most 18 digits",
        ),
        (
            {"constraints": [{"requirement": "ray @ https://me:s3cr3t/x@host/ray", "reason": REASON}]},
            ("constraints", 0, "requirement"),
            "credentials in it",
        ),
        (
            {"constraints": [{"requirement": "ray@me:s3cr3t@host/ray", "reason": REASON}]},
            ("constraints", 0, "requirement"),
            "ray has an address, and a lock has only packages of an index; write its version",
        ),
        ({"env": {"A": "a\0b"}}, ("env", "A"), "the control character U+0000 is in this text; remove it"),
        ({"env": {"HTTPS_PROXY": "http://me:s3cr3t@p:1"}}, ("env", "HTTPS_PROXY"), "credentials in it"),
        ({"documents": ["https://s3cr3t@host/guide"]}, ("documents", 0), "put them into the pip settings or git's"),
        ({"summary": b"x"}, ("summary",), "a text is expected here"),
        ({"shm_size": "0"}, ("shm_size",), "is not a size"),
        ({"shm_size": "9" * 13}, ("shm_size",), "is not a size"),
        ({"pip_check_allow": ["a{99999999999}"]}, ("pip_check_allow", 0), "cannot be read"),
    ],
)
def test_a_fault_says_where_it_is_and_what_to_do(
    changes: dict[str, object], path: tuple[object, ...], says: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        profile(**changes)
    found = {fault.path: f"{fault.what}; {fault.hint}" for fault in faults(caught.value, Profile)}
    assert says in found[path]
    assert "s3cr3t" not in "".join(found.values())


def test_versions_may_be_arbitrarily_equal_to_a_version() -> None:
    assert Reasoned(requirement="torch===2.7.1", reason=REASON).requirement == "torch===2.7.1"


def row(**fits: str) -> Row:
    return Row.model_validate({"of": "torch-npu==2.9.0", "fits": fits, "source": "s"})


@pytest.mark.parametrize(
    ("key", "cell", "kept"),
    [
        ("driver", "25.3.RC1", "25.3.rc1"),
        ("driver", "25.0.rc1.1", "25.0.rc1.1"),
        ("driver", ">=25.0.rc1, <26.0.0", ">=25.0.rc1, <26.0.0"),
        ("cann", " 8.3.RC1", "8.3.rc1"),
        ("python", "3.10", "3.10"),
        ("python", ">=3.9,<3.12", ">=3.9,<3.12"),
        ("torch", "2.9.0.post1+git4c901a4", "2.9.0.post1+git4c901a4"),
        ("Torch", "==2.9.*", "==2.9.*"),
    ],
)
def test_cells_of_a_row(key: str, cell: str, kept: str) -> None:
    assert row(**{key: cell}).fits == {key.lower(): kept}


@pytest.mark.parametrize(
    ("key", "cell", "says"),
    [
        ("driver", "newest", "'newest' is not a driver version; written like 25.3.rc1, or >=25.0.rc1,<26.0.0"),
        ("driver", "25", "'25' is not a driver version"),
        ("driver", ">=25", "'>=25' is not a driver version"),
        ("driver", "~=25.0.0", "is not a driver version"),
        ("driver", ">=25.0.rc1,", "is not a driver version"),
        ("cann", ">=8.3.rc1", "is not a CANN version; written like 8.5.0"),
        ("python", "3.10.4", "is not a Python version"),
        ("python", "3", "is not a Python version"),
        ("torch", "2.x", "'2.x' is not a version"),
        ("torch", "2.9.0+", "'2.9.0+' is not a version"),
        ("torch", "2.9.0.rc1", 'write "2.9.0rc1"'),
        ("torch", "", "a version or a range of versions is wanted here; like 2.7.1, or >=3.10,<3.12"),
        ("torch", "===two", "===two names no version"),
        ("torch", "²", "'²' is not a version"),
    ],
)
def test_cells_that_mean_nothing(key: str, cell: str, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        row(cann="8.5.0", **{key: cell}) if key != "cann" else row(cann=cell)
    (fault,) = faults(caught.value, Row)
    assert fault.path == ("fits", key)
    assert says in f"{fault.what}; {fault.hint}"


@given(st.sampled_from(["cann", "driver", "python", "torch", "Torch_NPU"]), st.text(max_size=12) | st.from_regex(CELL))
def test_any_cell_is_refused_or_can_be_compared(key: str, cell: str) -> None:
    try:
        (kept,) = row(**{key: cell}).fits.values()
    except ValidationError:
        return
    key = key.lower().replace("_", "-")
    assert holds(key, kept, {"cann": "8.5.0.b160", "driver": "25.0.rc1.1", "python": "3.11"}.get(key, "2.9.0")) in {
        True,
        False,
    }


@pytest.mark.parametrize("of", ["torch==2.*", "torch==two", "torch===2.9", "torch==2,<3", "torch[x]==2", "torch"])
def test_a_row_is_of_one_release(of: str) -> None:
    assert problem(Row, of=of, fits={"cann": "8.5.0"}, source="s")


def test_two_spellings_in_a_row_are_one_distribution() -> None:
    assert "torch-npu is here in two spellings" in problem(row, **{"torch-npu": "2.9.0", "torch_npu": "2.8.0"})


def table(rank: str, *rows: dict[str, str]) -> Compatibility:
    return Compatibility.model_validate(
        {
            "sources": {
                "s": {"what": "a table", "rank": rank, "date": "2026-01-01"},
                "other": {"what": "another", "rank": rank, "date": "2026-01-01"},
            },
            "rows": [
                {"of": row.pop("of", "a==1"), "source": row.pop("source", "s"), "fits": row} for row in map(dict, rows)
            ],
        }
    )


@pytest.mark.parametrize("rank", ["metadata", "table", "document"])
@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        ({"b": "1", "cann": "8.5.0"}, {"b": "2", "cann": "8.5.0"}, "b is 2 here and 1 in another row"),
        ({"b": "1"}, {"b": "2", "cann": "8.5.0"}, "b is 2 here and 1 in another row"),
        ({"b": "1"}, {"b": ">=2"}, "b is >=2 here and 1 in another row"),
        ({"b": ">=1,<2"}, {"b": ">=1"}, "b is >=1 here and >=1,<2 in another row"),
        ({"driver": "25.0.0"}, {"driver": ">=25.0.rc1.1"}, "driver is >=25.0.rc1.1 here and 25.0.0 in another row"),
        ({"b": "1"}, {"b": "1", "source": "other"}, ""),
        ({"b": "1"}, {"b": "2", "source": "other"}, ""),
        ({"b": "1"}, {"b": "2", "of": "a==2"}, ""),
        ({"b": "1", "cann": "8.5.0"}, {"b": "2", "cann": "8.3.rc1"}, ""),
        ({"b": "1"}, {"c": "2"}, ""),
        ({"b": "1.5"}, {"b": ">=1,<2"}, ""),
        ({"b": ">=1,<2"}, {"b": "<2,>=1"}, ""),
    ],
)
def test_rows_of_one_source_that_contradict(rank: str, one: dict[str, str], other: dict[str, str], says: str) -> None:
    faults = list(contradictions(table(rank, one, other)))
    if not says or rank == "document":  # a document shows sets in use
        assert faults == []
        return
    (fault,) = faults
    assert (fault.what, fault.path) == (f"a==1 of s: {says}", ("rows", 1))
    assert fault.hint == "remove one of rows.0 and rows.1, or correct it"


def test_the_same_row_twice() -> None:
    (fault,) = contradictions(table("document", {"b": "1"}, {"c": "1"}, {"b": "1", "of": "A==1.0"}))
    assert (fault.what, fault.path) == ("A==1.0 of s: this row is given twice", ("rows", 2))


@pytest.mark.parametrize("name", ["pytorch-cpu", "a.b_c"])
@pytest.mark.parametrize("field", [IndexName, Name])
def test_names_of_indexes_and_hosts(field: object, name: str) -> None:
    assert TypeAdapter(field).validate_python(name) == name


@pytest.mark.parametrize("name", ["a b", "", "-a", "a/b", "ä"])
@pytest.mark.parametrize("field", [IndexName, Name])
def test_no_names_of_indexes_and_hosts(field: object, name: str) -> None:
    assert "is not a name" in problem(TypeAdapter(field).validate_python, name)


def test_the_index_of_the_hosts_pip_is_no_index_of_the_catalog() -> None:
    assert "'default' is the index of the host's pip" in problem(TypeAdapter(IndexName).validate_python, "default")
    assert "no chip '910bx'; did you mean 910b" in problem(TypeAdapter(ChipName).validate_python, "910bx")
    assert TypeAdapter(ChipName).validate_python("a3") == "a3"
