from __future__ import annotations

import time
from contextlib import suppress

from cannery.util.io.heartbeat import heartbeat


def test_a_line_comes_while_the_block_is_silent_and_none_after_it() -> None:
    lines: list[str] = []
    with suppress(KeyError), heartbeat(lines.append, lambda: "fetching x", beat=0.02):
        time.sleep(0.2)
        raise KeyError
    assert len(lines) >= 2
    assert all(line.startswith("fetching x (") for line in lines)
    count = len(lines)
    time.sleep(0.1)
    assert len(lines) == count
