from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cannery.core.errors import UsageError
from cannery.core.tags import ImageTag, parse_tag
from cannery.core.target import CANN, OS_NAME, PYTHON
from cannery.core.words import Chip

# What Docker takes for a tag.
DOCKER_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)

tags = st.builds(
    ImageTag,
    cann=st.from_regex(re.compile(CANN.pattern, re.ASCII), fullmatch=True).filter(lambda t: len(t) < 30),
    chip=st.sampled_from([chip.value for chip in Chip]),
    os=st.from_regex(re.compile(OS_NAME.pattern, re.ASCII), fullmatch=True).filter(lambda t: len(t) < 30),
    python=st.from_regex(re.compile(PYTHON.pattern, re.ASCII), fullmatch=True),
    plan=st.one_of(st.just(""), st.from_regex(re.compile("[0-9a-f]{12}", re.ASCII), fullmatch=True)),
    standin=st.booleans(),
    custom=st.booleans(),
    forced=st.booleans(),
)


@given(tags)
def test_format_and_parse_round_trip(tag: ImageTag) -> None:
    assert parse_tag(str(tag)) == tag
    assert DOCKER_TAG.fullmatch(str(tag))


@given(tags)
def test_the_alias_is_the_tag_without_its_plan(tag: ImageTag) -> None:
    alias = parse_tag(tag.alias)
    assert alias.plan == ""
    assert alias == parse_tag(alias.alias)
    assert (alias.standin, alias.custom, alias.forced) == (tag.standin, tag.custom, tag.forced)


def test_what_a_tag_looks_like() -> None:
    tag = ImageTag("8.5.0", "910b", "ubuntu22.04", "3.11", "0123456789ab", standin=True, forced=True)
    assert str(tag) == "8.5.0-910b-ubuntu22.04-py3.11-0123456789ab-standin-forced"
    assert tag.alias == "8.5.0-910b-ubuntu22.04-py3.11-standin-forced"


@pytest.mark.parametrize(
    "text",
    ["", "latest", "8.5.0-910b-ubuntu22.04", "8.5.0-910b-ubuntu22.04-py3.11-xyz", "8.5.0-910b-ubuntu22.04-py3.11-forced-standin"],
)  # fmt: skip
def test_no_tag_of_ours(text: str) -> None:
    with pytest.raises(UsageError, match="is not a Cannery tag"):
        parse_tag(text)
