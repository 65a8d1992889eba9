from __future__ import annotations

import re
from pathlib import Path

import pytest
from factories import plan

from cannery.build.io import disk
from cannery.build.io.disk import check_cache_space, check_engine_space, check_output_space
from cannery.context import Context
from cannery.engine.io.find import Engine
from cannery.errors import ExitCode, UnableError
from cannery.lock.io.wheels import store_path
from cannery.recipe.recipe import Options
from cannery.vocab import Arch

GB = 10**9


def engine(root: Path | None) -> Engine:
    versions = {"server_version": "26", "arch": "amd64"}
    return Engine("unix:///s", Path("docker"), data_root=root, **versions)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, tmp_path / "cache/not/made/yet", {}, Arch.AMD64, is_terminal=False)


def free(monkeypatch: pytest.MonkeyPatch, cache: float, layers: float | None) -> None:
    room = {Path("/var/lib/docker"): layers or 0}
    monkeypatch.setattr(disk, "_free", lambda place: int(room.get(place, cache) * GB))


def test_enough_room_is_silent(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 10, 10)
    check_cache_space(context.cache, plan())
    check_engine_space(engine(tmp_path), plan())


def test_a_full_cache_is_reported_with_numbers(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 0.3, 10)
    monkeypatch.setattr(disk, "missing_bytes", lambda *_: 4 * 10**8)
    with pytest.raises(UnableError) as caught:
        check_cache_space(context.cache, plan())
    assert re.search(r"the files to fetch: [\d,]+ MB needed, 300 MB free", caught.value.what)
    assert caught.value.where == str(context.cache)
    assert "build.py clean" in caught.value.hint
    assert caught.value.code is ExitCode.UNABLE


def test_a_full_engine_is_reported_with_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 10, 0.25)
    with pytest.raises(UnableError, match=r"layers: [\d,]+ MB needed, 250 MB free") as caught:
        check_engine_space(engine(Path("/var/lib/docker")), plan())
    assert caught.value.where == "/var/lib/docker"


def test_an_engine_elsewhere_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 10, None)
    check_engine_space(engine(None), plan())


def test_an_archive_that_cannot_fit_is_reported_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "not/there/q.tar"
    free(monkeypatch, 4.9, None)
    with pytest.raises(UnableError, match=r"disk for q.tar: 5,000 MB needed, 4,900 MB free") as caught:
        check_output_space(path, 20 * GB)
    assert caught.value.where == str(path.parent)
    assert "--output" in caught.value.hint
    free(monkeypatch, 5, None)
    check_output_space(path, 20 * GB)


def test_what_is_there_needs_no_room(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(Options(base="standin"))
    free(monkeypatch, 1e-9, 10)
    for package in made.lock.packages:
        path = store_path(package, context.cache)
        path.parent.mkdir(parents=True)
        with path.open("wb") as stream:
            stream.truncate(package.size)
    with pytest.raises(UnableError):
        check_cache_space(context.cache, made)
    (context.cache / "engine").mkdir()
    with pytest.raises(UnableError):
        check_cache_space(context.cache, made)
    (context.cache / "rootfs").mkdir()
    (context.cache / "rootfs/bookworm.tar").touch()
    check_cache_space(context.cache, made)


def test_free_space_is_that_of_the_nearest_folder_that_exists(context: Context, tmp_path: Path) -> None:
    assert disk._free(context.cache) == pytest.approx(disk._free(tmp_path), rel=0.5)
    assert disk._free(context.cache) > 0
