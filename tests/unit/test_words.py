from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cannery.errors import UsageError
from cannery.vocab import ARCH_ALIASES, CHIP_ALIASES, Arch, Chip, did_you_mean, nearest, parse_word


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        *((chip.value, chip) for chip in Chip),
        *((f"910B{n}", Chip.A2) for n in ("1", "2", "2C", "3", "4", "4-1")),
        ("Ascend910B3", Chip.A2),
        ("Ascend910B4-1", Chip.A2),
        ("Ascend910_9392", Chip.A3),
        ("A2", Chip.A2),
        ("A3", Chip.A3),
        *((f"910_93{n}", Chip.A3) for n in (62, 63, 72, 81, 82, 91, 92)),
        *((f"310P{n}", Chip.P310) for n in (1, 2, 3, 4, 5, 7)),
        ("910C", Chip.A3),
        ("910A", Chip.A1),
        ("910ProB", Chip.A1),
        ("Ascend950DT_9582", Chip.A5),
        ("300I", Chip.P310),
        (" A5 ", Chip.A5),
        *((word, Chip.A5) for word in ("950", "950DT", "950PR", "Ascend950", "Ascend950DT", "Ascend950PR")),
    ],
)
def test_every_name_of_a_chip_maps_to_its_family(text: str, chip: Chip) -> None:
    assert parse_word(text, CHIP_ALIASES, "CHIP") is chip


def test_tags_have_the_chips_of_canns_images() -> None:
    assert [chip.value for chip in Chip] == ["910b", "a3", "310p", "910", "950"]
    assert str(CHIP_ALIASES["a5"]) == "950"


def test_the_name_that_two_families_have_is_read_as_the_tags_have_it() -> None:
    assert parse_word("910B", CHIP_ALIASES, "CHIP") is Chip.A2
    with pytest.raises(UsageError):
        parse_word("Ascend910B", CHIP_ALIASES, "CHIP")


@pytest.mark.parametrize("text", ["x86_64", "AMD64", "x86-64"])
def test_arch_is_known_by_the_kernels_word_too(text: str) -> None:
    assert parse_word(text, ARCH_ALIASES, "ARCH") is Arch.AMD64


def test_arch_in_other_words() -> None:
    assert [(a.machine, a.platform) for a in Arch] == [("x86_64", "linux/amd64"), ("aarch64", "linux/arm64")]


def test_an_unknown_word_names_the_option_and_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        parse_word("910c9", CHIP_ALIASES, "CHIP")
    assert "CHIP: '910c9'" in caught.value.what
    assert "910" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        parse_word("x86", ARCH_ALIASES, "ARCH")
    assert caught.value.hint == "did you mean amd64?"


def test_without_a_near_word_all_are_listed() -> None:
    assert did_you_mean("zzzz", ["beta", "alpha"]) == "known: alpha, beta"
    assert did_you_mean("zzzz", []) == "there are none"


def test_nearest_is_best_first() -> None:
    assert nearest("quikstart", ["quickstart", "quirks", "other"])[0] == "quickstart"


@given(st.sampled_from(sorted(CHIP_ALIASES)), st.data())
def test_one_slip_is_mended(word: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(word) - 1))
    slip = word[:at] + "~" + word[at + 1 :]
    if len(word) > 3:
        assert word in nearest(slip, CHIP_ALIASES, count=len(CHIP_ALIASES))
