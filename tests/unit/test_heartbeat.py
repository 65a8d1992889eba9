from __future__ import annotations

import time
from contextlib import suppress

from cannery.util.io.waiting import heartbeat


def test_a_line_comes_while_the_block_is_silent_and_none_after_it() -> None:
    lines: list[str] = []
    with suppress(KeyError), heartbeat(lines.append, lambda: "fetching x", beat=0.02):
        time.sleep(0.2)
        raise KeyError
    assert lines[0] == "fetching x …"
    assert len(lines) >= 3
    assert set(lines[1:]) == {"fetching x: 0 s so far"}
    count = len(lines)
    time.sleep(0.1)
    assert len(lines) == count
