"""`lock` of everything, several at a time; and `check` beside it: offline, all findings, few notes."""

from __future__ import annotations

import errno
import hashlib
import json
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest
from small_checkout import STACK, TODAY, Small, make_small
from small_process import AS_A_USER, WITHOUT_SIGINT, command, meanwhile, run, running_in
from stub_index import StubIndex, make_wheel

from cannery import cli, pipeline
from cannery.commands import lock as locking
from cannery.compat.subject import Finding
from cannery.errors import ExitCode
from cannery.lock.lock import parse_lock
from cannery.util.io import process
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


# Several at a time


def test_no_more_than_a_few_run_at_once() -> None:
    running: list[int] = []
    most: list[int] = []

    def job() -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.02)
        running.pop()

    with locking.begun([job] * 12) as futures:
        assert [future.result() for future in futures] == [None] * 12
    assert 1 < max(most) <= locking.WORKERS


def test_an_interrupt_starts_nothing_more_and_leaves_no_thread_and_no_process() -> None:
    started: list[int] = []

    def job() -> None:
        started.append(1)
        process.run(("sleep", "60"), check=False)

    def interrupt() -> None:
        time.sleep(0.3)
        raise KeyboardInterrupt

    before, start = threading.active_count(), time.monotonic()
    with pytest.raises(KeyboardInterrupt), locking.begun([job] * 40):
        interrupt()
    assert len(started) <= 2 * locking.WORKERS
    assert threading.active_count() == before
    assert time.monotonic() - start < 30


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    def job() -> None:
        process.run(("sh", "-c", "trap '' TERM; exec sleep 60"), check=False)

    def interrupt() -> None:
        time.sleep(0.5)
        raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), locking.begun([job] * 2):
        interrupt()
    assert locking.GRACE < time.monotonic() - start < 20


def test_a_second_interrupt_waits_for_nothing_that_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the first one, and before signals are held."""
    started: list[int] = []

    def job() -> None:
        started.append(1)
        time.sleep(0.2)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(locking, "signals_held", interrupted)
    with pytest.raises(KeyboardInterrupt), locking.begun([job] * 40):
        interrupted()
    assert len(started) <= 2 * locking.WORKERS


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
    assert again.out.count(", unchanged\n") == 4, "of the build tools only what changes is printed"
    assert "_tools" not in again.out
    assert small.files() == before


def test_a_file_that_the_index_has_replaced_is_a_warning(small: Small) -> None:
    file, data = make_wheel("lib", "1.0", ["dep"], payload=b"other")
    before = parse_lock((small.root / "images/locks/stack/py3.11-amd64.txt").read_text(), "lock")
    (old,) = (package.sha256[:12] for package in before.packages if package.name == "lib")
    small.index.files["lib"] = {file: data}
    done = small("lock", "stack")
    new = hashlib.sha256(data).hexdigest()[:12]
    assert (done.code, done.err.count("warning: the index has replaced")) == (0, 2)
    assert f"warning: the index has replaced {file}: its sha256 was {old}… and is {new}…\n" in done.err


@pytest.mark.parametrize(("day", "warns"), [("2026-07-31", False), (TODAY, True), ("2027-01-01", True)])
def test_a_date_that_is_not_over_is_a_warning(small: Small, day: str, *, warns: bool) -> None:
    small.profile().write_text(small.profile().read_text().replace("2026-06-01", day))
    done = small("lock", "stack")
    assert done.code == 0
    assert (f"warning: images/profiles/stack.yaml: {day}" in done.err) is warns


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
    assert "3 of 7 locks could not be made" in done.err
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


@pytest.mark.parametrize("through", [(), WITHOUT_SIGINT], ids=["", "no SIGINT"])
def test_sigterm_ends_a_lock_in_order(small: Small, tmp_path: Path, through: tuple[str, ...]) -> None:
    """The index never answers: what runs is ended, no file is changed, nothing is left in the cache or runs on."""
    before = small.files()
    small.index.stall = 2
    process = subprocess.Popen(**command(small, "lock", through=through))
    while "uv" not in running_in(tmp_path / "cache"):
        assert process.poll() is None
        time.sleep(0.05)
    small.index.stall = 30
    process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)  # somebody has no patience
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "")
    assert err.startswith("interrupted")
    assert small.files() == before
    assert list((tmp_path / "cache").glob("locks/resolve-*")) == []
    over = time.monotonic() + 5  # uv's own children may end a moment after it
    while running_in(tmp_path / "cache") and time.monotonic() < over:
        time.sleep(0.05)
    assert running_in(tmp_path / "cache") == []


@pytest.mark.parametrize("words", [("stack", "stack"), ("stack",)])
def test_what_is_named_twice_is_made_once(small: Small, words: tuple[str, ...]) -> None:
    done = small("lock", *words)
    assert done.code == 0
    assert done.out.count("images/locks/stack/") == 2  # one for each arch


def test_a_profile_that_is_edited_meanwhile_has_a_stale_lock(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the lock reports it, and the same command makes it anew."""
    meanwhile(monkeypatch, locking, lambda: small.profile().write_text(STACK.replace("2026-06-01", TODAY)))
    assert small("lock", "stack").code == 0
    assert "the lock is stale" in small("check", "stack").out
    assert small("lock", "stack").code == small("check", "stack").code == 0


def test_a_checkout_that_cannot_be_written_is_exit_4_with_a_reason(small: Small) -> None:
    folder = small.root / "images/locks/stack"
    (folder / "py3.11-amd64.txt").unlink()
    folder.chmod(0o555)
    before = small.files()
    code, out, err = run(small, "lock", "stack", through=AS_A_USER)
    folder.chmod(0o755)
    assert code == ExitCode.UNABLE
    assert "images/locks/stack/py3.11-arm64.txt: 6 packages, 0 MB, unchanged" in out
    assert "images/locks/stack/py3.11-amd64.txt: cannot be written: permission denied\n  → make it writable" in err
    assert small.files() == before


@pytest.mark.parametrize("state", ["a file", "read-only"])
def test_a_cache_that_cannot_be_written_is_exit_4_with_a_reason(small: Small, tmp_path: Path, state: str) -> None:
    cache, before = tmp_path / "cache", small.files()
    if state == "a file":
        cache.write_text("no folder")
        wanted = f"{cache}: cannot be written: file exists\n  → a file is where a folder is wanted"
    else:
        cache.mkdir(mode=0o555)
        wanted = f"{cache}/locks: cannot be written: permission denied"
    code, _out, err = run(small, "lock", "stack", through=AS_A_USER)
    assert code == ExitCode.UNABLE
    assert wanted in err
    assert "cannot be written: " in err
    assert small.files() == before


def test_a_cache_without_room_is_exit_4_with_a_reason(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("cannery.lock.io.resolve.write_atomic", full)
    done = small("lock", "stack")
    assert done.code == ExitCode.UNABLE
    assert "/cache: cannot be written: no space left on device\n  → free some disk space" in done.err
    assert "[Errno" not in done.err


# Check


def test_check_of_a_current_lock_needs_no_network(small: Small, tmp_path: Path) -> None:
    dead = "http://127.0.0.1:9"
    names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "PIP_PROXY")
    env = dict.fromkeys(names, dead)
    env |= {"PIP_INDEX_URL": f"{dead}/simple", "PIP_EXTRA_INDEX_URL": f"{dead}/more", "UV_INDEX_URL": f"{dead}/simple"}
    process = subprocess.Popen(**command(small, "check", "stack", "--json", env=env))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["ok"] is True
    assert small.index.seen == []
    assert {path.name for path in (tmp_path / "cache").glob("*")} <= {"catalog"}


def test_an_override_against_a_bound_that_its_reason_does_not_name_is_a_warning(small: Small) -> None:
    """As soon as the wheel is on this host, which the first render brings."""
    small.index.add(make_wheel("capped", "1.0", ["dep<1"]))
    (small.root / "images/components/capped.yaml").write_text("kind: wheels\nsummary: made up\n")
    own = small.profile().read_text() + "  - {name: capped}\n"

    def check(reason: str) -> list[str]:
        bent = f'overrides: [{{requirement: "dep==1.0", reason: {reason}}}]\n'
        small.profile().write_text(own + bent)
        assert small("lock", "stack").code == 0
        assert small("render", "stack", "--base", "standin").code == 0
        done = small("check", "stack", "--json")
        assert done.code == 0, done.err
        return [row["what"] for row in json.loads(done.out)["findings"] if row["code"] == "override-bound"]

    (found,) = check("all others want it")
    assert found.startswith("capped 1.0 asks for dep<1, ")
    assert check("capped means only dep 2") == []


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
        monkeypatch.setattr(pipeline, "check_recipe", lambda *_args, **_more: found)

    return make


def test_a_long_list_of_notes_is_folded_unless_all_are_wanted(small: Small, many: Callable[[int], None]) -> None:
    many(15)
    done = small("check", "stack")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "warning [w] a warning"
    assert [line.split(" ")[1] for line in lines[1:9]] == [f"[n{number:02}]" for number in range(8)]
    assert lines[9] == "… and 7 more notes (--all)"
    assert len(lines) == 11
    assert small("check", "stack", "--all").out.count("note [") == 15
    assert len(json.loads(small("check", "stack", "--json").out)["findings"]) == 16


def test_eight_notes_are_not_folded(small: Small, many: Callable[[int], None]) -> None:
    many(8)
    done = small("check", "stack")
    assert done.out.count("note [") == 8
    assert "…" not in done.out


def test_a_plan_reads_each_lock_once(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    from cannery.lock.io import store as locks  # noqa: PLC0415

    read: list[str] = []
    real = locks.read_lock

    def counted(context: object, path: Path) -> object:
        read.append(f"{path.parent.name}/{path.name}")
        return real(context, path)  # type: ignore[arg-type]

    monkeypatch.setattr(locks, "read_lock", counted)
    assert small("plan", "stack").code == 0
    assert sorted(read) == ["_tools/py3.11-amd64.txt", "stack/py3.11-amd64.txt", "stack/py3.11-arm64.txt"]


def test_an_installed_program_writes_locks_to_the_working_folder(small: Small, tmp_path: Path) -> None:
    work, before = tmp_path / "work", small.files()
    work.mkdir()
    assert cli.main(["lock", "stack"], small.root, program="cannery", work=work) == 0
    written = {str(path.relative_to(work)) for path in work.rglob("*") if path.is_file()}
    assert written == {
        f"cannery-locks/{folder}/py3.11-{arch}.txt" for folder in ("stack", "_tools") for arch in ("amd64", "arm64")
    }
    assert small.files() == before
    small.capture.readouterr()
    assert cli.main(["check", "stack"], small.root, program="cannery", work=work) == 0
    assert "lock: cannery-locks/stack/py3.11-amd64.txt\n" in small.capture.readouterr().err
