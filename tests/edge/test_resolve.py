"""Resolving against stub indexes with the real uv."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import factories
import pytest
import uv
from stub_index import StubIndex, make_sdist, make_wheel

from cannery.catalog.addresses import Index
from cannery.errors import CanneryError, FindingsError, NetworkError, UnableError, UsageError
from cannery.explain.io.explain import explained
from cannery.lock.io.indexes import Answer, Asked, Listed, Place
from cannery.lock.io.resolve import Job, Resolver, _shared, resolve
from cannery.lock.io.wheelhouse import fetch
from cannery.lock.lock import Lock, format_lock, parse_lock
from cannery.lock.request import KnownRelease, LockRequest
from cannery.lock.uv import settings_text
from cannery.util.io.pip_settings import Downloads, PipSettings
from cannery.util.trouble import State
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEAD = "http://127.0.0.1:9/simple"
CPU = "cp311-cp311-manylinux_2_28"
REQUEST = LockRequest("q", "3.11", Arch.AMD64, ("thing",), (), (), (), "2026-06-01", (), ())
BOUND = dataclasses.replace(
    REQUEST,
    requirements=("thing", "torch==2.13.0+cpu"),
    bindings=(("torch", "cpu"), ("torchvision", "cpu")),
    stand_ins=(KnownRelease("torch", "2.13.0", ("filelock",)),),
)


@pytest.fixture
def stub() -> Iterator[StubIndex]:
    """A main index: thing needs dep; torch there is another build, which asks for CUDA."""
    with StubIndex() as index:
        index.add(make_wheel("thing", "1.0", ["dep>=1"]))
        index.add(make_wheel("thing", "2.0", ["dep>=9"]), uploaded="2026-07-01T00:00:00Z")
        for version in ("1.0", "1.1"):
            index.add(make_wheel("dep", version))
        index.add(make_wheel("filelock", "3.0"))
        index.add(make_wheel("pip", "26.0"))
        for machine in ("x86_64", "aarch64"):
            index.add(make_wheel("torch", "2.13.0", ["nvidia-nccl"], f"{CPU}_{machine}"))
        index.add(make_wheel("nvidia-nccl", "2.0"))
        yield index


@pytest.fixture
def cpu() -> Iterator[StubIndex]:
    """An index that torch is bound to, in plain HTML; it holds a stale dep too."""
    with StubIndex(json=False) as index:
        index.add(make_wheel("torch", "2.13.0+cpu", ["filelock"], f"{CPU}_x86_64"))
        index.add(make_wheel("dep", "9.9"))
        yield index


def lock(request: LockRequest, settings: PipSettings, tmp_path: Path, **indexes: Index) -> Lock:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    job = Job(request, indexes, settings, env, tmp_path / "cache", Asked())
    return resolve(
        job, tmp_path / "log.txt", lambda error, job, more: explained(error, job, factories.catalog(), None, more)
    )


def pins(found: Lock) -> dict[str, str]:
    return {package.name: package.version for package in found.packages}


def test_plain_lock_is_the_same_twice_and_has_it_all(stub: StubIndex, tmp_path: Path) -> None:
    settings = PipSettings(index_url=stub.url)
    first = lock(REQUEST, settings, tmp_path)
    assert pins(first) == {"dep": "1.1", "thing": "1.0"}  # thing 2.0 is later than the date bound
    dep = first.packages[0]
    assert (dep.file, dep.via, dep.index) == ("dep-1.1-py3-none-any.whl", ("thing",), "default")
    assert first.packages[1].via == ("<profile>",)
    assert dep.size == len(stub.files["dep"][dep.file])
    assert first.resolver.startswith("uv ")
    text = format_lock(first)
    assert format_lock(lock(REQUEST, settings, tmp_path)) == text
    assert format_lock(lock(REQUEST, settings, tmp_path / "elsewhere")) == text
    assert parse_lock(text, "x") == first
    assert stub.host not in text


def test_constraints_overrides_excludes(stub: StubIndex, tmp_path: Path) -> None:
    stub.add(make_wheel("thing", "1.5", ["dep>=7", "gone"]))
    request = dataclasses.replace(REQUEST, overrides=("dep<1.1",), excludes=("gone",), constraints=("thing>1",))
    found = lock(request, PipSettings(index_url=stub.url), tmp_path)
    assert pins(found) == {"dep": "1.0", "thing": "1.5"}
    assert found.packages[0].via == ("thing",)


def failing_uv(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program in uv's place."""
    program = folder / "uv"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(program))


@pytest.mark.parametrize(
    ("script", "kind", "says"),
    [
        ("kill -9 $$", UnableError, "the resolver was ended by signal 9\n  → make room in memory"),
        (
            "echo 'error: failed to write: No space left on device (os error 28)' >&2; exit 2",
            UnableError,
            "{cache}/uv: cannot be written: no space left on device\nfailed to write",
        ),
        (
            "echo 'error: failed to open file `/srv/uv/x`: Permission denied (os error 13)' >&2; exit 2",
            UnableError,
            "cannot be written: permission denied\nfailed to open file `/srv/uv/x`: Permission denied",
        ),
        (
            "echo 'error: Failed to build `thing`' >&2; exit 1",
            UnableError,
            "the resolver failed with status 1\nFailed to",
        ),
        (
            "echo \"error: unexpected argument '--x' found\" >&2; exit 2",
            UnableError,
            "the resolver failed with status 2\nunexpected argument",
        ),
        (
            "echo 'error: HTTP status client error (429 Too Many Requests) for url (x)' >&2; exit 2",
            NetworkError,
            "wait a while and try again",
        ),
    ],
)
def test_what_is_no_explanation_of_a_conflict_is_none(
    stub: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: type[Exception], says: str
) -> None:
    failing_uv(tmp_path, monkeypatch, script)
    with pytest.raises(kind) as caught:
        lock(REQUEST, PipSettings(index_url=stub.url), tmp_path)
    assert type(caught.value) is kind
    assert says.format(cache=tmp_path / "cache") in str(caught.value)


def test_a_cache_whose_path_no_build_can_have_in_its_path(
    stub: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    failing_uv(tmp_path, monkeypatch, "echo 'error: path segment contains separator `:`' >&2; exit 1")
    with pytest.raises(UnableError) as caught:
        lock(REQUEST, PipSettings(index_url=stub.url), folder)
    assert caught.value.hint == "set CANNERY_CACHE to a folder without a `:` in its path"


def test_a_real_uv_that_cannot_write_its_cache(stub: StubIndex, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "uv").write_text("in the way")
    with pytest.raises(UnableError) as caught:
        lock(REQUEST, PipSettings(index_url=stub.url), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/cache/uv: cannot be written: file exists\n")
    assert "\n  → a file is where a " in str(caught.value)


def test_a_real_uv_whose_disk_is_full(stub: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a file's size stands in for a full disk: uv is told so by the system in the same way."""
    real = uv.find_uv_bin()
    failing_uv(tmp_path, monkeypatch, f"trap '' XFSZ; ulimit -f 0; exec {real} \"$@\"")
    with pytest.raises(UnableError) as caught:
        lock(REQUEST, PipSettings(index_url=stub.url), tmp_path)
    assert f"{tmp_path}/cache/uv" in str(caught.value)
    assert "cannot be written: file too large" in str(caught.value)


def test_a_uv_that_does_not_end_is_no_conflict(
    stub: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_uv(tmp_path, monkeypatch, "exec sleep 60")
    job = Job(REQUEST, {}, PipSettings(index_url=stub.url), {"PATH": os.environ["PATH"]}, tmp_path, Asked())
    resolver = Resolver(job, tmp_path, longest=0.2)
    with pytest.raises(NetworkError, match=r"no answer after 0\.2 s"):
        resolver.choose()


def test_what_a_stopped_uv_was_unpacking_is_removed_once_no_uv_uses_the_cache(
    stub: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache" / "uv"
    unpacked = [cache / ".tmpA1b2C3", cache / "builds-v0" / ".tmpD4e5F6"]
    making = "; ".join(f"mkdir -p {path}/torch; touch {path}/torch/x" for path in unpacked)
    settings = PipSettings(index_url=stub.url)
    with StubIndex(stall=20.0) as slow:
        args = (uv.find_uv_bin(), "pip", "compile", "-", "--no-config", "--cache-dir", cache, "--index-url", slow.url)
        with subprocess.Popen(
            args, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as other:
            assert other.stdin
            other.stdin.write(b"thing")
            other.stdin.close()
            while not slow.seen:
                time.sleep(0.05)
            with monkeypatch.context() as changed:
                failing_uv(tmp_path, changed, f"{making}; kill -9 $$")
                with pytest.raises(UnableError):
                    lock(REQUEST, settings, tmp_path)
            assert all(path.exists() for path in unpacked)  # they could be the other's
            other.kill()
    assert pins(lock(REQUEST, settings, tmp_path)) == {"dep": "1.1", "thing": "1.0"}
    assert not any(path.exists() for path in unpacked)
    assert list(cache.glob("simple-*"))  # the cache itself stays


def test_the_user_s_own_uv_settings_do_not_count(
    stub: StubIndex, cpu: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".config" / "uv").mkdir(parents=True)
    (tmp_path / ".config" / "uv" / "uv.toml").write_text(f'[[index]]\nurl = "{cpu.url}"\n')
    monkeypatch.setenv("UV_INDEX_URL", cpu.url)
    assert pins(lock(REQUEST, PipSettings(index_url=stub.url), tmp_path))["dep"] == "1.1"
    assert cpu.seen == []


def test_bound_index_serves_torch_and_nothing_else(stub: StubIndex, cpu: StubIndex, tmp_path: Path) -> None:
    found = lock(BOUND, PipSettings(index_url=stub.url), tmp_path, cpu=Index(urls=(DEAD, cpu.url)))
    assert pins(found) == {"dep": "1.1", "filelock": "3.0", "thing": "1.0", "torch": "2.13.0+cpu"}
    torch = found.packages[-1]
    assert (torch.index, torch.complete) == ("cpu", True)
    # Plain HTML tells no size: asked for by HEAD.
    assert torch.size == len(cpu.files["torch"][torch.file])


def test_bound_index_not_reached_makes_an_incomplete_lock(stub: StubIndex, tmp_path: Path) -> None:
    start = time.monotonic()
    found = lock(BOUND, PipSettings(index_url=stub.url), tmp_path, cpu=Index(urls=(DEAD,)))
    assert time.monotonic() - start < 25
    assert pins(found) == {"dep": "1.1", "filelock": "3.0", "thing": "1.0", "torch": "2.13.0+cpu"}
    torch = found.packages[-1]
    assert (torch.complete, torch.file, torch.index, torch.via) == (False, "", "cpu", ("<profile>",))
    assert "torch==2.13.0+cpu\n    # incomplete: index cpu not reached, via <profile>\n" in format_lock(found)
    nothing_known = dataclasses.replace(BOUND, stand_ins=())
    with pytest.raises(NetworkError, match="index cpu, which was not reached"):
        lock(nothing_known, PipSettings(index_url=stub.url), tmp_path, cpu=Index(urls=(DEAD,)))


@pytest.mark.parametrize("form", ["find-links", "extra index"])
def test_host_files_serve_the_exact_pin_for_their_arch_only(stub: StubIndex, tmp_path: Path, form: str) -> None:
    file, data = make_wheel("torch", "2.13.0+cpu", ["filelock"], f"{CPU}_x86_64")
    other, other_data = make_wheel("torch", "2.14.1", ["nvidia-nccl"], f"{CPU}_x86_64")
    page = tmp_path / "simple" / "torch" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../files/{file}">{file}</a><a href="../../files/{other}">{other}</a>')
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / file).write_bytes(data)
    (tmp_path / "files" / other).write_bytes(other_data)
    settings = PipSettings(index_url=stub.url, extra_index_urls=((tmp_path / "simple").as_uri(),))
    if form == "find-links":
        settings = PipSettings(index_url=stub.url, find_links=(str(tmp_path / "files"),))
    cpu = Index(urls=(DEAD,))
    found = lock(BOUND, settings, tmp_path, cpu=cpu)
    torch = found.packages[-1]
    assert (torch.file, torch.index, torch.size, found.complete) == (file, "cpu", len(data), True)
    downloads = Downloads(tmp_path / "c", print, lambda: settings)
    assert fetch(found.packages, {"cpu": cpu}, downloads, lambda *_: None)["torch"].read_bytes() == data
    # The wheel is of the other arch, so this lock is incomplete.
    arm = lock(dataclasses.replace(BOUND, arch=Arch.ARM64), settings, tmp_path, cpu=cpu)
    assert (arm.complete, pins(arm)) == (False, pins(found))


def test_extra_places_serve_only_what_the_main_index_does_not_have(stub: StubIndex, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for made in (make_wheel("dep", "5.0"), make_wheel("only-here", "1.0", ["dep"])):
        (links / made[0]).write_bytes(made[1])
    request = dataclasses.replace(REQUEST, requirements=("thing", "only-here"))
    settings = PipSettings(index_url=stub.url, find_links=(str(links),))
    found = lock(request, settings, tmp_path)
    assert pins(found) == {"dep": "1.1", "only-here": "1.0", "thing": "1.0"}
    assert {package.index for package in found.packages} == {"default"}


def test_package_that_turns_out_to_be_bound(stub: StubIndex, cpu: StubIndex, tmp_path: Path) -> None:
    stub.add(make_wheel("thing", "1.7", ["torchvision"]))
    stub.add(make_wheel("torchvision", "9.9"))
    cpu.add(make_wheel("torchvision", "0.28.0+cpu"))
    found = lock(BOUND, PipSettings(index_url=stub.url), tmp_path, cpu=Index(urls=(cpu.url,)))
    vision = found.packages[-1]
    assert (vision.version, vision.index, vision.via) == ("0.28.0+cpu", "cpu", ("thing",))


def test_a_bound_index_without_the_arch_names_package_and_platform(
    stub: StubIndex, cpu: StubIndex, tmp_path: Path
) -> None:
    request = dataclasses.replace(BOUND, arch=Arch.ARM64)
    with pytest.raises(FindingsError) as caught:
        lock(request, PipSettings(index_url=stub.url), tmp_path, cpu=Index(urls=(cpu.url,)))
    assert caught.value.what.splitlines()[0] == (
        "torch 2.13.0+cpu: index cpu has no file of it for Python 3.11 on arm64 (aarch64-manylinux_2_34); "
        "it has torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    )


def test_sdist_only_when_no_wheel_fits(stub: StubIndex, tmp_path: Path) -> None:
    stub.add(make_sdist("both", "1.0"))
    stub.add(make_wheel("both", "1.0", tag=f"{CPU}_aarch64"))
    request = dataclasses.replace(REQUEST, requirements=("both",))
    settings = PipSettings(index_url=stub.url)
    assert lock(request, settings, tmp_path).packages[0].is_sdist
    arm = lock(dataclasses.replace(request, arch=Arch.ARM64), settings, tmp_path)
    assert arm.packages[0].file == f"both-1.0-{CPU}_aarch64.whl"


def test_unsatisfiable_is_explained_and_logged(stub: StubIndex, tmp_path: Path) -> None:
    request = dataclasses.replace(REQUEST, requirements=("thing", "dep<1"))
    with pytest.raises(FindingsError) as caught:
        lock(request, PipSettings(index_url=stub.url), tmp_path)
    assert str(caught.value).splitlines() == [
        "profile q, Python 3.11, amd64: no set of versions works: no version of dep meets all requirements",
        "  dep <1 by requirement dep<1",
        "  dep >=1 by thing",
        "  this has to change: requirement dep<1",
        f"  log: {tmp_path / 'log.txt'}",
    ]
    assert "No solution found" in (tmp_path / "log.txt").read_text()


def test_a_stale_package_on_a_bound_index_is_not_taken(stub: StubIndex, cpu: StubIndex, tmp_path: Path) -> None:
    """A torch index holds stale copies of common packages; uv's best-match over all indexes is never asked for."""
    cpu.add(make_wheel("thing", "0.1", ["dep"]))
    cpu.add(make_wheel("thing", "9.0", ["dep"]))
    found = lock(BOUND, PipSettings(index_url=stub.url), tmp_path, cpu=Index(urls=(cpu.url,)))
    assert {p.name: (p.version, p.index) for p in found.packages if p.name in {"thing", "dep", "torch"}} == {
        "thing": ("1.0", "default"),
        "dep": ("1.1", "default"),
        "torch": ("2.13.0+cpu", "cpu"),
    }
    log = (tmp_path / "log.txt").read_text()
    assert "best-match" not in log
    assert "index-strategy" not in log
    assert all("/thing/" not in path for path in cpu.seen)


def test_locks_of_one_run_ask_an_index_once(stub: StubIndex, cpu: StubIndex, tmp_path: Path) -> None:
    asked = Asked()
    settings = PipSettings(index_url=stub.url)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for profile in ("q1", "q2"):
        request = dataclasses.replace(BOUND, profile=profile)
        indexes = {"cpu": Index(urls=(cpu.url,))}
        cache, log = tmp_path / "cache", tmp_path / "log.txt"
        resolve(Job(request, indexes, settings, env, cache, asked), log, lambda error, *_: error)
    # What only Cannery asks for; uv asks again.
    assert (stub.seen.count("/simple/pip/"), cpu.seen.count("/simple/torchvision/")) == (1, 1)


def test_a_silent_extra_index_ends_within_five_seconds_and_no_uv_runs(stub: StubIndex, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://u:s3cret@127.0.0.1:{silent.getsockname()[1]}/simple"
        start = time.monotonic()
        with pytest.raises(NetworkError) as caught:
            lock(REQUEST, PipSettings(index_url=stub.url, extra_index_urls=(url,)), tmp_path)
    assert time.monotonic() - start < 25
    assert caught.value.what == (
        f"not reached: extra index ({url.replace('u:s3cret@', '')}): time-out (no answer within 4 s)"
    )
    assert not (tmp_path / "log.txt").exists()


def test_pages_of_a_remote_index_that_says_nothing_of_it_are_kept_for_a_while() -> None:
    place = Place("default", "index default", "https://index.example/simple")
    listed = Listed("a", "1", "a-1.whl", "", "", 0, place, "2026-01-01")
    answer = Answer(place, "a", State.OK, files=(listed,))
    kept = _shared(0, place, [answer])
    assert 'cache-control = { api = "max-age=600", files = "max-age=86400" }' in settings_text(REQUEST, {}, [kept])
    for other in (
        _shared(0, dataclasses.replace(place, url="http://near.example/simple"), [answer]),
        _shared(1, dataclasses.replace(place, links=True), [answer]),
    ):
        assert "cache-control" not in settings_text(REQUEST, {}, [other])


@pytest.mark.parametrize(("status", "word"), [(401, "denied"), (403, "denied"), (404, "404"), (502, "server error")])
def test_main_index_in_trouble_is_named(stub: StubIndex, tmp_path: Path, status: int, word: str) -> None:
    stub.status = status
    start = time.monotonic()
    with pytest.raises(NetworkError, match=word) as caught:
        lock(REQUEST, PipSettings(index_url=stub.url), tmp_path)
    assert stub.host in str(caught.value)
    assert time.monotonic() - start < 25


def test_misspelt_requirement_is_a_finding(stub: StubIndex, tmp_path: Path) -> None:
    request = dataclasses.replace(REQUEST, requirements=("no-such-thing",))
    with pytest.raises(FindingsError, match="no-such-thing was not found"):
        lock(request, PipSettings(index_url=stub.url), tmp_path)


def test_extra_index_that_is_not_reached_is_named(stub: StubIndex, tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"extra index .*refused"):
        lock(REQUEST, PipSettings(index_url=stub.url, extra_index_urls=(DEAD,)), tmp_path)


def test_main_index_without_upload_times_is_named(stub: StubIndex, tmp_path: Path) -> None:
    stub.dated = False
    with pytest.raises(NetworkError, match=f"{stub.host}.*upload times.*2026-06-01"):
        lock(REQUEST, PipSettings(index_url=stub.url), tmp_path)


def test_index_that_is_not_in_the_catalog(stub: StubIndex, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'cpu'"):
        lock(BOUND, PipSettings(index_url=stub.url), tmp_path)


def test_files_without_hashes_are_hashed(stub: StubIndex, tmp_path: Path) -> None:
    whole = lock(REQUEST, PipSettings(index_url=stub.url), tmp_path)
    stub.hashes = False
    assert lock(REQUEST, PipSettings(index_url=stub.url), tmp_path / "again") == whole


def test_trouble_in_the_middle_is_the_network_s(stub: StubIndex, tmp_path: Path) -> None:
    stub.file_status = 503
    with pytest.raises(NetworkError) as caught:
        lock(REQUEST, PipSettings(index_url=stub.url), tmp_path)
    assert stub.host in str(caught.value)


def test_credentials_reach_uv_and_nothing_else(stub: StubIndex, tmp_path: Path) -> None:
    stub.auth = "me:s3cret"
    settings = PipSettings(index_url=f"http://me:s3cret@{stub.host}/simple")
    good = lock(REQUEST, settings, tmp_path)
    bad = dataclasses.replace(REQUEST, requirements=("thing", "dep<1"))
    texts = [format_lock(good), (tmp_path / "log.txt").read_text()]
    with pytest.raises(CanneryError) as caught:
        lock(bad, settings, tmp_path)
    texts += [str(caught.value), (tmp_path / "log.txt").read_text()]
    assert all("s3cret" not in text for text in texts)
    assert list((tmp_path / "cache").glob("locks/resolve-*")) == []


def test_pip_and_uv_read_the_lock(stub: StubIndex, tmp_path: Path) -> None:
    found = lock(REQUEST, PipSettings(index_url=stub.url), tmp_path)
    downloads = Downloads(tmp_path / "cache", print, lambda: PipSettings(index_url=stub.url))
    files = fetch(found.packages, {}, downloads, lambda *_: None)
    text = tmp_path / "lock.txt"
    text.write_text(format_lock(found))
    links = [f"--find-links={path.parent}" for path in files.values()]
    common = ["--no-index", "--no-deps", "--require-hashes", "-r", str(text), *links]
    target = tmp_path / "target"
    subprocess.run(
        [
            uv.find_uv_bin(),
            "pip",
            "install",
            "--no-config",
            "--python",
            sys.executable,
            "--target",
            target,
            *common,
        ],
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert (target / "thing.py").is_file()
    done = subprocess.run(
        [
            f"{sys.base_prefix}/bin/python3",
            "-m",
            "pip",
            "download",
            "--isolated",
            "-q",
            "-d",
            target / "pip",
            *common,
        ],
        check=False,
    )
    assert done.returncode == 0
    assert len([*(target / "pip").iterdir()]) == 2
