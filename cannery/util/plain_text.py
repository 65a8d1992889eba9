"""Text from elsewhere (an index, a YAML file) without control characters."""

from __future__ import annotations

import re

# All control characters but tab and line feed (a carriage return overwrites a line), line separators, and what changes
# the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    r"""Return `text` with `\uXXXX` for each control character: JSON reads it as the same character, people as text."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
