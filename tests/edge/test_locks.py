from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from checkouts import write_lock
from factories import catalog, lock, package, packages, recipe, tools

from cannery.errors import FindingsError, UsageError
from cannery.lock.io import store as locks
from cannery.lock.io.store import LockStore, all_locks, bind, current_lock, lock_path, read_lock, read_locks, tools_lock
from cannery.lock.lock import PROFILE_VIA
from cannery.lock.request import lock_request, tools_request
from cannery.recipe.recipe import Options, with_arch
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cannery.lock.lock import Lock, LockedPackage
    from cannery.lock.request import LockRequest


@pytest.fixture
def store(tmp_path: Path) -> LockStore:
    return LockStore(
        tmp_path / "checkout",
        tmp_path / "checkout/images/locks",
        tmp_path / "cache",
        Arch.AMD64,
        {},
        lambda text: print(text, file=sys.stderr),
        PipSettings,
        lambda error, *_: error,
    )


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[LockRequest]:
    """A resolver that answers from the made-up lock, and what it was asked."""
    asked: list[LockRequest] = []

    def make(_store: LockStore, _catalog: object, request: LockRequest, **_more: object) -> Lock:
        asked.append(request)
        return replace(
            lock(recipe(), request.arch),
            inputs=request.digest,
            exclude_newer=request.exclude_newer,
            packages=whole(request.arch, ray="2.51.0" if "ray[default]==2.51.0" in request.requirements else "2.50.0"),
        )

    monkeypatch.setattr(locks, "resolve_lock", make)
    return asked


def whole(arch: Arch = Arch.AMD64, ray: str = "2.50.0") -> tuple[LockedPackage, ...]:
    """The made-up packages with all that the recipe asks for."""
    mine = {p.name: p for p in (package("attrs"), *packages(arch.machine))}
    mine["numpy"] = replace(mine["numpy"], via=(PROFILE_VIA, "torch-npu"))
    mine["ray"] = replace(mine["ray"], version=ray, file=mine["ray"].file.replace("2.50.0", ray))
    return tuple(mine[name] for name in sorted(mine))


def committed(store: LockStore, arch: Arch = Arch.AMD64) -> Path:
    request = lock_request(with_arch(recipe(), arch))
    return write_lock(store.root, request, whole(arch))


def test_one_committed_file_a_profile_python_and_arch(store: LockStore) -> None:
    request = lock_request(recipe(Options(python="3.10", arch="arm64")))
    assert lock_path(store, request) == store.root / "images/locks/stack/py3.10-arm64.txt"


def test_a_set_by_hand_is_kept_in_the_cache_by_what_was_asked(store: LockStore) -> None:
    paths = {
        lock_path(store, lock_request(recipe(options)), standard=False)
        for options in (Options(), Options(pins=("ray==1",)), Options(arch="arm64"), Options(force=True))
    }
    assert len(paths) == 4
    assert all(path.parent == store.cache / "locks" for path in paths)


def test_no_file_is_no_lock(store: LockStore) -> None:
    assert read_lock(store, store.root / "none.txt") is None


def test_a_current_lock_is_read_and_nothing_is_asked(store: LockStore, resolved: list[LockRequest]) -> None:
    committed(store)
    assert current_lock(store, catalog(), recipe(), Arch.AMD64).packages == whole()
    assert resolved == []


def test_a_missing_lock_says_how_to_make_it(store: LockStore, resolved: list[LockRequest]) -> None:
    with pytest.raises(FindingsError, match="the lock is missing") as caught:
        current_lock(store, catalog(), recipe(), Arch.AMD64)
    assert caught.value.hint == "build.py lock stack"
    assert caught.value.where == "images/locks/stack/py3.11-amd64.txt"
    assert resolved == []


def test_a_stale_lock_is_not_used(store: LockStore) -> None:
    request = lock_request(recipe())
    write_lock(store.root, replace(request, exclude_newer="2025-01-01"), whole())
    with pytest.raises(FindingsError, match="the lock is stale: date bound: the lock has 2025-01-01") as caught:
        current_lock(store, catalog(), recipe(), Arch.AMD64)
    assert "date bound: the lock has 2025-01-01" in caught.value.what
    assert caught.value.hint == "build.py lock stack"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def forbidden_pair(path: Path) -> None:
    edit(path, "torch-npu==2.9.0", "torch-npu==2.8.0")
    edit(path, "torch_npu-2.9.0-", "torch_npu-2.8.0-")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (forbidden_pair, "torch-npu==2.9.0: the lock has 2.8.0"),
        (lambda path: edit(path, "ray-2.50.0-cp311-cp311", "ray-2.50.0-cp312-cp312"), "does not fit Python 3.11"),
        (lambda path: edit(path, '"arch": "amd64"', '"arch": "arm64"'), "arch: the lock has arm64, amd64 is asked"),
        (lambda path: edit(path, '"profile": "stack"', '"profile": "x"'), "profile: the lock has x, stack is asked"),
        (lambda path: edit(path, "index torch-cpu", "index zzz"), "torch: from index zzz in the lock"),
    ],
)
def test_a_lock_that_was_edited_is_not_used(store: LockStore, spoil: Callable[[Path], None], words: str) -> None:
    spoil(committed(store))
    with pytest.raises(FindingsError) as caught:
        current_lock(store, catalog(), recipe(), Arch.AMD64)
    assert caught.value.what.startswith(("the lock was edited by hand: ", "the lock is stale: "))
    assert words in caught.value.what
    assert caught.value.where == "images/locks/stack/py3.11-amd64.txt"
    assert caught.value.hint == "build.py lock stack"


def test_the_lock_of_another_arch_copied_over_is_not_used(store: LockStore) -> None:
    path = committed(store)
    path.write_bytes(committed(store, Arch.ARM64).read_bytes())
    words = r"is stale: arch: the lock has arm64, amd64 is asked; .*and \d more"
    with pytest.raises(FindingsError, match=words) as caught:
        current_lock(store, catalog(), recipe(), Arch.AMD64)
    assert caught.value.what.count("; ") == locks.SHOWN


def test_half_of_a_lock_is_no_lock(store: LockStore) -> None:
    path = committed(store)
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:10]), encoding="utf-8")
    with pytest.raises(UsageError, match="counts 7 packages, and it has 3: merged or edited by hand") as caught:
        current_lock(store, catalog(), recipe(), Arch.AMD64)
    assert caught.value.where == "images/locks/stack/py3.11-amd64.txt"


@pytest.mark.parametrize("profile", ["stack", "_tools"])
def test_a_byte_that_is_no_text_is_a_broken_lock(store: LockStore, profile: str) -> None:
    committed(store)
    path = store.root / f"images/locks/{profile}/py3.11-amd64.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"# {}\n\xff\n")
    with pytest.raises(UsageError, match="byte 5 is not UTF-8") as caught:
        read_locks(store, catalog(), recipe())
    assert caught.value.where == f"images/locks/{profile}/py3.11-amd64.txt"


def test_a_changed_hash_is_the_downloads_to_refuse(store: LockStore) -> None:
    path = committed(store)
    edit(path, whole()[0].sha256, "ab" * 32)
    assert current_lock(store, catalog(), recipe(), Arch.AMD64).packages[0].sha256 == "ab" * 32


@pytest.mark.parametrize("text", [b"\xff", b"half a lo", None])
def test_a_broken_lock_of_a_set_by_hand_is_made_again(
    store: LockStore, resolved: list[LockRequest], text: bytes | None
) -> None:
    mine = recipe(Options(pins=("ray==2.51.0",)))
    first = current_lock(store, catalog(), mine, Arch.AMD64)
    (path,) = (store.cache / "locks").iterdir()
    path.write_bytes(text if text is not None else path.read_bytes().replace(b"index torch-cpu", b"index zzz"))
    assert current_lock(store, catalog(), mine, Arch.AMD64) == first
    assert len(resolved) == 2


def test_an_answer_of_the_resolver_that_was_not_asked_is_not_used(
    store: LockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = lock_request(recipe())
    answer = replace(lock(recipe()), inputs=request.digest, packages=tuple(p for p in whole() if p.name != "attrs"))
    monkeypatch.setattr("cannery.lock.io.resolve.resolve", lambda *_args, **_more: answer)
    with pytest.raises(FindingsError, match="attrs: not in the lock"):
        locks.resolve_lock(store, catalog(), request)
    monkeypatch.setattr("cannery.lock.io.resolve.resolve", lambda *_args, **_more: replace(answer, packages=whole()))
    assert locks.resolve_lock(store, catalog(), request).packages == whole()


def test_every_lock_that_a_plan_needs_is_looked_at(store: LockStore) -> None:
    nothing = read_locks(store, catalog(), recipe())
    assert (dict(nothing.locks), nothing.tools) == ({}, None)
    assert [(f.what.split(": ")[0], f.fix) for f in nothing.findings] == [
        ("images/locks/stack/py3.11-amd64.txt", "build.py lock stack"),
        ("images/locks/stack/py3.11-arm64.txt", "build.py lock stack"),
        ("images/locks/_tools/py3.11-amd64.txt", "build.py lock"),
    ]
    assert {(f.severity, f.code) for f in nothing.findings} == {(Severity.ERROR, locks.LOCK)}
    committed(store, Arch.ARM64)
    half = read_locks(store, catalog(), recipe())
    assert [*half.locks] == [Arch.ARM64]
    assert len(half.findings) == 2
    committed(store, Arch.AMD64)
    (tool,) = read_locks(store, catalog(), recipe()).findings
    assert "the lock of the build tools is missing" in tool.what
    write_lock(store.root, tools_request(catalog(), "3.11", Arch.AMD64), tools(catalog()).packages)
    read = read_locks(store, catalog(), recipe())
    assert ([*read.locks], read.findings) == ([Arch.AMD64, Arch.ARM64], ())
    assert read.tools is not None
    assert read.tools.packages == tools(catalog()).packages


def test_a_check_of_a_set_by_hand_resolves_the_target_alone(store: LockStore, resolved: list[LockRequest]) -> None:
    mine = recipe(Options(pins=("ray==2.51.0",)))
    read = read_locks(store, catalog(), mine)
    assert [request.arch for request in resolved] == [*read.locks] == [Arch.AMD64]
    # A plan wants the others too, and reads nothing again.
    found = all_locks(store, catalog(), mine, read.locks)
    assert [request.arch for request in resolved] == [*found] == [Arch.AMD64, Arch.ARM64]
    assert found[Arch.AMD64] is read.locks[Arch.AMD64]


def test_locks_that_were_read_are_not_read_again(store: LockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for arch in Arch:
        committed(store, arch)
    read = read_locks(store, catalog(), recipe())
    monkeypatch.setattr(locks, "read_lock", lambda *_: pytest.fail("read again"))
    assert all_locks(store, catalog(), recipe(), read.locks) == dict(read.locks)


def test_a_broken_lock_is_named_with_its_line(store: LockStore) -> None:
    path = committed(store)
    path.write_text(path.read_text(encoding="utf-8").replace("--hash=sha256:", "--hash=md5:", 1), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        current_lock(store, catalog(), recipe(), Arch.AMD64)
    assert caught.value.where == "images/locks/stack/py3.11-amd64.txt:2"


def test_a_set_by_hand_is_resolved_once_and_remembered(
    store: LockStore, resolved: list[LockRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = recipe(Options(pins=("ray==2.51.0",)))
    first = current_lock(store, catalog(), mine, Arch.AMD64)
    assert "resolving stack for amd64 with ray==2.51.0" in capsys.readouterr().err
    assert current_lock(store, catalog(), mine, Arch.AMD64) == first
    assert len(resolved) == 1
    assert not (store.root / "images").exists(), "committed locks are not touched"


def test_a_changed_profile_resolves_a_set_by_hand_again(store: LockStore, resolved: list[LockRequest]) -> None:
    mine = recipe(Options(force=True))
    current_lock(store, catalog(), mine, Arch.AMD64)
    other = replace(mine, profile=mine.profile.model_copy(update={"exclude_newer": "2026-02-02"}))
    current_lock(store, catalog(), other, Arch.AMD64)
    assert len(resolved) == 2


def test_all_arches_of_the_profile_are_wanted(store: LockStore) -> None:
    committed(store)
    with pytest.raises(FindingsError, match="missing"):
        all_locks(store, catalog(), recipe(), {})
    committed(store, Arch.ARM64)
    found = all_locks(store, catalog(), recipe(), {})
    assert list(found) == [Arch.AMD64, Arch.ARM64]
    assert found[Arch.ARM64].arch is Arch.ARM64


def test_a_pin_may_name_what_the_lock_holds(store: LockStore) -> None:
    committed(store)
    found = bind(store, catalog(), "stack", Options(pins=("sympy==1.13",)))
    assert found.pins == ("sympy==1.13",)
    with pytest.raises(UsageError) as caught:
        bind(store, catalog(), "stack", Options(pins=("simpy==1.13",)))
    assert "sympy" in caught.value.hint


def test_without_a_lock_a_pin_may_name_components(store: LockStore) -> None:
    assert bind(store, catalog(), "stack", Options(pins=("ray==2.0",))).pins == ("ray==2.0",)
    with pytest.raises(UsageError):
        bind(store, catalog(), "stack", Options(pins=("sympy==1.13",)))


def test_the_build_tools_lock_is_the_hosts(store: LockStore) -> None:
    with pytest.raises(FindingsError, match="build tools"):
        tools_lock(store, catalog(), "3.11")
    made = tools(catalog())
    write_lock(store.root, tools_request(catalog(), "3.11", Arch.ARM64), made.packages)
    with pytest.raises(FindingsError, match="build tools"):
        tools_lock(store, catalog(), "3.11")
    path = write_lock(store.root, tools_request(catalog(), "3.11", Arch.AMD64), made.packages)
    edit(path, "uv==0.9.0", "uv==0.8.0")
    edit(path, "uv-0.9.0-", "uv-0.8.0-")
    with pytest.raises(FindingsError, match=r"uv==0\.9\.0: the lock has 0\.8\.0"):
        tools_lock(store, catalog(), "3.11")
    write_lock(store.root, tools_request(catalog(), "3.11", Arch.AMD64), made.packages)
    assert tools_lock(store, catalog(), "3.11").packages == made.packages


def test_another_cann_has_no_committed_lock_of_its_own(store: LockStore) -> None:
    """What CANN imports is locked too: its lock would take the place of the profile's own."""
    found = catalog()
    own, other = recipe(), recipe(Options(cann="8.3.rc1"))
    assert own.is_standard
    assert not other.is_standard
    line = found.bases["8.3.rc1"].model_copy(update={"python_packages": ("attrs",)})
    differs = recipe(Options(cann="8.3.rc1"), catalog(bases={**found.bases, "8.3.rc1": line}))
    path = lock_path(store, lock_request(differs), standard=differs.is_standard)
    assert path.is_relative_to(store.cache)


def test_a_lock_of_another_python_is_made_by_a_command_that_names_it(store: LockStore) -> None:
    found = read_locks(store, catalog(), recipe(Options(python="3.10"))).findings
    assert {finding.fix for finding in found} == {"build.py lock stack --python 3.10"}
