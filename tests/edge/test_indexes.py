"""Listing files, and telling index troubles apart within a limit."""

from __future__ import annotations

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from stub_index import StubIndex, make_sdist, make_wheel

from cannery.errors import NetworkError
from cannery.lock.io.indexes import Answer, Asked, Place, as_url, ask, ask_all, extra_places
from cannery.lock.io.resolve import remote_size
from cannery.util.addresses import PROXY_VARIABLES, shown
from cannery.util.io.http import HostSession
from cannery.util.io.pip_settings import PipSettings
from cannery.util.trouble import State

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


def test_what_an_index_lists_of_a_file(stub: StubIndex) -> None:
    late, old = make_wheel("my-thing", "2.0"), ("my-thing-2004d.tar.gz", b"")
    file = stub.add(late, uploaded="2026-03-01T23:30:00-02:00")
    stub.add(old)  # a version that is none, as the oldest files have
    stub.yanked[file] = "broken"
    stub.pythons[file] = ">=3.12"
    stub.headers["Cache-Control"] = "max-age=600"
    (answer,) = ask_all([(place(stub.url), "my-thing")], SETTINGS)
    assert {listed.version for listed in answer.files} == {"1.0+cpu", "0.9", "2.0"}
    newest = next(listed for listed in answer.files if listed.version == "2.0")
    assert (newest.uploaded, newest.yanked, newest.requires_python) == ("2026-03-02", "broken", ">=3.12")
    assert answer.dated


def test_a_request_that_times_out_before_the_limit_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request's own time-out and the limit of all are equal: whichever comes first, the message is one."""
    late = place("http://127.0.0.1:9/simple")
    monkeypatch.setattr("cannery.lock.io.indexes.ask", lambda *_: Answer(late, "a", State.TIMEOUT))
    (answer,) = ask_all([(late, "a")], SETTINGS, 4)
    assert (answer.state, answer.detail) == (State.TIMEOUT, "no answer within 4 s")


def test_answers_are_kept_for_a_run(stub: StubIndex) -> None:
    asked = Asked()
    first = asked.ask([(place(stub.url), "my-thing"), (place(stub.url), "my-thing")], SETTINGS, 5)
    assert [answer.state for answer in first] == [State.OK, State.OK]
    stub.status = 500
    assert asked.ask([(place(stub.url), "my-thing")], SETTINGS, 5) == first[:1]
    assert asked.ask([(place(stub.url), "other")], SETTINGS, 1)[0].state is State.SERVER
    assert asked.ask([], SETTINGS, 5) == ()
    assert stub.seen.count("/simple/my-thing/") == 1


def test_a_place_that_is_lost_is_not_waited_for_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        late = place(f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        asked = Asked()
        assert asked.ask([(late, "a")], SETTINGS, 0.3)[0].state is State.TIMEOUT
        start = time.monotonic()
        (answer,) = asked.ask([(late, "b")], SETTINGS, 5)
    assert time.monotonic() - start < 4
    assert (answer.project, answer.state) == ("b", State.TIMEOUT)


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
        assert [(f.file, f.version, f.size, f.uploaded) for f in answer.files] == [(file, "1.0+cpu", len(data), "")]
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
        assert time.monotonic() - start < 4
    assert [answer.state for answer in answers] == [*urls.values()]
    assert [answer.reached for answer in answers] == [False, False, False, False, True]


def test_a_page_that_is_no_index(stub: StubIndex) -> None:
    stub.stall = 0.0
    with StubIndex() as other:
        other.files["x"] = {"x": b""}
        other._json = lambda _project: {"some": "thing"}  # type: ignore[method-assign]
        assert ask(place(other.url), "x", HostSession(SETTINGS), 5).state is State.OTHER


def test_a_time_that_no_day_in_utc_has_is_trouble_of_its_index(stub: StubIndex) -> None:
    stub.times = dict.fromkeys(stub.times, "0001-01-01T00:00:00+14:00")
    assert ask(place(stub.url), "my-thing", HostSession(SETTINGS), 5).state is State.OTHER


def test_a_bound_index_on_the_same_host_gets_the_same_credentials(stub: StubIndex) -> None:
    """As with pip."""
    stub.auth = "me:s3cret"
    settings = PipSettings(index_url=f"http://me:s3cret@{stub.host}/simple")
    assert ask_all([(place(stub.url), "my-thing")], settings)[0].state is State.OK


@pytest.fixture
def closed() -> str:
    """Host and port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXY_VARIABLES, "no_proxy", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (PipSettings(cert="/nonexist/ca.pem"), "the CA bundle /nonexist/ca.pem, named by pip's setting `cert`"),
        (PipSettings(client_cert="/nonexist/me.pem"), "the client certificate /nonexist/me.pem, named by pip's"),
    ],
)
def test_a_certificate_that_is_not_there_is_named(settings: PipSettings, words: str) -> None:
    (answer,) = ask_all([(place("https://index.example/simple"), "x")], settings)
    assert answer.state is State.TLS
    assert words in answer.detail
    assert str(answer) == f"index default (https://index.example/simple): {answer.state} ({answer.detail})"
    with pytest.raises(NetworkError, match="not there"):
        remote_size("https://index.example/x.whl", HostSession(settings), 1)


@pytest.mark.usefixtures("no_proxies")
def test_a_certificate_of_the_environment_is_named_and_only_for_https(
    monkeypatch: pytest.MonkeyPatch, stub: StubIndex
) -> None:
    monkeypatch.setenv("CURL_CA_BUNDLE", "/nonexist/ca.pem")
    answers = ask_all([(place("https://index.example/simple"), "x"), (place(stub.url), "my-thing")], SETTINGS)
    assert answers[0].detail == "the CA bundle /nonexist/ca.pem, named by CURL_CA_BUNDLE, is not there"
    assert answers[1].state is State.OK


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("prefix", ["http://", ""])
def test_a_dead_proxy_of_pip_is_named(scheme: str, prefix: str, closed: str) -> None:
    settings = PipSettings(proxy=f"{prefix}me:s3cret@{closed}")
    (answer,) = ask_all([(place(f"{scheme}://index.example/simple"), "x")], settings)
    assert answer.state is State.PROXY
    assert answer.detail.startswith(f"http://{closed}")
    assert "named by pip's setting `proxy`: connection refused" in answer.detail
    assert "s3cret" not in str(answer)


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(
    ("variable", "scheme"), [("http_proxy", "http"), ("HTTPS_PROXY", "https"), ("ALL_PROXY", "https")]
)
def test_a_dead_proxy_of_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, scheme: str, closed: str
) -> None:
    monkeypatch.setenv(variable, f"http://me:s3cret@{closed}")
    answers = ask_all([(place(f"{scheme}://index.example/simple"), "x")], SETTINGS)
    assert answers[0].state is State.PROXY
    assert f"{closed}, named by {variable}: connection refused" in answers[0].detail
    assert "s3cret" not in str(answers[0])


@pytest.mark.usefixtures("no_proxies")
def test_the_answer_of_a_proxy_is_reported(stub: StubIndex) -> None:
    stub.status = 407
    settings = PipSettings(proxy=f"http://{stub.host}")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        slow = PipSettings(proxy=f"http://127.0.0.1:{silent.getsockname()[1]}")
        (late,) = ask_all([(place("http://index.example/simple"), "x")], slow, timeout=0.5)
    (unknown,) = ask_all([(place("https://index.example/simple"), "x")], PipSettings(proxy="http://no-host.invalid:1"))
    tunnel = ask(place("https://index.example/simple"), "x", HostSession(settings), 5)
    assert late.state is State.TIMEOUT
    assert "named by pip's setting `proxy`" in late.detail
    assert (unknown.state, unknown.detail.rpartition(": ")[2]) == (State.PROXY, "host name not found")
    assert tunnel.state is State.PROXY
    assert "Tunnel connection failed: 501" in tunnel.detail


@pytest.mark.usefixtures("no_proxies")
def test_a_proxy_that_wants_a_user_is_reported(stub: StubIndex) -> None:
    """Of plain http the proxy itself answers: what it is asked for is a whole address."""
    stub.body, stub.file_status = {"": b"x"}, 407
    (answer,) = ask_all([(place("http://index.example/simple"), "x")], PipSettings(proxy=f"http://u:QZX@{stub.host}"))
    assert answer.state is State.PROXY
    assert answer.detail == (
        f"http://{stub.host}, named by pip's setting `proxy`: HTTP 407, it needs a user and a password in its address, "
        "or other ones"
    )


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(
    ("proxy", "says"),
    [
        ("http://u:QZX@[bad", "http://[bad, named by HTTPS_PROXY: its address has a host or port that cannot be read"),
        ("http://u:Q/ZX@p.example", "http://***@p.example, named by HTTPS_PROXY: its address has an @ behind a /"),
        ("ftp://u:QZX@p.example", "ftp://p.example, named by HTTPS_PROXY: its address has a scheme that is none of"),
        ("http://", "http://, named by HTTPS_PROXY: its address names no host"),
        ("u:QZX@p.example:port", "http://p.example:***, named by HTTPS_PROXY: its address has a host or port that"),
    ],
)
def test_the_address_of_a_proxy_that_is_none(monkeypatch: pytest.MonkeyPatch, proxy: str, says: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    (answer,) = ask_all([(place("https://index.example/simple"), "x")], SETTINGS)
    assert (answer.state, says in answer.detail) == (State.PROXY, True), answer
    assert "ZX" not in str(answer)


def test_too_many_requests_are_reported_and_the_index_is_not_asked_again(stub: StubIndex) -> None:
    stub.status = 429
    asked = Asked()
    (answer,) = asked.ask([(place(stub.url), "my-thing")], SETTINGS, 5)
    assert str(answer) == (f"index default ({stub.url}): too many requests (HTTP 429; wait a while and try again)")
    assert asked.ask([(place(stub.url), "other")], SETTINGS, 5)[0].state is State.BUSY
    assert stub.seen == ["/simple/my-thing/"]
    stub.headers["Retry-After"] = "30"
    assert "wait 30 s and try again" in ask(place(stub.url), "x", HostSession(SETTINGS), 5).detail


def test_a_page_that_is_nested_too_deeply_is_trouble_of_its_index() -> None:
    """And no traceback of a thread."""
    kind = "application/vnd.pypi.simple.v1+json"

    class Deep(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(b"[" * 200_000)

        def log_message(self, *_args: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Deep)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    deep = place(f"http://127.0.0.1:{server.server_address[1]}/simple")
    (answer,) = ask_all([(deep, "x")], SETTINGS)
    server.shutdown()
    server.server_close()
    assert (answer.state, answer.detail) == (State.OTHER, "its page is nested too deeply")
    assert not answer.reached


def test_a_defect_in_a_thread_is_raised_in_the_caller(stub: StubIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> None:
        raise AttributeError("ours")

    monkeypatch.setattr("cannery.lock.io.indexes.list_files", broken)
    with pytest.raises(AttributeError, match="ours"):
        ask_all([(place(stub.url), "x")], SETTINGS)


def test_an_address_that_is_none_is_trouble_and_no_defect() -> None:
    url = "http://u:QZX@[bad/simple"
    answers = ask_all([(place(url), "x")], PipSettings(index_url=url, extra_index_urls=(url,)))
    assert answers[0].state is State.OTHER
    assert "QZX" not in str(answers[0])


@pytest.mark.usefixtures("no_proxies")
def test_local_places_have_no_proxy(tmp_path: Path) -> None:
    assert HostSession(PipSettings(proxy="http://p.example:1")).proxy_words(tmp_path.as_uri()) == ""
    assert HostSession(SETTINGS).proxy_words("https://index.example") == ""


def test_a_certificate_that_does_not_fit_says_why(stub: StubIndex) -> None:
    (answer,) = ask_all([(place(f"https://{stub.host}/simple"), "x")], SETTINGS)
    assert answer.state is State.TLS
    assert answer.detail


def test_queries_stay_out_of_messages(stub: StubIndex) -> None:
    url = f"http://me:pass@{stub.host}/simple?token=s3cret"
    assert shown(url) == f"http://{stub.host}/simple?***"
    assert shown("https://index.example/simple") == "https://index.example/simple"
    stub.status = 403
    settings = PipSettings(index_url=url)
    (answer,) = ask_all([(place(url), "x")], settings)
    assert "s3cret" not in str(answer)
    assert f"http://{stub.host}/simple?***" in str(answer)
    stub.file_status = 404
    with pytest.raises(NetworkError) as caught:
        remote_size(f"http://{stub.host}/files/x.whl?sig=s3cret", HostSession(settings), 5)
    assert "s3cret" not in str(caught.value)
    assert settings.redact(f"GET {url} failed") == f"GET http://***@{stub.host}/simple?*** failed"
