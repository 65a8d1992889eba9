"""The rendered folder on disk: whole, linked to the wheelhouse, nothing stale in it, nothing of the user's removed."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from factories import catalog, inputs, lock, recipe, tools

from cannery.context import Context
from cannery.errors import UnableError, UsageError
from cannery.lock.io import wheelhouse, wheels
from cannery.lock.io.wheels import store_path
from cannery.pipeline import rendered as write_folder
from cannery.pipeline import rendered_held
from cannery.plan.make import make_plan
from cannery.render.io import folder as rendered
from cannery.util.io.pip_settings import Downloads, PipSettings
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.lock.io.wheelhouse import Progress
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.plan import Plan

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(ROOT, tmp_path / "cache", {}, Arch.AMD64, is_terminal=False)


def small(whole: Lock, context: Context, without: str = "") -> Lock:
    """The same lock, of ten-byte files that stand in the wheelhouse."""
    packages = tuple(replace(p, size=10) for p in whole.packages if p.name != without)
    for package in packages:
        path = store_path(package, context.cache)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"0123456789")
    return replace(whole, packages=packages)


def planned(context: Context, without: str = "") -> Plan:
    found = recipe()
    locks = {arch: small(lock(found, arch), context, without) for arch in Arch}
    return make_plan(found, inputs(found, locks=locks, tools=small(tools(catalog()), context)))


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_the_folder_is_complete_and_wheels_are_links(context: Context, tmp_path: Path) -> None:
    plan = planned(context)
    said = write_folder(context, catalog(), plan, tmp_path / "out")
    there = files(tmp_path / "out")
    script = "rootfs/opt/cannery"
    assert {"Dockerfile", "docker-bake.json", "tools/common/stage.py", f"{script}/verify.py"} <= there
    assert f"{script}/verifying/checks.py" in there
    assert not [name for name in there if name.endswith(".pyc")]
    assert (tmp_path / "out/sources").is_dir()
    for package in plan.lock.packages:
        (path,) = (tmp_path / "out/wheels").glob(f"*/{package.file}")
        assert path.samefile(store_path(package, context.cache))
    assert said.endswith(f"{len(there)} in all")
    assert "8 files linked, 0 removed" in said


def test_again_changes_nothing(context: Context, tmp_path: Path) -> None:
    plan = planned(context)
    write_folder(context, catalog(), plan, tmp_path / "out")
    before = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in files(tmp_path / "out")}
    assert write_folder(context, catalog(), plan, tmp_path / "out").startswith(
        "0 files written, 0 files linked, 0 removed"
    )
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in files(tmp_path / "out")} == before


def test_what_an_earlier_plan_left_goes_and_logs_stay(context: Context, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_folder(context, catalog(), planned(context), out)
    (out / "log").mkdir()
    (out / "log/build.log").write_text("log")
    (out / "groups/old.txt").write_text("old")
    (out / "empty/folder").mkdir(parents=True)
    (out / "link").symlink_to(tmp_path)
    said = write_folder(context, catalog(), planned(context, without="ray"), out)
    assert "groups/ray.txt" not in files(out)
    assert not (out / "wheels/ray").exists()
    assert not (out / "empty").exists()
    assert not (out / "link").is_symlink()
    assert tmp_path.exists()
    assert (out / "log/build.log").read_text() == "log"
    assert "4 removed" in said


def test_a_replaced_wheel_is_linked_anew(context: Context, tmp_path: Path) -> None:
    plan = planned(context)
    write_folder(context, catalog(), plan, tmp_path / "out")
    (path,) = (tmp_path / "out/wheels/ray").iterdir()
    path.unlink()
    path.write_text("other")
    assert "1 files linked" in write_folder(context, catalog(), plan, tmp_path / "out")
    assert path.read_bytes() == b"0123456789"


def test_a_copy_on_another_file_system_is_made_once(context: Context, tmp_path: Path) -> None:
    if Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.fail("this test wants /dev/shm to be a file system of its own")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        out, plan = Path(folder, "out"), planned(context)
        first = write_folder(context, catalog(), plan, out)
        assert "0 files linked" not in first
        assert "0 files linked" in write_folder(context, catalog(), plan, out)


def test_across_file_systems_wheels_are_copied(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    write_folder(context, catalog(), planned(context), tmp_path / "out")
    assert all(path.read_bytes() == b"0123456789" for path in (tmp_path / "out/wheels").rglob("*.whl"))
    assert not list((tmp_path / "out").rglob("*.part"))


def test_a_full_disk_is_the_copys_and_has_no_part_of_it(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    def full(source: Path, path: Path) -> None:
        path.write_bytes(b"01234")
        raise OSError(errno.ENOSPC, "No space left on device", str(source))

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(UnableError, match="cannot be written: no space left on device") as caught:
        write_folder(context, catalog(), planned(context), tmp_path / "out")
    assert caught.value.where.startswith(str(tmp_path / "out/wheels"))
    assert not list((tmp_path / "out").rglob("*.part"))


def test_an_interrupted_run_is_completed_by_the_next(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(context)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        patch.setattr(rendered, "_link", interrupt)
        write_folder(context, catalog(), plan, tmp_path / "out")
    write_folder(context, catalog(), plan, tmp_path / "out")
    write_folder(context, catalog(), plan, tmp_path / "clean")
    assert files(tmp_path / "out") == files(tmp_path / "clean")


@pytest.mark.parametrize("name", ["thesis.txt", ".git", "Dockerfile"])
def test_a_folder_of_the_users_is_left_alone(context: Context, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    before = files(tmp_path)
    plan = planned(Context(ROOT, tmp_path.parent / "elsewhere", {}, Arch.AMD64, is_terminal=False))
    with pytest.raises(UsageError, match="Cannery has not rendered") as caught:
        write_folder(context, catalog(), plan, tmp_path)
    assert "--output" in caught.value.hint
    assert files(tmp_path) == before


def test_a_file_is_no_folder(context: Context, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="is not a folder"):
        write_folder(context, catalog(), planned(context), tmp_path / "out")


def test_an_empty_folder_and_one_with_logs_alone_are_taken(context: Context, tmp_path: Path) -> None:
    for name in ("empty", "logs/log"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("empty", "logs"):
        write_folder(context, catalog(), planned(context), tmp_path / name)
        assert (tmp_path / name / "Dockerfile").is_file()


def test_a_download_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []

    def arrive(packages: Sequence[LockedPackage], _indexes: object, _to: Downloads, progress: Progress) -> None:
        for package in packages:
            progress(package, 10_000_000)
            progress(package, 20_000_000)
            time.sleep(0.1)

    monkeypatch.setattr(wheelhouse, "fetch", arrive)
    monkeypatch.setattr(wheels, "BEAT", 0.05)
    packages = [replace(one, size=50_000_000) for one in lock(recipe()).packages[:2]]
    wheels.fetch_wheels(Downloads(tmp_path, said.append, PipSettings), {}, packages)
    assert said[:2] == ["fetching wheels: 100 MB", "fetching wheels: 20 of 100 MB …"]
    assert "fetching wheels: 40 of 100 MB: 0 s so far" in said


@pytest.mark.parametrize(("seconds", "lines"), [(0, []), (0.15, ["fetching wheels: 2 of 5 kB …"])])
def test_a_small_download_is_reported_only_if_it_is_slow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float, lines: list[str]
) -> None:
    said: list[str] = []
    package = replace(lock(recipe()).packages[0], size=5_000)

    def arrive(_packages: object, _indexes: object, _to: Downloads, progress: Progress) -> None:
        progress(package, 2_000)
        time.sleep(seconds)

    monkeypatch.setattr(wheelhouse, "fetch", arrive)
    monkeypatch.setattr(wheels, "BEAT", 0.1)
    wheels.fetch_wheels(Downloads(tmp_path, said.append, PipSettings), {}, [package])
    assert said == lines


def test_one_run_at_a_time_works_in_a_folder_and_leaves_nothing_beside_it(
    context: Context, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, order = tmp_path / "deep/out", []

    def second() -> None:
        with rendered_held(context, out):
            order.append("second")

    with rendered_held(context, out):
        other = threading.Thread(target=second)
        other.start()
        while not (said := capsys.readouterr().err):
            time.sleep(0.01)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"]
    assert said == "another run works in out: waiting for it\n"
    assert not out.parent.exists()


def test_a_file_in_the_place_of_a_folder_is_held_too_and_stays(context: Context, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with rendered_held(context, tmp_path / "out"), pytest.raises(UsageError, match="is not a folder"):
        write_folder(context, catalog(), planned(context), tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"
