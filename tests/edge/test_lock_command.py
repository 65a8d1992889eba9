"""`lock` of everything, several at a time; and `check` beside it: offline, all findings, few notes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from small_checkout import STACK, Small, make_small
from stub_index import StubIndex

from cannery.commands import versions
from cannery.core.errors import CanneryError, ExitCode, FindingsError
from cannery.core.findings import Finding
from cannery.core.words import Severity
from cannery.edge.lock_jobs import WORKERS, run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


def command(small: Small, *words: str, **env: str) -> dict[str, Any]:
    """Arguments of Popen for build.py on the checkout, in a process of its own."""
    lines = ("import sys", "from pathlib import Path", "from cannery.cli import main")
    code = "\n".join((*lines, f"sys.exit(main({words!r}, Path({str(small.root)!r})))"))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return {"args": [sys.executable, "-c", code], "env": {**os.environ, "PYTHONPATH": str(ROOT), **env}, **pipes}


# Several at a time


def test_results_come_in_the_order_of_the_jobs_whoever_is_first() -> None:
    second_is_done = threading.Event()

    def first() -> str:
        assert second_is_done.wait(10)
        return "first"

    def second() -> str:
        second_is_done.set()
        return "second"

    def failing() -> str:
        raise FindingsError("no set")

    found = list(run_jobs([first, second, failing, lambda: "last"]))
    assert [str(result) for result in found] == ["first", "second", "no set", "last"]
    assert isinstance(found[2], CanneryError)


def test_no_more_than_a_few_run_at_once() -> None:
    running: list[int] = []
    most: list[int] = []

    def job() -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.02)
        running.pop()

    assert list(run_jobs([job] * 12)) == [None] * 12
    assert 1 < max(most) <= WORKERS


def test_an_interrupt_starts_nothing_more_and_leaves_no_thread() -> None:
    started: list[int] = []

    def job() -> None:
        started.append(1)
        time.sleep(0.05)

    before = threading.active_count()
    results = run_jobs([job] * 40)
    next(results)
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert len(started) <= 2 * WORKERS
    assert threading.active_count() == before


def test_every_lock_is_made_and_a_line_each_is_printed_in_order(small: Small) -> None:
    for path in (small.root / "images/locks").rglob("*.txt"):
        path.unlink()
    small.profile("zz").write_text(STACK)
    done = small("lock")
    assert done.code == 0
    names = [f"images/locks/{p}/py3.11-{a}.txt" for p in ("stack", "zz", "_tools") for a in ("amd64", "arm64")]
    assert [line.split(": ")[0] for line in done.out.splitlines()] == names
    before = small.files()
    again = small("lock")
    assert again.out.count(", unchanged\n") == 6
    assert small.files() == before


def test_a_lock_that_cannot_be_made_does_not_hide_the_others(small: Small) -> None:
    small.profile("bad").write_text(STACK.replace("{name: lib}", '{name: lib, version: "7.0"}'))
    small.profile("python").write_text(
        STACK.replace("summary: made up", "summary: x\nbase: standin").replace("3.11", "3.10")
    )
    small.profile("zz").write_text(STACK)
    done = small("lock")
    assert done.code == ExitCode.FINDINGS
    assert small.versions("zz")["lib"] == "1.0"
    assert not (small.root / "images/locks/bad").exists()
    made = [line.split(": ")[0].removeprefix("images/locks/") for line in done.out.splitlines()]
    assert [name for name in made if not name.startswith("_tools")] == [
        f"{profile}/py3.11-{arch}.txt" for profile in ("stack", "zz") for arch in ("amd64", "arm64")
    ]
    assert "3 of 11 locks could not be made" in done.err
    for words in ("profile bad, Python 3.11, amd64", "profile bad, Python 3.11, arm64", "only Python 3.11, not 3.10"):
        assert words in done.err


def test_the_network_s_exit_code_wins_over_findings(small: Small) -> None:
    small.profile("bad").write_text(STACK.replace("{name: lib}", "{name: other}"))
    (small.root / "images/components/other.yaml").write_text("kind: wheels\nsummary: made up\nindex: elsewhere\n")
    small.profile("worse").write_text(STACK.replace("{name: lib}", '{name: lib, version: "7.0"}'))
    done = small("lock")
    assert done.code == ExitCode.NETWORK
    assert "profile worse, Python 3.11, amd64" in done.err
    assert "index elsewhere" in done.err


def test_sigterm_ends_a_lock_in_order(small: Small, tmp_path: Path) -> None:
    """The index never answers: what runs is ended, no file is changed, nothing is left in the cache."""
    before = small.files()
    small.index.stall = 3
    process = subprocess.Popen(**command(small, "lock"))
    while not small.index.seen:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "")
    assert err.startswith("interrupted")
    assert small.files() == before
    assert list((tmp_path / "cache").glob("resolve-*")) == []


# Check


def run_check(small: Small, **env: str) -> tuple[float, int, str, str]:
    """Run `check stack --json` in a process of its own: seconds, status, both outputs."""
    start = time.monotonic()
    process = subprocess.Popen(**command(small, "check", "stack", "--json", **env))
    out, err = process.communicate(timeout=60)
    return time.monotonic() - start, process.returncode, out, err


def test_check_of_a_current_lock_needs_no_network_and_less_than_a_second(small: Small, tmp_path: Path) -> None:
    dead = "http://127.0.0.1:9"
    names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "PIP_PROXY")
    env = dict.fromkeys(names, dead)
    env |= {"PIP_INDEX_URL": f"{dead}/simple", "PIP_EXTRA_INDEX_URL": f"{dead}/more", "UV_INDEX_URL": f"{dead}/simple"}
    runs = [run_check(small, **env) for _ in range(3)]
    for _seconds, status, out, err in runs:
        assert (status, err) == (0, "")
        assert json.loads(out)["ok"] is True
    assert min(run[0] for run in runs) < 1
    assert small.index.seen == []
    assert not (tmp_path / "cache").exists()


def test_findings_about_target_pins_and_locks_come_all_at_once(small: Small) -> None:
    text = STACK.replace('"2.8.0"', '"2.9.0"').replace("ubuntu22.04", "ubuntu20.04")
    small.profile().write_text(text)
    done = small("check", "stack")
    assert done.code == ExitCode.FINDINGS
    for code in ("error [base-tag]", "error [fit]"):
        assert code in done.out
    assert done.out.count("error [lock]") == 2
    assert done.out.endswith("errors: 4; this set cannot be built\n")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def make(count: int) -> None:
        notes = [Finding(Severity.NOTE, f"n{number:02}", f"note {number}") for number in range(count)]
        found = (Finding(Severity.WARNING, "w", "a warning"), *notes)
        monkeypatch.setattr(versions, "check_recipe", lambda *_args, **_more: found)

    return make


def test_a_long_list_of_notes_is_folded_unless_all_are_wanted(small: Small, many: Callable[[int], None]) -> None:
    many(15)
    done = small("check", "stack")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "warning [w] a warning"
    assert [line.split(" ")[1] for line in lines[1:13]] == [f"[n{number:02}]" for number in range(12)]
    assert lines[13] == "… and 3 more notes (--all)"
    assert len(lines) == 15
    assert small("check", "stack", "--all").out.count("note [") == 15
    assert len(json.loads(small("check", "stack", "--json").out)["findings"]) == 16


def test_twelve_notes_are_not_folded(small: Small, many: Callable[[int], None]) -> None:
    many(12)
    done = small("check", "stack")
    assert done.out.count("note [") == 12
    assert "…" not in done.out


@pytest.mark.parametrize("command", ["plan", "render", "run"])
def test_a_profile_with_sources_can_be_checked_and_locked_and_not_built(small: Small, command: str) -> None:
    (small.root / "images/components/plugin-src.yaml").write_text(
        "kind: source\nsummary: made up\npackage: plugin\ninstall: wheel\n"
        'releases: {"1.0": {requires: [dep], source: made up}}\n'
    )
    small.profile().write_text(STACK + '  - {name: plugin-src, release: "1.0"}\n')
    assert small("lock", "stack").code == 0
    assert small("check", "stack").code == 0
    small.index.seen.clear()
    done = small(command, "stack")
    assert (done.code, done.out) == (ExitCode.UNABLE, "")
    assert "components plugin-src come from source: building them is not there yet" in done.err
    assert "check and lock work" in done.err
    assert small.index.seen == []


def test_a_plan_reads_each_lock_once(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    from cannery.edge import locks  # noqa: PLC0415

    read: list[str] = []
    real = locks.read_lock

    def counted(context: object, path: Path) -> object:
        read.append(f"{path.parent.name}/{path.name}")
        return real(context, path)  # type: ignore[arg-type]

    monkeypatch.setattr(locks, "read_lock", counted)
    assert small("plan", "stack").code == 0
    assert sorted(read) == ["_tools/py3.11-amd64.txt", "stack/py3.11-amd64.txt", "stack/py3.11-arm64.txt"]
