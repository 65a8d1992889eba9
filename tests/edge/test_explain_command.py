"""Sets that cannot be locked, by the commands that a user runs: exit code, words, and how long it takes."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest
from small_checkout import Small, make_small
from stub_index import StubIndex, make_wheel

from cannery.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_TORCH = "no set of versions works: no version of torch meets all requirements"


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


def test_check_offers_the_pair_of_the_table_that_was_tried(small: Small) -> None:
    small.index.add(make_wheel("lib", "0.5", ["torch==2.9.0"]))
    start = time.monotonic()
    done = small("check", "stack", "--pin", "lib==0.5")
    assert time.monotonic() - start < 30
    assert done.code == ExitCode.FINDINGS
    lines = done.out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("error [lock]"))
    assert lines[first : first + 7] == [
        f"error [lock] profile stack, Python 3.11, amd64: {NO_TORCH}",
        "  torch ==2.8.0 by pin torch 2.8.0",
        "  torch ==2.9.0 by --pin lib==0.5",
        "  one of these has to change: --pin lib==0.5, pin torch 2.8.0 (images/profiles/stack.yaml)",
        "  similar sets that work (each was resolved):",
        "    torch 2.9.0 instead of 2.8.0 and torch-npu 2.9.0 instead of 2.8.0",
        "    lib 1.0 instead of 0.5",
    ]


def test_lock_says_why_for_each_arch_and_leaves_the_files(small: Small) -> None:
    small.index.add(make_wheel("tool", "1.0.1", ["dep"], tag="cp311-cp311-manylinux_2_28_aarch64"))
    small.profile().write_text(small.profile().read_text().replace('tool, version: "1.0"', 'tool, version: "1.0.1"'))
    before = small.files()
    done = small("lock", "stack", "--arch", "amd64")
    assert done.code == ExitCode.FINDINGS
    assert "tool==1.0.1 has no wheels with a matching platform tag" in " ".join(done.err.split())
    assert "    tool 1.0 instead of 1.0.1\n" in done.err
    assert small.files() == before


@pytest.mark.parametrize("command", ["lock", "image"])
def test_a_silent_extra_index_is_named_within_five_seconds(
    small: Small, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """`image` of a set that has to be locked first: no build begins."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://u:s3cret@{host}/simple")
        start = time.monotonic()
        done = small(command, "stack", "--pin", "lib==1.0")
        assert time.monotonic() - start < 30  # a time-out of uv is as long
    assert done.code == ExitCode.NETWORK
    assert f"not reached: extra index (http://{host}/simple): time-out (no answer within 4 s)" in done.err
    assert "s3cret" not in done.out + done.err
    assert not (small.root / "out").exists()
