from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cannery.catalog.target import parse_cann, parse_os, parse_python
from cannery.errors import UsageError
from cannery.plan import ImageTag, parse_tag
from cannery.vocab import Chip

# What Docker takes for a tag.
DOCKER_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)

number = st.integers(0, 99).map(str)
release = st.one_of(number, number.map(lambda n: f"rc{n}"))
tags = st.builds(
    ImageTag,
    cann=st.tuples(number, number, release, st.sampled_from(["", ".alpha003", ".beta1"])).map(
        lambda t: f"{t[0]}.{t[1]}.{t[2]}{t[3]}"
    ),
    chip=st.sampled_from([chip.value for chip in Chip]),
    os=st.tuples(st.sampled_from(["ubuntu", "openeuler", "kylin_v"]), number, number).map(
        lambda t: f"{t[0]}{t[1]}.{t[2]}"
    ),
    python=number.map(lambda n: f"3.{n}"),
    plan=st.sampled_from(["", "0123456789ab", "910910910910", "ffffffffffff"]),
    standin=st.booleans(),
    custom=st.booleans(),
    forced=st.booleans(),
).flatmap(lambda tag: st.builds(replace, st.just(tag), trial=st.booleans() if tag.plan else st.just(False)))


@given(tags)
def test_targets_words_are_tags_words(tag: ImageTag) -> None:
    assert (parse_cann(tag.cann), parse_os(tag.os), parse_python(tag.python)) == (tag.cann, tag.os, tag.python)


@given(tags)
def test_format_and_parse_round_trip(tag: ImageTag) -> None:
    assert parse_tag(str(tag)) == tag
    assert DOCKER_TAG.fullmatch(str(tag))


@given(tags)
def test_the_alias_is_the_tag_without_its_plan(tag: ImageTag) -> None:
    alias = parse_tag(tag.alias)
    assert (alias.plan, alias.trial) == ("", False)
    assert alias == parse_tag(alias.alias)
    assert (alias.standin, alias.custom, alias.forced) == (tag.standin, tag.custom, tag.forced)


def test_what_a_tag_looks_like() -> None:
    tag = ImageTag("8.5.0", "910b", "ubuntu22.04", "3.11", "0123456789ab", standin=True, forced=True)
    assert str(tag) == "8.5.0-910b-ubuntu22.04-py3.11-0123456789ab-standin-forced"
    assert tag.alias == "8.5.0-910b-ubuntu22.04-py3.11-standin-forced"
    trial = replace(tag, trial=True)
    assert str(trial) == "8.5.0-910b-ubuntu22.04-py3.11-0123456789ab-trial-standin-forced"
    assert trial.alias == tag.alias


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latest",
        "8.5.0-910b-ubuntu22.04",
        *(
            f"8.5.0-910b-ubuntu22.04-py3.11-{w}"
            for w in ("xyz", "forced-standin", "trial", "0123456789ab-custom-trial")
        ),
    ],
)
def test_no_tag_of_ours(text: str) -> None:
    with pytest.raises(UsageError, match="is not a Cannery tag"):
        parse_tag(text)
