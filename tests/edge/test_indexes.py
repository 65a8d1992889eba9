"""Listing files, and telling index troubles apart within a limit."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest
from stub_index import StubIndex, make_sdist, make_wheel

from cannery.core.catalog import Index
from cannery.edge.indexes import State, ask, ask_all, probe
from cannery.edge.pipconf import PipSettings
from cannery.edge.places import Place, as_url, extra_places
from cannery.edge.session import HostSession

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = PipSettings()


@pytest.fixture
def stub() -> Iterator[StubIndex]:
    with StubIndex() as index:
        index.add(make_wheel("my-thing", "1.0+cpu"))
        index.add(make_sdist("my-thing", "0.9"))
        yield index


def place(url: str, *, links: bool = False) -> Place:
    return Place("default", "index default", url, links)


@pytest.mark.parametrize("json", [True, False])
def test_json_and_html_pages(stub: StubIndex, *, json: bool) -> None:
    stub.json = json
    answer = ask(place(stub.url), "My_Thing", HostSession(SETTINGS), 5)
    assert answer.state is State.OK
    wheel, sdist = sorted(answer.files, key=lambda file: file.file.endswith(".gz"))
    assert (wheel.name, wheel.version, wheel.file) == ("my-thing", "1.0+cpu", "my_thing-1.0+cpu-py3-none-any.whl")
    assert sdist.version == "0.9"
    assert len(wheel.sha256) == 64
    assert (answer.dated, wheel.size > 0) == (json, json)


def test_folders_and_pages_on_the_disk(tmp_path: Path) -> None:
    file, data = make_wheel("my-thing", "1.0+cpu")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / file).write_bytes(data)
    (tmp_path / "links" / "notes.txt").write_text("x")
    (tmp_path / "links" / make_wheel("my-thing-more", "2.0")[0]).write_bytes(b"")
    page = tmp_path / "simple" / "my-thing" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../links/{file.replace("+", "%2B")}">{file}</a>')
    settings = PipSettings(
        extra_index_urls=((tmp_path / "simple").as_uri(),), find_links=(str(tmp_path / "links"), str(tmp_path / "gone"))
    )
    places = extra_places(settings)
    assert len(places) == 2
    answers = ask_all([(one, "my-thing") for one in places], settings)
    for answer in answers:
        assert [(f.file, f.version, f.size, f.dated) for f in answer.files] == [(file, "1.0+cpu", len(data), False)]
    assert ask_all([(places[0], "other")], settings)[0].state is State.NOT_FOUND
    assert as_url("~/w").startswith("file:///")


def test_find_links_page(stub: StubIndex) -> None:
    stub.json = False
    answer = ask(place(stub.url + "/my-thing/", links=True), "my-thing", HostSession(SETTINGS), 5)
    assert len(answer.files) == 2


@pytest.mark.parametrize(
    ("status", "state"),
    [(401, State.DENIED), (403, State.DENIED), (404, State.NOT_FOUND), (410, State.OTHER), (502, State.SERVER)],
)
def test_http_statuses(stub: StubIndex, status: int, state: State) -> None:
    stub.status = status
    answer = ask_all([(place(f"http://u:s3cret@{stub.host}/simple"), "my-thing")], SETTINGS)[0]
    assert answer.state is state
    assert "s3cret" not in str(answer)
    assert stub.host in str(answer)


def test_other_troubles_in_parallel_within_the_limit(stub: StubIndex) -> None:
    stub.files["nothing"] = {}
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        closed_port = closed.getsockname()[1]
        closed.close()
        urls = {
            f"http://127.0.0.1:{silent.getsockname()[1]}/simple": State.TIMEOUT,
            f"http://127.0.0.1:{closed_port}/simple": State.REFUSED,
            f"https://{stub.host}/simple": State.TLS,
            "http://no-such-host.invalid/simple": State.DNS,
            stub.url: State.EMPTY,
        }
        start = time.monotonic()
        answers = ask_all([(place(url), "nothing") for url in urls], SETTINGS, timeout=1.0)
        assert time.monotonic() - start < 2.0
    assert [answer.state for answer in answers] == [*urls.values()]
    assert [answer.reached for answer in answers] == [False, False, False, False, True]


def test_a_page_that_is_no_index(stub: StubIndex) -> None:
    stub.stall = 0.0
    with StubIndex() as other:
        other.files["x"] = {"x": b""}
        other._json = lambda _project: {"some": "thing"}  # type: ignore[method-assign]
        assert ask(place(other.url), "x", HostSession(SETTINGS), 5).state is State.OTHER


def test_credentials_and_probe(stub: StubIndex) -> None:
    stub.auth = "me:s3cret"
    settings = PipSettings(index_url=f"http://me:s3cret@{stub.host}/simple")
    bound = {"cpu": Index(urls=(stub.url,))}
    answers = probe(bound, settings, {"default": "my-thing", "cpu": "my-thing"})
    # The bound index is on the same host: it gets the same credentials, as with pip.
    assert [answer.state for answer in answers] == [State.OK, State.OK]
    assert [answer.place.index for answer in answers] == ["default", "cpu"]
