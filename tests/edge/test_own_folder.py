"""Folders of runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cannery.errors import UnableError
from cannery.util.io.locks import own_folder

ROOT = Path(__file__).parents[2]
KILLED = """\
import pathlib, sys, time
from cannery.util.io.locks import own_folder
with own_folder(pathlib.Path(sys.argv[1])) as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    time.sleep(600)
"""


def test_each_run_has_its_own_and_it_goes(tmp_path: Path) -> None:
    parent = tmp_path / "of-runs"
    with own_folder(parent) as mine, own_folder(parent) as other:
        assert mine != other
        assert mine.parent == other.parent == parent
        assert {path.stat().st_mode & 0o777 for path in (parent, mine, other)} == {0o700}
        (mine / "inner").mkdir()
    assert list(parent.iterdir()) == []


def test_an_error_removes_it_too(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), own_folder(tmp_path / "of-runs"):
        raise RuntimeError
    assert list((tmp_path / "of-runs").iterdir()) == []


def test_what_a_run_that_was_killed_has_left_goes_with_the_next(tmp_path: Path) -> None:
    words = (sys.executable, "-c", KILLED, tmp_path / "of-runs")
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with own_folder(tmp_path / "of-runs"):
            assert (left / "file").exists(), "it is of a run that lives"
        os.kill(process.pid, signal.SIGKILL)
    assert left.exists()
    (tmp_path / "of-runs/file-of-an-older-release").touch()
    with own_folder(tmp_path / "of-runs") as mine:
        assert list((tmp_path / "of-runs").iterdir()) == [mine]


def test_a_folder_that_goes_while_another_run_looks_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, opened = tmp_path / "runs" / "other", os.open
    other.mkdir(parents=True)

    def gone(path: Path, *rest: int, **more: int) -> int:
        if Path(path) == other:
            other.rmdir()
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", gone)
    with own_folder(other.parent) as folder:
        assert folder.is_dir()
    assert list(other.parent.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnableError, match="file"), own_folder(tmp_path / "file/of-runs"):
        pass
