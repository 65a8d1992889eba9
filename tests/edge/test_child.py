"""A child of Cannery: ends with it, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cannery.errors import UnableError
from cannery.util.io.process import end, lines, start

ROOT = Path(__file__).parents[2]
PARENT = """\
import os, pathlib
from cannery.util.io.process import lines, start
process = start(("sh", "-c", "echo $$; while :; do sleep 1; done"), dict(os.environ), pathlib.Path.cwd())
for line in lines(process):
    if line:
        print(line, flush=True)
"""


def test_a_child_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen((sys.executable, "-c", PARENT), cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = Path("/proc", parent.stdout.readline().strip())
        assert (child / "comm").read_text() == "sh\n"
        parent.kill()
    deadline = time.monotonic() + 10
    while child.exists() and "Z" not in (child / "stat").read_text().rpartition(")")[2].split()[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("has_busybox", [False, True])
def test_a_host_without_setpriv_starts_it_all_the_same(tmp_path: Path, has_busybox: bool) -> None:
    if has_busybox:
        (tmp_path / "busybox").write_text("#!/bin/sh\nexit 9\n")
        (tmp_path / "busybox").chmod(0o755)
        (tmp_path / "setpriv").symlink_to("busybox")
    process = start((sys.executable, "-c", "print('it runs')"), {"PATH": str(tmp_path)}, tmp_path)
    try:
        assert [line for line in lines(process) if line is not None] == ["it runs"]
        assert process.wait() == 0
    finally:
        end(process)


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match="program not found: no-such-program"):
        start(("no-such-program",), {"PATH": os.environ["PATH"]}, tmp_path)
