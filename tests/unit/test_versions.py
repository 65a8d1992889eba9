from __future__ import annotations

import itertools

import pytest
from factories import recipe
from hypothesis import given
from hypothesis import strategies as st

from cannery.catalog.target import canonical, order, parse_cann, without_build
from cannery.errors import UsageError
from cannery.recipe.recipe import Options

# Oldest first, each written as its makers do.
CANN = [
    "8.0.RC1",
    "8.0.RC3",
    "8.0.0.alpha001",
    "8.0.0.beta1",
    "8.0.0",
    "8.2.RC1.alpha003",
    "8.2.RC1",
    "8.3.RC1",
    "8.3.RC1.B10",
    "8.3.RC2",
    "8.3.0",
    "8.5.0",
    "8.5.0.B160",
    "8.5.1",
    "9.0.0",
    "10.0.RC1",
]
DRIVERS = ["23.0.3", "24.1.rc3", "24.1.0", "24.1.0.3", "25.0.rc1", "25.0.rc1.1", "25.0.rc1.10", "25.2.0", "25.5.0"]

number = st.integers(0, 999).map(str)
written = st.builds(
    lambda major, minor, rc, last, patch, stage, build: f"{major}.{minor}.{rc}{last}{patch}{stage}{build}",
    number,
    number,
    st.sampled_from(["", "rc", "RC"]),
    number,
    st.sampled_from(["", ".1", ".2.220"]),
    st.sampled_from(["", ".alpha003", ".beta1"]),
    st.sampled_from(["", ".B160", ".b9"]),
)


@pytest.mark.parametrize("versions", [CANN, DRIVERS], ids=["cann", "driver"])
def test_versions_sort_as_they_came_out(versions: list[str]) -> None:
    for older, newer in itertools.combinations(versions, 2):
        assert order(older) < order(newer), f"{older} came before {newer}"
    assert sorted([*versions[1::2], *versions[::2]], key=order) == versions


def test_what_is_no_such_version_is_older_than_all_that_are() -> None:
    assert order("unknown") < order("0.0.rc0")
    assert order("25.5") < order("0.0.rc0")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("8.5.0.B160", "8.5.0"),
        ("8.3.rc1.b10", "8.3.rc1"),
        ("8.5.0", "8.5.0"),
        ("8.2.rc1.alpha003", "8.2.rc1.alpha003"),
        ("25.0.rc1.1", "25.0.rc1.1"),
        ("main", "main"),
    ],
)
def test_a_build_is_of_its_release_and_a_preview_is_not(text: str, line: str) -> None:
    assert without_build(text) == line


@given(written)
def test_every_form_is_parsed_once_and_compares_whatever_its_case(text: str) -> None:
    found = canonical(f" {text} ")
    assert found == canonical(found) == text.lower()
    assert order(text) == order(found)
    assert order(without_build(text)) <= order(text)
    assert without_build(without_build(text)) == without_build(text)
    assert parse_cann(text) == found


@pytest.mark.parametrize(
    "text", ["8.5", "8.5.0..", "8.5.0.B", "8.5.0.b1.2", "v8.5.0", "8.5.0-b1", "", "8.5.rc", "８.5.0"]
)
def test_no_version_of_this_kind(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version of CANN or of a driver"):
        canonical(text)
    with pytest.raises(UsageError, match="is not a CANN version"):
        parse_cann(text)


def test_a_target_with_a_build_has_the_facts_and_the_tag_of_its_release() -> None:
    found = recipe(Options(cann="8.5.0.B160"))
    assert found.target.cann == "8.5.0.b160"
    assert found.base.line.cann == "8.5.0"
    assert found.base.references[0] == "registry.example/cann:8.5.0-910b-ubuntu22.04-py3.11"
    assert found.base.tag.python == "3.11.14"
    assert str(found.target) == "8.5.0.b160-910b-ubuntu22.04-py3.11-amd64"
