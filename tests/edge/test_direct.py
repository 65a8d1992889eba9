"""An index that is one wheel at a URL: fetched, hashed, locked without the URL; another file there stops the build."""

from __future__ import annotations

import dataclasses
import os
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from stub_index import StubIndex, make_wheel

from cannery.catalog.catalog import Index
from cannery.errors import FindingsError, NetworkError, UnableError
from cannery.lock.check import lock_problems
from cannery.lock.io.resolve import resolve
from cannery.lock.io.wheelhouse import fetch
from cannery.lock.lock import Lock, LockRequest
from cannery.lock.text import format_lock
from cannery.util.io.hashes import local_sha256
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE, DATA = make_wheel("triton-ascend", "3.2.0+cpu", ["dep"], "cp311-cp311-manylinux_2_28_aarch64")
OTHER = make_wheel("triton-ascend", "3.2.0+cpu", ["dep"], "cp311-cp311-manylinux_2_28_aarch64", b"another build")[1]
REQUEST = LockRequest(
    "q",
    "3.11",
    Arch.ARM64,
    ("triton-ascend==3.2.0+cpu",),
    (),
    (),
    (),
    "2026-06-01",
    (("triton-ascend", "nightly"),),
    (),
)


@pytest.fixture
def stub() -> Iterator[StubIndex]:
    """The main index, whose server has the wheel too, on no page."""
    with StubIndex() as index:
        index.add(make_wheel("dep", "1.0"))
        index.add(make_wheel("pip", "26.0"))
        index.body[FILE] = DATA
        yield index


def direct(stub: StubIndex, more: str = "", host: str = "") -> dict[str, Index]:
    return {"nightly": Index(urls=(f"http://{host or stub.host}/files/{FILE.replace('+', '%2B')}{more}",))}


def lock(stub: StubIndex, tmp_path: Path, indexes: dict[str, Index], request: LockRequest = REQUEST) -> Lock:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    settings = PipSettings(index_url=f"http://u:s3cret@{stub.host}/simple")
    return resolve(request, indexes, settings, env=env, cache=tmp_path / "cache", log=tmp_path / "log.txt")


def test_it_is_locked_by_name_hash_size_and_index(stub: StubIndex, tmp_path: Path) -> None:
    found = lock(stub, tmp_path, direct(stub))
    dep, triton = found.packages
    assert (triton.name, triton.version, triton.file, triton.index) == ("triton-ascend", "3.2.0+cpu", FILE, "nightly")
    assert (triton.sha256, triton.size) == (sha256(DATA).hexdigest(), len(DATA))
    assert (dep.index, dep.via) == ("default", ("triton-ascend",))
    text = format_lock(found)
    assert "/files/" not in text
    assert stub.host not in text
    assert lock_problems(found, REQUEST, ["nightly"]) == ()


def test_an_unpinned_package_takes_the_version_that_stands_there(stub: StubIndex, tmp_path: Path) -> None:
    request = dataclasses.replace(REQUEST, requirements=("triton-ascend",))
    assert lock(stub, tmp_path, direct(stub), request).packages[1].version == "3.2.0+cpu"


def test_what_has_not_changed_is_fetched_once(stub: StubIndex, tmp_path: Path) -> None:
    with StubIndex() as files:
        files.body[FILE] = DATA
        files.headers["ETag"] = '"1"'
        first = lock(stub, tmp_path, direct(files))
        files.cut, files.cuts = 1, 99  # whoever reads it gets one byte
        assert lock(stub, tmp_path, direct(files)) == first
        files.headers["ETag"] = '"2"'
        with pytest.raises(NetworkError) as caught:
            lock(stub, tmp_path, direct(files))
        (url,) = direct(files)["nightly"].urls
    assert caught.value.what == f"{FILE}: index nightly ({url}): connection lost"
    assert [*(tmp_path / "cache/wheels").glob(".direct-*")] == []


def test_a_file_that_a_disk_cut_off_is_fetched_again(stub: StubIndex, tmp_path: Path) -> None:
    stub.headers["ETag"] = '"1"'
    first = lock(stub, tmp_path, direct(stub))
    (path,) = (tmp_path / "cache/wheels").glob(f"*/*/{FILE}")
    path.write_bytes(DATA[:-1])
    assert lock(stub, tmp_path, direct(stub)) == first
    assert path.read_bytes() == DATA


def test_another_file_under_the_url_gives_another_lock(stub: StubIndex, tmp_path: Path) -> None:
    lock(stub, tmp_path, direct(stub))
    stub.body[FILE] = OTHER
    assert lock(stub, tmp_path, direct(stub)).packages[1].sha256 == sha256(OTHER).hexdigest()


def test_another_file_under_the_url_stops_the_build(stub: StubIndex, tmp_path: Path) -> None:
    found = lock(stub, tmp_path, direct(stub))
    settings = PipSettings(index_url=stub.url)
    paths = fetch(found.packages, direct(stub), settings, tmp_path / "other host", lambda *_: None)
    assert paths["triton-ascend"].read_bytes() == DATA
    stub.body[FILE] = OTHER
    with pytest.raises(FindingsError) as caught:
        fetch(found.packages, direct(stub), settings, tmp_path / "third host", lambda *_: None)
    text = str(caught.value)
    assert text.startswith(
        f"triton-ascend 3.2.0+cpu: {FILE} is not the file of the lock, which has sha256:{sha256(DATA).hexdigest()}"
    )
    assert "index nightly (" in text


def test_the_url_may_tell_the_hash(stub: StubIndex, tmp_path: Path) -> None:
    good = direct(stub, f"#sha256={sha256(DATA).hexdigest()}")
    assert lock(stub, tmp_path, good).packages[1].sha256 == sha256(DATA).hexdigest()
    stub.body[FILE] = OTHER
    with pytest.raises(FindingsError, match="its URL in the catalog says"):
        lock(stub, tmp_path, good)


def test_a_file_on_the_disk(stub: StubIndex, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(DATA)
    found = lock(stub, tmp_path, {"nightly": Index(urls=((tmp_path / FILE).as_uri(),))})
    assert (found.packages[1].sha256, found.packages[1].size) == (sha256(DATA).hexdigest(), len(DATA))


def test_a_file_that_is_not_there_or_not_reached(stub: StubIndex, tmp_path: Path) -> None:
    del stub.body[FILE]
    with pytest.raises(
        FindingsError, match=r"triton-ascend 3\.2\.0\+cpu: triton-ascend was not found on index nightly"
    ):
        lock(stub, tmp_path, direct(stub))
    with pytest.raises(NetworkError, match=r"index nightly, which was not reached.*connection refused"):
        lock(stub, tmp_path, direct(stub, host="127.0.0.1:9"))


def test_credentials_of_the_host_go_with_it_and_are_not_shown(stub: StubIndex, tmp_path: Path) -> None:
    stub.auth = "u:s3cret"
    assert lock(stub, tmp_path, direct(stub)).complete
    stub.auth = "u:other"
    with pytest.raises(NetworkError) as caught:
        lock(stub, tmp_path, direct(stub))
    assert "s3cret" not in str(caught.value)


def test_hashes_of_local_files_are_remembered_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(DATA)
    cache = tmp_path / "cache"
    assert local_sha256(path, cache) == sha256(DATA).hexdigest()
    (note,) = (cache / "wheels/.hashes").iterdir()
    note.write_text(note.read_text().replace(sha256(DATA).hexdigest(), "remembered"))
    assert local_sha256(path, cache) == "remembered"
    path.write_bytes(OTHER)
    assert local_sha256(path, cache) == sha256(OTHER).hexdigest()
    note.write_text("[broken")
    assert local_sha256(path, cache) == sha256(OTHER).hexdigest()


def test_a_store_that_cannot_be_written_is_this_host_s_trouble_and_not_the_index_s(
    stub: StubIndex, tmp_path: Path
) -> None:
    store = tmp_path / "cache" / "wheels"
    store.parent.mkdir()
    store.write_text("in the way")
    with pytest.raises(UnableError) as caught:
        lock(stub, tmp_path, direct(stub))
    assert str(caught.value).startswith(f"{store}: cannot be written: file exists\n  → a file is where a folder")


def test_a_disk_that_gets_full_on_the_way(stub: StubIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cannery.lock.io.direct.tempfile.mkstemp", full)
    with pytest.raises(UnableError) as caught:
        lock(stub, tmp_path, direct(stub))
    assert str(caught.value).startswith(
        f"{tmp_path}/cache/wheels: cannot be written: no space left on device\n  → free some disk space"
    )
