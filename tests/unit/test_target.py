from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cannery.catalog.target import Target, parse_arch, parse_cann, parse_chip, parse_os, parse_python
from cannery.errors import UsageError
from cannery.vocab import Arch, Chip


@pytest.mark.parametrize(
    ("text", "value"),
    [("8.5.0", "8.5.0"), ("8.3.RC1", "8.3.rc1"), (" 8.1.rc1 ", "8.1.rc1"), ("8.2.RC1.alpha003", "8.2.rc1.alpha003")],
)
def test_cann_is_canonical_lower_case(text: str, value: str) -> None:
    assert parse_cann(text) == value


@pytest.mark.parametrize("text", ["8", "8.5", "v8.5.0", "8.5.x", "8.5.0-910b", "", "８.5.0"])
def test_no_cann_version(text: str) -> None:
    with pytest.raises(UsageError, match="is not a CANN version") as caught:
        parse_cann(text)
    assert "8.5.0" in caught.value.hint


@pytest.mark.parametrize("text", ["3.10", " 3.11 ", "3.9"])
def test_python(text: str) -> None:
    assert parse_python(text) == text.strip()


@pytest.mark.parametrize("text", ["3", "2.7", "3.1.1", "python3.11", "3.١١", "/usr/bin/python3"])
def test_no_python_version(text: str) -> None:
    with pytest.raises(UsageError, match="is not a Python version"):
        parse_python(text)


@pytest.mark.parametrize("text", ["ubuntu22.04", "openeuler24.03", "OpenEuler24.03", "debian12"])
def test_os(text: str) -> None:
    assert parse_os(text) == text.lower()


@pytest.mark.parametrize("text", ["ubuntu", "22.04", "ubuntu 22.04", "ubuntu22.04-lts", ""])
def test_no_os(text: str) -> None:
    with pytest.raises(UsageError, match="is not an OS name"):
        parse_os(text)


def test_a_target_in_words() -> None:
    target = Target("8.5.0", Chip.A2, "ubuntu22.04", "3.11", Arch.ARM64)
    assert target.base_tag == "8.5.0-910b-ubuntu22.04-py3.11"
    assert str(target) == "8.5.0-910b-ubuntu22.04-py3.11-arm64"


@given(st.text(max_size=12), st.sampled_from([parse_cann, parse_python, parse_os, parse_arch, parse_chip]))
def test_any_text_is_parsed_or_refused(text: str, parse: object) -> None:
    try:
        value = parse(text)  # type: ignore[operator]
    except UsageError:
        return
    assert parse(str(value)) == value, "parsing is idempotent"  # type: ignore[operator]
