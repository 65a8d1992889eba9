"""Text from elsewhere (an index, a YAML file) without signs that a terminal obeys."""

from __future__ import annotations

import re

# All controls but tab and line feed (a carriage return overwrites a line), line separators, and what turns the
# direction of writing around.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    r"""Return `text` with `\uXXXX` for each such sign: in JSON that is the same sign, elsewhere it can be read."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
