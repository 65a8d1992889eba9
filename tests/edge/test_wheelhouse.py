"""Files of a lock into the store: whole or not at all, from wherever they are."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stub_index import StubIndex, make_wheel

from cannery.catalog.addresses import Index
from cannery.errors import FindingsError, NetworkError, UnableError
from cannery.lock.io import wheelhouse as download
from cannery.lock.io.wheelhouse import fetch
from cannery.lock.io.wheels import missing_bytes, store_path
from cannery.lock.lock import LockedPackage
from cannery.util.io import http
from cannery.util.io.pip_settings import Downloads, PipSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

BIG = os.urandom(400_000)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(download, "SILENCE", 2.0)


@pytest.fixture
def stub() -> Iterator[StubIndex]:
    with StubIndex() as index:
        yield index


def locked(made: tuple[str, bytes], index: str = "default") -> LockedPackage:
    file, data = made
    name, version = file.split("-")[:2]
    return LockedPackage(name.replace("_", "-"), version, file, hashlib.sha256(data).hexdigest(), len(data), index, ())


def downloads(settings: PipSettings, cache: Path) -> Downloads:
    return Downloads(cache, print, lambda: settings)


def get(package: LockedPackage, settings: PipSettings, cache: Path, **indexes: Index) -> Path:
    return fetch([package], indexes, downloads(settings, cache), lambda *_: None)[package.name]


def leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in (cache / "wheels").rglob("*") if p.is_file() and p.suffix not in (".lock", ".whl"))


@pytest.mark.parametrize("json", [True, False])
@pytest.mark.parametrize("hashes", [True, False])
def test_fetch_then_no_network(stub: StubIndex, tmp_path: Path, *, json: bool, hashes: bool) -> None:
    stub.json, stub.hashes = json, hashes
    made = [make_wheel("a", "1.0"), make_wheel("b-c", "2.0+cpu", payload=BIG)]
    for one in made:
        stub.add(one)
    packages = [locked(one) for one in made]
    settings = PipSettings(index_url=stub.url)
    calls: list[tuple[str, int]] = []
    assert missing_bytes(packages, tmp_path) == sum(len(data) for _file, data in made)
    context = downloads(settings, tmp_path)
    got = fetch(packages, {}, context, lambda one, done: calls.append((one.name, done)))
    assert {name: path.read_bytes() for name, path in got.items()} == {"a": made[0][1], "b-c": made[1][1]}
    assert ("b-c", len(made[1][1])) in calls
    assert missing_bytes(packages, tmp_path) == 0
    assert leftovers(tmp_path) == []
    before = len(stub.seen)
    assert fetch(packages, {}, downloads(settings, tmp_path), lambda *_: None) == got
    assert len(stub.seen) == before


@pytest.mark.parametrize("sizes", [True, False])
def test_a_size_that_is_not_published_is_asked_for(stub: StubIndex, tmp_path: Path, *, sizes: bool) -> None:
    """The lock has a published hash and no size; it is the index's, or that of the file."""
    stub.sizes = sizes
    made = make_wheel("a", "1.0", payload=BIG)
    stub.add(made)
    package = replace(locked(made), size=0)
    stub.cut, stub.cuts = 100_000, 1
    assert get(package, PipSettings(index_url=stub.url), tmp_path).read_bytes() == made[1]
    assert stub.ranges_seen == ["bytes=100000-"]
    before = len(stub.seen)
    assert get(package, PipSettings(index_url=stub.url), tmp_path).is_file()
    assert len(stub.seen) == before


def test_a_web_page_in_place_of_a_wheel_is_named_as_one(
    stub: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_wheel("a", "1.0")
    stub.add(made)
    page = b"<html>log in first</html>"
    monkeypatch.setattr(stub, "_send_file", lambda request, _data: stub._send(request, page, "text/html"))
    with pytest.raises(NetworkError, match="it sent a web page instead of the file"):
        get(locked(made), PipSettings(index_url=stub.url), tmp_path)
    assert not store_path(locked(made), tmp_path).exists()


def test_a_mirror_without_the_file_and_one_without_the_package_are_told_apart(stub: StubIndex, tmp_path: Path) -> None:
    stub.add(make_wheel("a", "0.9"))
    with pytest.raises(NetworkError, match=r"has 1 other file of it: a mirror may lag behind"):
        get(locked(make_wheel("a", "1.0")), PipSettings(index_url=stub.url), tmp_path)
    with pytest.raises(NetworkError, match="404 not found"):
        get(locked(make_wheel("b", "1.0")), PipSettings(index_url=stub.url), tmp_path)


@pytest.mark.parametrize("fault", ["lag", "status", "page"])
def test_a_file_that_comes_from_another_mirror_is_reported_with_the_reason(
    stub: StubIndex, tmp_path: Path, fault: str
) -> None:
    made, lines = make_wheel("a", "1.0"), []
    stub.add(made)
    with StubIndex() as first:
        first.add(make_wheel("a", "0.9") if fault == "lag" else made)
        first.status = 503 if fault == "status" else 200
        if fault == "page":
            first._send_file = lambda request, _data: first._send(request, b"<html>log in</html>", "text/html")  # type: ignore[method-assign]
        folder = tmp_path / "own"
        folder.mkdir()
        settings = PipSettings(index_url=stub.url, find_links=(str(folder),))
        for urls in ((first.url, stub.url), (stub.url,)):
            package = locked(made, index="bound")
            context = Downloads(tmp_path, lines.append, lambda: settings)
            got = fetch([package], {"bound": Index(urls=urls)}, context, lambda *_: None)
            assert got["a"].read_bytes() == made[1]
            got["a"].unlink()
    (line,) = lines
    assert line.startswith(f"a-1.0-py3-none-any.whl comes from index bound ({stub.url}); index bound ({first.url})")
    assert {"lag": "a mirror may lag behind", "status": "503", "page": "a web page"}[fault] in line


def test_a_wrong_published_hash_stops_the_download(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0")
    stub.add(made)
    stub.hashes = False
    with pytest.raises(FindingsError, match="is not the file of the lock"):
        get(replace(locked(made), size=0, sha256="0" * 64), PipSettings(index_url=stub.url), tmp_path)
    assert leftovers(tmp_path) == []


def test_cut_connections_are_resumed(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0", payload=BIG)
    stub.add(made)
    stub.cut, stub.cuts = 100_000, 2
    assert get(locked(made), PipSettings(index_url=stub.url), tmp_path).read_bytes() == made[1]
    assert stub.ranges_seen == ["bytes=100000-", "bytes=200000-"]


def test_server_without_ranges(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0", payload=BIG)
    stub.add(made)
    stub.ranges = False
    stub.cut, stub.cuts = 100_000, 1
    assert get(locked(made), PipSettings(index_url=stub.url), tmp_path).read_bytes() == made[1]


def test_part_of_another_file_does_no_harm(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0", payload=BIG)
    stub.add(made)
    path = store_path(locked(made), tmp_path)
    path.parent.mkdir(parents=True)
    for rest in (b"rubbish", b"x" * (len(made[1]) + 5), b"y" * len(made[1])):
        path.with_name(path.name + ".part").write_bytes(rest)
        assert get(locked(made), PipSettings(index_url=stub.url), tmp_path).read_bytes() == made[1]
        path.unlink()


def test_passing_server_errors_are_retried(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0")
    stub.add(made)
    stub.failures = 3
    assert get(locked(made), PipSettings(index_url=stub.url), tmp_path).is_file()
    stub.failures = 99
    stub.add(make_wheel("a", "2.0"))
    with pytest.raises(NetworkError, match=r"a 2.0: a-2.0-py3-none-any.whl.*HTTP 502"):
        get(locked(make_wheel("a", "2.0")), PipSettings(index_url=stub.url), tmp_path)


def test_silent_server_is_given_up(stub: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SILENCE", 0.3)
    made = make_wheel("a", "1.0", payload=BIG)
    stub.add(made)
    stub.slow = 5.0
    start = time.monotonic()
    with pytest.raises(NetworkError, match=stub.host):
        fetch([locked(made)], {}, downloads(PipSettings(index_url=stub.url), tmp_path), lambda *_: None)
    assert time.monotonic() - start < 4


@pytest.mark.parametrize("hashes", [True, False])
def test_wrong_hash_names_package_file_and_both_hashes(stub: StubIndex, tmp_path: Path, *, hashes: bool) -> None:
    made = make_wheel("a", "1.0")
    stub.add(made)
    stub.hashes = hashes
    package = locked(made)
    wrong = LockedPackage(**{**package.__dict__, "sha256": "0" * 64})
    with pytest.raises(FindingsError) as caught:
        get(wrong, PipSettings(index_url=stub.url), tmp_path)
    text = str(caught.value)
    assert all(word in text for word in ("a 1.0", "a-1.0-py3-none-any.whl", "0" * 64, package.sha256, "index default"))
    assert leftovers(tmp_path) == []


def test_wrong_size(stub: StubIndex, tmp_path: Path) -> None:
    file, data = make_wheel("a", "1.0")
    stub.add((file, data))
    stub.hashes = False
    for other in (data + b"x", data[:-1]):
        stub.body[file] = other
        with pytest.raises((FindingsError, NetworkError), match=f"{len(data)}|bytes"):
            get(locked((file, data)), PipSettings(index_url=stub.url), tmp_path)
        assert not store_path(locked((file, data)), tmp_path).exists()


def test_file_that_no_index_has_names_the_places(stub: StubIndex, tmp_path: Path) -> None:
    stub.add(make_wheel("a", "2.0"))
    (tmp_path / "links").mkdir()
    settings = PipSettings(index_url=f"http://me:s3cret@{stub.host}/simple", find_links=(str(tmp_path / "links"),))
    with pytest.raises(NetworkError) as caught:
        get(locked(make_wheel("a", "1.0")), settings, tmp_path / "c")
    text = str(caught.value)
    assert all(word in text for word in ("a 1.0", "a-1.0-py3-none-any.whl", "index default", "find-links", stub.host))
    assert "s3cret" not in text


def test_local_files_come_first_and_a_wrong_one_is_passed_over(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0")
    stub.add(made)
    links = tmp_path / "links"
    links.mkdir()
    settings = PipSettings(index_url=stub.url, find_links=(str(links),))
    (links / made[0]).write_bytes(make_wheel("a", "1.0", payload=b"other")[1])
    assert get(locked(made), settings, tmp_path / "c1").read_bytes() == made[1]
    (links / made[0]).write_bytes(made[1])
    before = len(stub.seen)
    assert get(locked(made), settings, tmp_path / "c2").read_bytes() == made[1]
    assert len(stub.seen) == before


def test_a_wheel_that_cannot_be_had_names_the_mirror_of_its_index_and_the_wheelhouse(tmp_path: Path) -> None:
    """quickstart for arm64, where PyTorch's index is not reached."""
    cpu = Index(urls=("http://127.0.0.1:9/whl/cpu",), public_pages=("https://mirror.example/cpu",))
    with pytest.raises(NetworkError) as caught:
        get(locked(make_wheel("torch", "2.13.0+cpu"), "cpu"), PipSettings(), tmp_path, cpu=cpu)
    assert 'export CANNERY_MIRROR_PAGES="cpu=https://mirror.example/cpu"' in caught.value.hint
    assert "WHEELHOUSE" in caught.value.hint


def test_bound_index_and_its_mirrors(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("torch", "2.13.0+cpu")
    with StubIndex() as other:
        stub.add(made)
        other.status = 502
        cpu = Index(urls=(other.url, stub.url))
        package = locked(made, "cpu")
        # The main index is not asked for a bound package.
        settings = PipSettings(index_url="http://127.0.0.1:9/simple")
        assert get(package, settings, tmp_path, cpu=cpu).read_bytes() == made[1]


def test_incomplete_lock_is_refused_before_anything_is_fetched(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0")
    stub.add(made)
    torch = LockedPackage("torch", "2.13.0+cpu", "", "", 0, "pytorch-cpu", ())
    with pytest.raises(FindingsError, match=r"torch 2.13.0\+cpu \(index pytorch-cpu\)"):
        fetch([locked(made), torch], {}, downloads(PipSettings(index_url=stub.url), tmp_path), lambda *_: None)
    assert stub.seen == []


def test_store_that_cannot_be_written(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0")
    stub.add(made)
    (tmp_path / "wheels").write_text("a file in the way")
    with pytest.raises(UnableError) as caught:
        get(locked(made), PipSettings(index_url=stub.url), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/wheels")
    assert "cannot be written: " in caught.value.what
    assert "Errno" not in str(caught.value)
    assert "move it away" in caught.value.hint


def test_a_full_disk_says_what_to_do(stub: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_wheel("a", "1.0")
    stub.add(made)

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UnableError) as caught:
        get(locked(made), PipSettings(index_url=stub.url), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/wheels: cannot be written: no space left on device\n"
        "  → free some disk space, then run the same command again"
    )


def _fetch_in_child(package: LockedPackage, url: str, cache: Path) -> None:
    get(package, PipSettings(index_url=url), cache)


def test_two_processes_share_a_store(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0", payload=BIG)
    stub.add(made)
    stub.slow = 0.02
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_fetch_in_child, args=(locked(made), stub.url, tmp_path)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert store_path(locked(made), tmp_path).read_bytes() == made[1]
    assert sum(path.startswith("/files/") for path in stub.seen) == 1


def test_interrupt_leaves_a_part_and_a_rerun_goes_on(stub: StubIndex, tmp_path: Path) -> None:
    made = make_wheel("a", "1.0", payload=BIG)
    stub.add(made)
    stub.slow = 0.2
    package = locked(made)
    code = (
        "import sys; from pathlib import Path; from cannery.lock.lock import LockedPackage as L\n"
        "from cannery.util.io.pip_settings import PipSettings; from cannery.lock.io.wheelhouse import fetch\n"
        "from cannery.util.io.pip_settings import Downloads\n"
        f"downloads = Downloads(Path({str(tmp_path)!r}), print, lambda: PipSettings(index_url={stub.url!r}))\n"
        f"fetch([{package!r}], {{}}, downloads, lambda *_: None)\n"
    ).replace("LockedPackage(", "L(")
    root = Path(__file__).parents[2]
    child = subprocess.Popen([sys.executable, "-c", code], cwd=root, stderr=subprocess.PIPE)
    part = store_path(package, tmp_path).with_name(package.file + ".part")
    limit = time.monotonic() + 20
    while not (part.exists() and part.stat().st_size) and time.monotonic() < limit:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    start = time.monotonic()
    _out, err = child.communicate(timeout=20)
    assert time.monotonic() - start < 15
    assert b"KeyboardInterrupt" in err
    assert leftovers(tmp_path) == [part.name]
    assert not store_path(package, tmp_path).exists()
    stub.slow = 0.0
    assert get(package, PipSettings(index_url=stub.url), tmp_path).read_bytes() == made[1]
    assert len(stub.ranges_seen) == 1


def test_no_thread_is_left_behind(stub: StubIndex, tmp_path: Path) -> None:
    made = [make_wheel(f"p{number}", "1.0") for number in range(20)]
    for one in made:
        stub.add(one)
    fetch([locked(one) for one in made], {}, downloads(PipSettings(index_url=stub.url), tmp_path), lambda *_: None)
    limit = time.monotonic() + 5
    while any("(run)" in t.name for t in threading.enumerate()) and time.monotonic() < limit:
        time.sleep(0.02)
    assert not [t for t in threading.enumerate() if "(run)" in t.name]
