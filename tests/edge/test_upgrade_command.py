"""`lock PROFILE --upgrade NAME` with the real uv on a small checkout: the profile's text, its locks, or nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from small_checkout import LATER, STACK, TODAY, Small, make_small
from small_process import AS_A_USER, AT_RENAME, command, kill_at, meanwhile, run
from stub_index import StubIndex, make_wheel

from cannery.errors import ExitCode, FindingsError, NetworkError
from cannery.upgrade.io import upgrade as upgrade_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATED = (
    'exclude_newer: "2026-06-01"  # the day of the guide\n'
    "exclude_newer_packages:\n"
    f'  {{}}: {{{{date: "{TODAY}", reason: "by build.py lock --upgrade"}}}}\n'
)
OLD_DATE = 'exclude_newer: "2026-06-01"  # the day of the guide\n'


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


def test_the_profile_as_it_stands_is_locked_at_its_day(small: Small) -> None:
    wanted = {"dep": "1.0", "lib": "1.0", "pip": "26.0", "tool": "1.0", "torch": "2.8.0", "torch-npu": "2.8.0"}
    assert small.versions() == small.versions(arch="arm64") == wanted


def test_an_unpinned_component_gets_a_date_and_moves_alone(small: Small) -> None:
    before = small.versions()
    done = small("lock", "stack", "--upgrade", "Lib")
    assert done.code == 0, done
    assert small.profile().read_text() == STACK.replace(OLD_DATE, DATED.format("lib"))
    assert small.versions() == small.versions(arch="arm64") == {**before, "lib": "2.0"}
    size = len(small.index.files["lib"]["lib-2.0-py3-none-any.whl"]) / 1e6
    for arch in ("amd64", "arm64"):
        text = f"images/locks/stack/py3.11-{arch}.txt: 1 package, {size:.1f} MB to fetch\n    lib 1.0 -> 2.0\n"
        assert text in done.out
    assert small("check", "stack").code == 0
    again = small("lock", "stack")
    assert again.out.count(", unchanged") == 2, "the edit alone makes the same locks"


def test_a_transitive_package_gets_a_date_too(small: Small) -> None:
    assert small("lock", "stack", "--upgrade", "dep").code == 0
    assert small.profile().read_text() == STACK.replace(OLD_DATE, DATED.format("dep"))
    assert small.versions()["dep"] == "1.1"


def test_a_pin_of_the_table_takes_its_companion_to_the_newest_row_of_the_cann(small: Small) -> None:
    done = small("lock", "stack", "--upgrade", "torch-npu")
    assert done.code == 0, done
    text = STACK.replace('version: "2.8.0"', 'version: "2.9.0"').replace("version: '2.8.0'", "version: '2.9.0'")
    assert small.profile().read_text() == text
    assert (small.versions()["torch"], small.versions()["torch-npu"]) == ("2.9.0", "2.9.0")
    assert "    torch 2.8.0 -> 2.9.0\n    torch-npu 2.8.0 -> 2.9.0\n" in done.out
    assert small("check", "stack").code == 0


def test_a_later_release_of_a_pin_gets_its_date_and_what_it_needs_can_be_named_with_it(small: Small) -> None:
    before = small.files()
    alone = small("lock", "stack", "--upgrade", "tool")
    assert alone.code == ExitCode.FINDINGS, "it asks for a dep that came later"
    assert "dep" in alone.err
    assert "nothing is written" in alone.err
    assert small.files() == before
    assert small("lock", "stack", "--upgrade", "tool dep").code == 0
    versions = small.versions()
    assert (versions["tool"], versions["dep"], versions["lib"]) == ("1.5", "1.1", "1.0")
    text = small.profile().read_text()
    assert '- {name: tool, version: "1.5"}' in text
    assert text.count(f'{{date: "{TODAY}"') == 2


@pytest.mark.parametrize(
    ("wish", "old", "new", "versions"),
    [
        ("lib==1.0", "{name: lib}", '{name: lib, version: "1.0"}', {"lib": "1.0"}),
        ("torch==2.9.0", "2.8.0", "2.9.0", {"torch": "2.9.0", "torch-npu": "2.9.0"}),
        # A row of the next CANN is a warning of `check`, and what was asked for.
        ("torch-npu==2.10.0", "2.8.0", "2.10.0", {"torch": "2.10.0", "torch-npu": "2.10.0"}),
    ],
)
def test_an_exact_version(small: Small, wish: str, old: str, new: str, versions: dict[str, str]) -> None:
    done = small("lock", "stack", "--upgrade", wish)
    assert done.code == 0, done
    assert small.profile().read_text() == STACK.replace(old, new)
    assert {name: small.versions()[name] for name in versions} == versions
    assert small("check", "stack").code == 0


def test_an_exact_version_goes_down_again(small: Small) -> None:
    small("lock", "stack", "--upgrade", "torch")
    assert small("lock", "stack", "--upgrade", "torch-npu==2.8.0").code == 0
    assert small.profile().read_text() == STACK
    assert small.versions()["torch"] == "2.8.0"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["stack", "--upgrade", "libb"], ExitCode.USAGE, ["libb is no package of profile stack", "did you mean lib?"]),
        (["stack", "--upgrade", "lib>=2"], ExitCode.USAGE, ["'lib>=2' is neither NAME nor NAME==VERSION"]),
        (["--upgrade", "lib"], ExitCode.USAGE, ["--upgrade edits one profile: name it"]),
        (
            ["stack", "--upgrade", ""],
            ExitCode.USAGE,
            ["--upgrade names no package\n  → build.py lock PROFILE --upgrade"],
        ),
        (["stack", "--upgrade", "lib", "--upgrade", " "], ExitCode.USAGE, ["--upgrade names no package"]),
        (["stack", "--upgrade", "lib", "--arch", "arm64"], ExitCode.USAGE, ["leave ARCH out"]),
        (["stack", "--upgrade", "lib", "--pin", "dep==1.1"], ExitCode.USAGE, ["leave PINS out"]),
        (["stcak", "--upgrade", "lib"], ExitCode.USAGE, ["no profile 'stcak'"]),
        (["stack", "--upgrade", "lib==7.0"], ExitCode.FINDINGS, ["no index has lib==7.0", "newest release is 2.5"]),
        # A wheel for another Python alone is no release for this profile.
        (["stack", "--upgrade", "lib==2.5"], ExitCode.FINDINGS, ["no index has lib==2.5"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_refused_changes_nothing(small: Small, words: list[str], code: int, says: list[str]) -> None:
    before = small.files()
    done = small("lock", *words)
    assert done.code == code, done
    assert all(word in done.err for word in says), done.err
    assert small.files() == before


def test_a_set_that_the_rules_refuse_is_not_written(small: Small) -> None:
    small.index.add(make_wheel("torch-npu", "2.9.5", ["torch"]))
    before = small.files()
    done = small("lock", "stack", "--upgrade", "torch-npu==2.9.5")
    assert done.code == ExitCode.FINDINGS
    assert "the set would have errors that it does not have now" in done.err
    assert "error [fit]" in done.err
    assert small.files() == before


def test_nothing_newer_is_said_and_nothing_is_written(small: Small) -> None:
    before = small.files()
    done = small("lock", "stack", "--upgrade", "pip")
    assert (done.code, done.out) == (0, "nothing newer fits, so nothing is written\n")
    small("lock", "stack", "--upgrade", "torch")
    small("lock", "stack", "--upgrade", "lib")
    after = small.files()
    assert after != before
    row = small("lock", "stack", "--upgrade", "torch-npu", "--upgrade", "lib")
    assert row.code == 0
    assert "torch-npu stays at 2.9.0: no row of the table for CANN 8.5.0 that fits the rest is newer\n" in row.out
    assert f"lib: uploads up to {TODAY} count already\nnothing to change\n" in row.out
    assert small.files() == after


@pytest.mark.parametrize("failing", ["amd64", "arm64"])
def test_one_lock_that_fails_leaves_all_files_as_they_were(
    small: Small, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = upgrade_module.resolve_lock

    def resolve(context: object, catalog: object, request: object, **more: object) -> object:
        if request.arch == failing:  # type: ignore[attr-defined]
            raise NetworkError("the index went away")
        return real(context, catalog, request, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(upgrade_module, "resolve_lock", resolve)
    before = small.files()
    done = small("lock", "stack", "--upgrade", "lib")
    assert done.code == ExitCode.NETWORK
    assert "1 of 2 locks could not be made\nthe index went away" in done.err
    assert small.files() == before


def test_without_locks_and_with_a_broken_one_the_upgrade_makes_them(small: Small) -> None:
    (small.root / "images/locks/stack/py3.11-amd64.txt").write_text("broken")
    (small.root / "images/locks/stack/py3.11-arm64.txt").unlink()
    done = small("lock", "stack", "--upgrade", "lib")
    assert done.code == 0
    assert done.out.count(": made anew\n") == 2
    assert small.versions()["lib"] == small.versions(arch="arm64")["lib"] == "2.0"


def test_a_file_that_cannot_be_edited_is_said_with_the_line_and_left_alone(small: Small) -> None:
    text = STACK.replace('version: "2.8.0"', 'version: &v "2.8.0"').replace("version: '2.8.0'", "version: *v")
    text = text.replace('{name: tool, version: "1.0"}', '{name: tool, version: "1.0", reason: *v}')
    small.profile().write_text(text)
    assert small("lock", "stack").code == 0
    before = small.files()
    done = small("lock", "stack", "--upgrade", "torch")
    assert done.code == ExitCode.USAGE
    assert "images/profiles/stack.yaml:8" in done.err
    assert "by hand" in done.err
    assert small.files() == before


def test_an_index_that_is_not_reached_is_exit_7(small: Small) -> None:
    before = small.files()
    small.index.status = 503
    done = small("lock", "stack", "--upgrade", "lib")
    assert done.code == ExitCode.NETWORK
    assert small.files() == before


def test_later_releases_of_other_packages_stay_out(small: Small) -> None:
    small.index.add(make_wheel("torch", "2.9.9"), uploaded=LATER)
    before = small.versions()
    small("lock", "stack", "--upgrade", "dep")
    assert small.versions() == {**before, "dep": "1.1"}


# Interrupted, or unable to write: all of it or nothing


@pytest.mark.parametrize("again", [["lock", "stack", "--upgrade", "lib"], ["lock", "stack"]], ids=["upgrade", "lock"])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_after_a_kill_between_two_files_check_says_so_and_the_next_run_repairs_it(
    small: Small, left: int, again: list[str]
) -> None:
    before = small.files()
    code, out, _err = run(small, "lock", "stack", "--upgrade", "lib", before=kill_at(left))
    assert (code, out) == (-signal.SIGKILL, "")
    assert small.profile().read_text() == STACK, "the profile comes last"
    assert sum(small.files()[name] != text for name, text in before.items()) == left
    check = small("check", "stack")
    assert check.code == (ExitCode.FINDINGS if left else 0)
    assert check.out.count("error [lock]") == left
    assert small(*again).code == 0
    wanted = "2.0" if "--upgrade" in again else "1.0"
    assert small.versions()["lib"] == small.versions(arch="arm64")["lib"] == wanted
    assert small.profile().read_text() == (STACK.replace(OLD_DATE, DATED.format("lib")) if wanted == "2.0" else STACK)
    assert small("check", "stack").code == 0


def test_after_an_interrupt_between_two_files_the_same_command_goes_on(small: Small) -> None:
    code, out, _err = run(small, "lock", "stack", "--upgrade", "lib", before=kill_at(1, signal.SIGTERM))
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    assert small("lock", "stack", "--upgrade", "lib").code == 0
    assert small.versions()["lib"] == small.versions(arch="arm64")["lib"] == "2.0"
    assert small("check", "stack").code == 0


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_file_that_cannot_be_put_in_place_is_named_with_those_that_are(small: Small, left: int) -> None:
    (small.root / "images/locks/stack/py3.11-arm64.txt").unlink()
    small.profile().chmod(0o640)
    failing = AT_RENAME.format(left=left, what='raise OSError(errno.ENOSPC, "No space left on device", str(new))')
    code, out, err = run(small, "lock", "stack", "--upgrade", "lib", before=failing)
    assert (code, out) == (ExitCode.UNABLE, "")
    names = [f"images/{name}" for name in ("locks/stack/py3.11-amd64.txt", "locks/stack/py3.11-arm64.txt")]
    name = [*names, "images/profiles/stack.yaml"][left]
    written = f"; written before it: {', '.join(names[:left])}" if left else ""
    assert err == (
        f"error: {name}: cannot be written: no space left on device{written}\n"
        "  → free some disk space, then run the same command again\n"
    )
    assert small.profile().read_text() == STACK, "the profile comes last"
    assert small("lock", "stack", "--upgrade", "lib").code == 0
    assert small("check", "stack").code == 0
    assert small.profile().stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("folder", ["locks/stack", "profiles"])
def test_a_folder_that_cannot_be_written_is_named_and_the_same_command_goes_on(small: Small, folder: str) -> None:
    (small.root / "images" / folder).chmod(0o555)
    code, out, err = run(small, "lock", "stack", "--upgrade", "lib", through=AS_A_USER)
    (small.root / "images" / folder).chmod(0o755)
    assert (code, out) == (ExitCode.UNABLE, "")
    assert err.startswith(f"error: images/{folder}/")
    assert "cannot be written: permission denied" in err
    assert ("written before it" in err) is (folder == "profiles")
    assert small.profile().read_text() == STACK
    assert small("lock", "stack", "--upgrade", "lib").code == 0
    assert small("check", "stack").code == 0


@pytest.mark.parametrize("old", ["lock", "profile"])
def test_a_link_is_written_through(small: Small, tmp_path: Path, old: str) -> None:
    path = small.profile() if old == "profile" else small.root / "images/locks/stack/py3.11-amd64.txt"
    target = tmp_path / "elsewhere" / "file"
    target.parent.mkdir()
    path.rename(target)
    path.symlink_to(os.path.relpath(target, path.parent))
    before = target.read_bytes()
    assert small("lock", "stack", "--upgrade", "lib").code == 0
    assert path.is_symlink()
    assert target.read_bytes() == path.read_bytes() != before
    assert [entry.name for entry in target.parent.iterdir()] == ["file"]
    assert small("check", "stack").code == 0


# Two at once


def changed(small: Small, *words: str) -> None:
    """Run an upgrade, and see that it is told to be run again and writes nothing."""
    done = small("lock", "stack", *words)
    assert done.code == ExitCode.FINDINGS, done
    assert done.out == ""
    assert done.err == (
        "nothing is written: this run changed neither the profile nor its locks\n"
        "error: images/profiles/stack.yaml: the profile, its components or its base have changed while the set was "
        "resolved\n  → run the same command again\n"
    )


def test_of_two_upgrades_the_later_one_is_told_to_run_again(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is a run of its own, which comes to its end while this one resolves."""
    meanwhile(monkeypatch, upgrade_module, lambda: run(small, "lock", "stack", "--upgrade", "dep"))
    changed(small, "--upgrade", "lib")
    versions = small.versions()
    assert (versions["dep"], versions["lib"]) == ("1.1", "1.0")
    assert small("check", "stack").code == 0
    assert small("lock", "stack", "--upgrade", "lib").code == 0
    versions = small.versions()
    assert (versions["dep"], versions["lib"]) == ("1.1", "2.0")
    assert small("check", "stack").code == 0


def test_two_upgrades_that_start_together_lose_nothing(small: Small) -> None:
    small.index.stall = 0.5
    both = [subprocess.Popen(**command(small, "lock", "stack", "--upgrade", name)) for name in ("lib", "dep")]
    codes = []
    for process in both:
        process.communicate(timeout=60)
        codes.append(process.returncode)
    small.index.stall = 0
    assert sorted(codes) in ([0, 0], [0, ExitCode.FINDINGS])
    versions = small.versions()
    assert (versions["lib"] == "2.0", versions["dep"] == "1.1") == (codes[0] == 0, codes[1] == 0)
    assert small("check", "stack").code == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("profiles/stack.yaml", STACK + "# a note\n"),
        ("profiles/stack.yaml", "half: ["),
        ("profiles/stack.yaml", None),
        ("components/lib.yaml", "kind: wheels\nsummary: made up\nindex: elsewhere\n"),
    ],
)
def test_an_edit_by_hand_meanwhile_is_kept(
    small: Small, name: str, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before = small.root / "images" / name, small.files()

    def edit() -> None:
        if text is None:
            path.unlink()
        else:
            path.write_text(text)

    meanwhile(monkeypatch, upgrade_module, edit)
    changed(small, "--upgrade", "lib")
    assert (path.read_text() if path.exists() else None) == text
    kept = {key: value for key, value in small.files().items() if key != f"images/{name}"}
    assert kept == {key: value for key, value in before.items() if key != f"images/{name}"}


def test_locks_that_another_run_made_meanwhile_are_what_the_change_is_told_from(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(small.root / "images/locks/stack")
    meanwhile(monkeypatch, upgrade_module, lambda: run(small, "lock", "stack"))
    done = small("lock", "stack", "--upgrade", "lib")
    assert done.code == 0
    assert done.out.count("    lib 1.0 -> 2.0\n") == 2
    assert "made anew" not in done.out
    assert small("check", "stack").code == 0


def test_failures_have_the_worst_exit_code() -> None:
    from cannery.lock.io.resolve_all import raise_failures  # noqa: PLC0415

    raise_failures([], 3)
    with pytest.raises(NetworkError, match=r"2 of 3 locks could not be made\nno set\nx: no index"):
        raise_failures([FindingsError("no set"), NetworkError("no index", where="x")], 3)
    with pytest.raises(FindingsError, match=r"^no set$"):
        raise_failures([FindingsError("no set")], 1)
