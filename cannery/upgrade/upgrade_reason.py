"""The reasons that `lock --upgrade` writes, and what becomes of a person's when the value beside it is another one."""

from __future__ import annotations

import re

# Of a later date or version, and of a bound.
LATER, HELD = "upgraded by build.py lock --upgrade", "set by build.py lock --upgrade"
# A reason that keeps a person's words, with the value that they are about.
KEPT = re.compile(rf"(?:{re.escape(LATER)}|{re.escape(HELD)}); of (?P<value>\S+): (?P<words>.+)", re.DOTALL)


def reason_after(reason: str, old: str, new: str, own: str) -> str:
    """Return the reason to stand beside `new` in the place of `old`: a person's words are said to be of their value.

    `own` is that of the command alone. Back at the value that they were about, the words are as they were.
    """
    if reason in {"", LATER, HELD}:
        return own
    if old == new:
        return reason
    earlier = KEPT.fullmatch(reason)
    if earlier is None:
        return f"{own}; of {old}: {reason}"
    return earlier["words"] if earlier["value"] == new else reason
