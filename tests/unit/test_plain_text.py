"""Text from elsewhere cannot move a terminal's cursor, and stays the same as JSON."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from cannery.util.addresses import plain


def test_signs_that_a_terminal_obeys_can_be_read() -> None:
    assert plain("\x1b[31mred\x1b[0m\r\x9b2J\x07\u202e") == "\\u001b[31mred\\u001b[0m\\u000d\\u009b2J\\u0007\\u202e"
    assert plain("Zeile\tund\nnoch eine: 中文 → ✅ é") == "Zeile\tund\nnoch eine: 中文 → ✅ é"


@given(st.text())
def test_no_control_is_left_and_json_says_the_same(text: str) -> None:
    kept = plain(text)
    assert all(sign in "\t\n" or unicodedata.category(sign) != "Cc" for sign in kept)
    assert json.loads(plain(json.dumps(text, ensure_ascii=False))) == text
