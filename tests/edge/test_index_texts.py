"""What an index says reaches a terminal as text, and its troubles by their names, through the commands that ask it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from git_trees import closed_port
from small_checkout import Small, make_small
from stub_index import StubIndex, make_wheel

from cannery.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


def test_the_reason_of_a_yanked_release_cannot_clear_the_screen(small: Small) -> None:
    small.index.add(make_wheel("lib", "3.0", ["dep>=7"]))
    small.index.yanked[small.index.add(make_wheel("dep", "7.0"))] = "bad\x1b[2J\x1b[31m build"
    locked = small("lock", "stack", "--pin", "lib==3.0")
    checked = small("check", "stack", "--pin", "lib==3.0", "--json")
    assert (locked.code, checked.code) == (ExitCode.FINDINGS, ExitCode.FINDINGS)
    assert "was yanked (reason: bad" in " ".join(locked.err.split())
    assert "\x1b" not in locked.out + locked.err + checked.out + checked.err
    assert any("(reason: bad" in " ".join(finding["what"].split()) for finding in json.loads(checked.out)["findings"])


@pytest.mark.parametrize("command", ["lock", "check"])
def test_too_many_requests_are_no_missing_index(small: Small, command: str) -> None:
    small.index.status = 429
    done = small(command, "stack", "--pin", "lib==1.0")
    assert done.code == ExitCode.NETWORK
    assert "too many requests (HTTP 429; wait a while and try again)" in done.out + done.err


def test_a_dead_proxy_is_named_by_its_variable(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = closed_port().removeprefix("http://")
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple")
    monkeypatch.setenv("http_proxy", f"http://u:QZXJVQ@{closed}")
    done = small("lock", "stack", "--pin", "lib==1.0")
    assert done.code == ExitCode.NETWORK
    assert f"proxy (http://{closed}, named by http_proxy: connection refused)" in done.err
    assert "QZXJVQ" not in done.out + done.err


def test_a_page_that_is_nested_too_deeply_is_exit_7(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deep(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
            self.end_headers()
            self.wfile.write(b"[" * 200_000)

        def log_message(self, *_args: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Deep)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_address[1]}/simple")
    done = small("lock", "stack", "--pin", "lib==1.0")
    server.shutdown()
    server.server_close()
    assert done.code == ExitCode.NETWORK
    assert "its page is nested too deeply" in done.err


def test_a_date_that_hides_every_release_is_blamed_by_name(small: Small) -> None:
    small.profile().write_text(small.profile().read_text().replace("2026-06-01", "2025-06-01"))
    done = small("lock", "stack", "--arch", "amd64")
    assert done.code == ExitCode.FINDINGS
    assert "`exclude-newer`" in done.err
    assert "`exclude_newer_packages` of the profile" in done.err
    assert "images/profiles/stack.yaml" in done.err


def test_a_rewritten_lock_is_printed_by_what_has_changed(small: Small) -> None:
    first = small("lock", "stack", "--arch", "amd64")
    assert first.code == 0, first.err
    text = small.profile().read_text()
    small.index.add(make_wheel("fresh", "1.0"))
    small.index.add(make_wheel("tool", "1.0.1", ["fresh"]))
    small.profile().write_text(text.replace('{name: tool, version: "1.0"}', '{name: tool, version: "1.0.1"}'))
    done = small("lock", "stack", "--arch", "amd64")
    assert done.code == 0, done.err
    assert "\n  + fresh 1.0\n" in done.out
    assert "\n  ~ tool 1.0 → 1.0.1\n" in done.out
    assert "→" not in small("lock", "stack", "--arch", "amd64").out


def test_a_pin_by_hand_may_be_newer_than_the_date_and_what_it_asks_for_may_not(small: Small) -> None:
    done = small("check", "stack", "--pin", "lib==2.0", "--all")
    assert done.code == 0, done.out
    done = small("check", "stack", "--pin", "tool==1.5")
    assert done.code == ExitCode.FINDINGS
    assert "lets later uploads of dep count" in done.out
