"""Tarballs into the store: by hash, from the user's own folder or from the first host that has it."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from factories import archive_recipe, catalog, components, inputs
from stub_index import StubIndex

from cannery.catalog.catalog import Host
from cannery.errors import ExitCode, FindingsError, NetworkError, UnableError
from cannery.plan.make import make_plan
from cannery.sources.io.archives import archive_path, damaged_archives, fetch_archives
from cannery.util.io import retry
from cannery.util.io.downloads import Downloads
from cannery.util.io.pip_settings import PipSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cannery.catalog.catalog import Catalog
    from cannery.plan.plan import Plan

FILE = "allocator-5.3.0.tar.bz2"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.01)


@pytest.fixture
def stub() -> Iterator[StubIndex]:
    with StubIndex() as index:
        yield index


def tarball(text: bytes = b"#!/bin/sh\n") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:bz2") as archive:
        member = tarfile.TarInfo("allocator-5.3.0/configure")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return buffer.getvalue()


DATA = tarball()


def downloads(root: Path, **settings: object) -> Downloads:
    found = PipSettings(**settings)  # type: ignore[arg-type] # fields by name
    return Downloads(root / "cache", lambda text: print(text, file=sys.stderr), lambda: found)


def stocked(*hosts: str) -> Catalog:
    """A catalog whose `allocator` is DATA, published by `hosts` (addresses of their files), tried in that order."""
    names = [f"host{number}" for number, _ in enumerate(hosts)]
    value = components()["allocator"].model_dump()
    value["archives"]["5.3.0"] |= {"sha256": hashlib.sha256(DATA).hexdigest(), "size": len(DATA)}
    value["hosts"] = dict.fromkeys(names, "made-up/allocator")
    mine = type(components()["allocator"]).model_validate(value)
    known = {
        name: Host(url="https://git.example/{repository}", files=url) for name, url in zip(names, hosts, strict=True)
    }
    return catalog(components={**catalog().components, "allocator": mine}, hosts=known)


def planned(data: Catalog) -> Plan:
    recipe = archive_recipe(None, data)
    return make_plan(recipe, inputs(recipe))


def published(stub: StubIndex) -> str:
    stub.body[FILE] = DATA
    return f"http://{stub.host}/{{repository}}/rel/{{file}}"


def test_it_is_fetched_once_and_then_nothing_is_asked(
    stub: StubIndex, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = stocked(published(stub))
    plan, context = planned(data), downloads(tmp_path)
    found = fetch_archives(context, data.hosts, plan)
    assert {name: path.read_bytes() for name, path in found.items()} == {f"archives/{FILE}": DATA}
    assert found[f"archives/{FILE}"] == archive_path(plan.archives[0], context.cache)
    assert stub.seen == [f"/made-up/allocator/rel/v5/{FILE}"]
    assert f"fetching {FILE}: 0.0 MB" in capsys.readouterr().err
    assert fetch_archives(context, data.hosts, plan) == found
    assert len(stub.seen) == 1


def test_the_first_host_that_has_it_serves_and_the_others_are_named_when_none_has(
    stub: StubIndex, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = "http://127.0.0.1:9/{repository}/{file}"
    data = stocked(silent, published(stub))
    assert fetch_archives(downloads(tmp_path), data.hosts, planned(data))
    reported = capsys.readouterr().err.lower()
    assert f"{FILE} comes from http://{stub.host}/made-up" in reported
    assert f"; http://127.0.0.1:9/made-up/allocator/v5/{FILE}: connection refused" in reported
    stub.body.clear()
    with pytest.raises(NetworkError) as caught:
        fetch_archives(downloads(tmp_path / "other"), data.hosts, planned(data))
    told = str(caught.value)
    assert caught.value.code is ExitCode.NETWORK
    assert f"http://127.0.0.1:9/made-up/allocator/v5/{FILE}: connection refused" in told.lower()
    assert f"http://{stub.host}/made-up/allocator/rel/v5/{FILE}: HTTP 404" in told
    assert f"(sha256:{hashlib.sha256(DATA).hexdigest()}), and name its folder with WHEELHOUSE=" in told
    assert told.startswith("images/components/allocator.yaml: ")


@pytest.mark.parametrize("other", [tarball(b"#!/bin/sh\nexit\n"), DATA[:-1] + b"\0"])
def test_another_file_of_the_name_is_refused_with_both_hashes(stub: StubIndex, tmp_path: Path, other: bytes) -> None:
    data = stocked(published(stub))
    stub.body[FILE] = other
    with pytest.raises(FindingsError) as caught:
        fetch_archives(downloads(tmp_path), data.hosts, planned(data))
    assert hashlib.sha256(DATA).hexdigest() in str(caught.value)
    assert hashlib.sha256(other).hexdigest() in str(caught.value) or "bytes" in str(caught.value)
    assert not [*(tmp_path / "cache").rglob(FILE)]


def test_a_file_of_the_users_own_needs_no_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("wrong", b"another"), ("right", DATA)):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_bytes(content)
    links = (str(tmp_path / "wrong"), str(tmp_path / "right"), "https://never.asked/links")
    data = stocked("http://127.0.0.1:9/{repository}/{file}")
    found = fetch_archives(downloads(tmp_path, find_links=links), data.hosts, planned(data))
    assert found[f"archives/{FILE}"].read_bytes() == DATA
    said = capsys.readouterr().err
    assert f"note: {tmp_path / 'wrong' / FILE} is not the {FILE} of the catalog" in said
    assert "fetching" not in said


def test_a_host_may_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "made-up/allocator/v5").mkdir(parents=True)
    (tmp_path / "made-up/allocator/v5" / FILE).write_bytes(DATA)
    data = stocked(f"file://{tmp_path}/{{repository}}/{{file}}")
    assert fetch_archives(downloads(tmp_path), data.hosts, planned(data))[f"archives/{FILE}"].read_bytes() == DATA


def test_a_store_that_cannot_be_written_is_the_hosts_fault(tmp_path: Path) -> None:
    data = stocked("http://127.0.0.1:9/{repository}/{file}")
    context = replace(downloads(tmp_path), cache=tmp_path / "file/cache")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnableError, match=r"file/cache/.* cannot be written"):
        fetch_archives(context, data.hosts, planned(data))


def test_a_stored_file_that_the_disk_has_changed_is_removed_and_fetched_again(stub: StubIndex, tmp_path: Path) -> None:
    data = stocked(published(stub))
    plan, context = planned(data), downloads(tmp_path)
    assert damaged_archives(plan.archives, context.cache) == (), "nothing is there yet"
    (path,) = fetch_archives(context, data.hosts, plan).values()
    assert damaged_archives(plan.archives, context.cache) == ()
    path.write_bytes(DATA[:-1] + b"\0")
    assert damaged_archives(plan.archives, context.cache) == plan.archives
    (again,) = fetch_archives(context, data.hosts, plan).values()
    assert again.read_bytes() == DATA
