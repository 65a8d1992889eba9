from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from checkouts import write_lock
from factories import catalog, lock, packages, recipe, tools

from cannery.core.errors import FindingsError, UsageError
from cannery.core.recipe import Options, lock_request, tools_request, with_arch
from cannery.core.words import Arch
from cannery.edge import locks
from cannery.edge.context import Context
from cannery.edge.locks import all_locks, bind, current_lock, lock_path, read_lock, tools_lock

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.core.lock import Lock, LockRequest


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path / "checkout", tmp_path / "cache", {}, Arch.AMD64, is_terminal=False)


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[LockRequest]:
    """A resolver that answers from the made-up lock, and what it was asked."""
    asked: list[LockRequest] = []

    def make(_context: Context, _catalog: object, request: LockRequest, path: Path) -> tuple[Lock, bool]:
        asked.append(request)
        made = replace(lock(recipe(), request.arch), inputs=request.digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(locks.format_lock(made), encoding="utf-8")
        return made, True

    monkeypatch.setattr(locks, "make_lock", make)
    return asked


def committed(context: Context, arch: Arch = Arch.AMD64) -> Path:
    request = lock_request(with_arch(recipe(), arch))
    return write_lock(context.root, request, packages(arch.machine))


def test_one_committed_file_a_profile_python_and_arch(context: Context) -> None:
    request = lock_request(recipe(Options(python="3.10", arch="arm64")))
    assert lock_path(context, request) == context.root / "images/locks/stack/py3.10-arm64.txt"


def test_a_set_by_hand_is_kept_in_the_cache_by_what_was_asked(context: Context) -> None:
    paths = {
        lock_path(context, lock_request(recipe(options)), standard=False)
        for options in (Options(), Options(pins=("ray==1",)), Options(arch="arm64"), Options(force=True))
    }
    assert len(paths) == 4
    assert all(path.parent == context.cache / "locks" for path in paths)


def test_no_file_is_no_lock(context: Context) -> None:
    assert read_lock(context, context.root / "none.txt") is None


def test_a_current_lock_is_read_and_nothing_is_asked(context: Context, resolved: list[LockRequest]) -> None:
    committed(context)
    assert current_lock(context, catalog(), recipe(), Arch.AMD64).packages == packages()
    assert resolved == []


def test_a_missing_lock_says_how_to_make_it(context: Context, resolved: list[LockRequest]) -> None:
    with pytest.raises(FindingsError, match="the lock is missing") as caught:
        current_lock(context, catalog(), recipe(), Arch.AMD64)
    assert caught.value.hint == "make lock PROFILE=stack"
    assert caught.value.where == "stack, amd64"
    assert resolved == []


def test_a_stale_lock_is_not_used(context: Context) -> None:
    request = lock_request(recipe())
    write_lock(context.root, replace(request, exclude_newer="2025-01-01"), packages())
    with pytest.raises(FindingsError, match="the lock is stale"):
        current_lock(context, catalog(), recipe(), Arch.AMD64)


def test_a_broken_lock_is_named_with_its_line(context: Context) -> None:
    path = committed(context)
    path.write_text(path.read_text(encoding="utf-8").replace("--hash=sha256:", "--hash=md5:", 1), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        current_lock(context, catalog(), recipe(), Arch.AMD64)
    assert caught.value.where == "images/locks/stack/py3.11-amd64.txt:3"


def test_a_set_by_hand_is_resolved_once_and_remembered(
    context: Context, resolved: list[LockRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = recipe(Options(pins=("ray==2.51.0",)))
    first = current_lock(context, catalog(), mine, Arch.AMD64)
    assert "resolving stack for amd64 with ray==2.51.0" in capsys.readouterr().err
    assert current_lock(context, catalog(), mine, Arch.AMD64) == first
    assert len(resolved) == 1
    assert not (context.root / "images").exists(), "committed locks are not touched"


def test_a_changed_profile_resolves_a_set_by_hand_again(context: Context, resolved: list[LockRequest]) -> None:
    mine = recipe(Options(force=True))
    current_lock(context, catalog(), mine, Arch.AMD64)
    other = replace(mine, profile=mine.profile.model_copy(update={"exclude_newer": "2026-02-02"}))
    current_lock(context, catalog(), other, Arch.AMD64)
    assert len(resolved) == 2


def test_all_arches_of_the_profile_are_wanted(context: Context) -> None:
    committed(context)
    with pytest.raises(FindingsError, match="missing"):
        all_locks(context, catalog(), recipe())
    committed(context, Arch.ARM64)
    found = all_locks(context, catalog(), recipe())
    assert list(found) == [Arch.AMD64, Arch.ARM64]
    assert found[Arch.ARM64].arch is Arch.ARM64


def test_a_pin_may_name_what_the_lock_holds(context: Context) -> None:
    committed(context)
    found = bind(context, catalog(), "stack", Options(pins=("sympy==1.13",)))
    assert found.pins == ("sympy==1.13",)
    with pytest.raises(UsageError) as caught:
        bind(context, catalog(), "stack", Options(pins=("simpy==1.13",)))
    assert "sympy" in caught.value.hint


def test_without_a_lock_a_pin_may_name_components(context: Context) -> None:
    assert bind(context, catalog(), "stack", Options(pins=("ray==2.0",))).pins == ("ray==2.0",)
    with pytest.raises(UsageError):
        bind(context, catalog(), "stack", Options(pins=("sympy==1.13",)))


def test_the_build_tools_lock_is_the_hosts(context: Context) -> None:
    with pytest.raises(FindingsError, match="build tools"):
        tools_lock(context, catalog(), "3.11")
    made = tools(catalog())
    write_lock(context.root, tools_request(catalog(), "3.11", Arch.ARM64), made.packages)
    with pytest.raises(FindingsError, match="build tools"):
        tools_lock(context, catalog(), "3.11")
    write_lock(context.root, tools_request(catalog(), "3.11", Arch.AMD64), made.packages)
    assert tools_lock(context, catalog(), "3.11").packages == made.packages
