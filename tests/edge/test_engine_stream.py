"""Push, pull, save and load against an engine that is silent, breaks off, or tells of failures in its stream."""

from __future__ import annotations

import io
import json
import re
import socket
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import docker
import pytest
from fake_daemon import Answer, FakeDaemon, events, message

from cannery.build.io.transfer_view import transfer
from cannery.engine.io.client import OCI_REFUSED, EngineError, load, load_error, pull, push, registry_error, save
from cannery.engine.io.inspect import (
    engine_info,
    find_image,
    plain_registries,
    platform_parameter,
)
from cannery.engine.io.registry import Access, Login
from cannery.engine.stream import ENGINE_PROXY, StreamState, Trouble, apply_line
from cannery.errors import ExitCode, FindingsError, NetworkError, UnableError
from cannery.host.io.place import EnginePlace
from cannery.ship.io.registry import Dock, _transfer, published
from cannery.util.io import waiting
from cannery.util.io.pip_settings import PipSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIGEST = f"sha256:{'1' * 64}"
REFERENCE = "registry.example/team/stack:1"
PUSH = "POST /images/registry.example/team/stack/push"
PUSHED = {"aux": {"Tag": "1", "Digest": DIGEST, "Size": 7}}


class View:
    """Only remembers."""

    def __init__(self) -> None:
        self.states: list[StreamState] = []
        self.counts: list[int] = []
        self.done = 0

    def state(self, state: StreamState) -> None:
        self.states.append(state)
        self.done = max(self.done, state.counts[0])

    def moved(self, count: int) -> None:
        self.counts.append(count)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "none"))
    with FakeDaemon(tmp_path / "docker.sock") as found:
        yield found


@pytest.fixture
def client(daemon: FakeDaemon) -> Iterator[docker.DockerClient]:
    # As impatient as the SDK's own clients would be after a minute.
    found = docker.DockerClient(base_url=daemon.host, timeout=1)
    yield found
    found.close()


def pushed(client: docker.DockerClient, view: View | None = None) -> StreamState:
    return push(client, REFERENCE, "me", view or View(), {})


def test_a_push_hands_over_the_login_and_gives_the_digest(daemon: FakeDaemon, client: docker.DockerClient) -> None:
    daemon.answers[PUSH] = [
        events({"status": "Pushing", "progressDetail": {"current": 1, "total": 4}, "id": "a"}, PUSHED)
    ]
    view = View()
    assert pushed(client, view).digest == DIGEST
    assert view.states[0].moved == (1, 4)
    _, path, headers, _ = daemon.seen[-1]
    assert path.endswith("push?tag=1")
    assert headers["X-Registry-Auth"] == "me"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (events({"errorDetail": {"message": "denied: no"}, "error": "denied: no"}), "denied: no"),
        (events({"error": "denied: no"}, PUSHED), "denied: no"),
        (events({"error": "denied: no"}, cut=True), "denied: no"),
        (events({"status": "Pushing", "id": "a"}), "before it named a digest"),
        (message("no such image", 404), "no such image"),
        (Answer([b"<html>"], 502), "<html>"),
        (Answer([b"not json\r\n"]), "broken"),
    ],
)
def test_an_error_in_the_stream_is_one(
    daemon: FakeDaemon, client: docker.DockerClient, answer: Answer, words: str
) -> None:
    daemon.answers[PUSH] = [answer]
    with pytest.raises(EngineError) as caught:
        pushed(client)
    assert words in caught.value.message


def test_pull_and_load_report_errors_too(daemon: FakeDaemon, client: docker.DockerClient) -> None:
    daemon.answers["POST /images/create"] = [
        events({"errorDetail": {"message": "no matching manifest for linux/arm64"}}),
        events({"status": "Downloading", "id": "a"}),
        events({"status": f"Digest: {DIGEST}"}),
    ]
    with pytest.raises(EngineError) as caught:
        pull(client, REFERENCE, "linux/arm64", "me", View())
    assert caught.value.trouble is Trouble.REFUSED
    with pytest.raises(EngineError):
        pull(client, REFERENCE, "linux/arm64", "me", View())
    assert pull(client, REFERENCE, "linux/arm64", "me", View()).digest == DIGEST
    assert "platform=linux%2Farm64" in daemon.seen[-1][1]
    daemon.answers["POST /images/load"] = [events({"errorDetail": {"message": "invalid tar header"}}), events({})]
    for _ in range(2):  # the second says nothing at all
        with pytest.raises(EngineError) as caught:
            load(client, [b"x"], View())
        assert caught.value.trouble is Trouble.ARCHIVE


def test_silence_beyond_the_sdks_patience(
    daemon: FakeDaemon, client: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK would give up after its time-out: here 1 s in the place of 60."""
    daemon.answers[PUSH] = [events({"status": "Pushing", "id": "a"}, 1.3, PUSHED)]
    daemon.answers["POST /images/load"] = [events(1.3, {"stream": "Loaded image: a:1\n"})]
    daemon.answers["GET /images/get"] = [Answer([1.3, bytes(2048)])]
    said = io.StringIO()
    monkeypatch.setattr("cannery.build.io.transfer_view.HEARTBEAT", 0.4)
    with transfer("pushing", 0, said, is_terminal=False) as view:
        assert pushed(client, view).digest == DIGEST  # type: ignore[arg-type] # it shows what it is told
    lines = said.getvalue().splitlines()
    assert len(lines) >= 3
    assert "0 of 1 layers" in lines[-1]
    assert load(client, [b"x" * 10, b"y"], View()).loaded == ("a:1",)
    assert daemon.seen[-1][3] == 11
    path = tmp_path / "x.tar"
    with path.open("wb") as out, save(client, ["a:1"], {}, View()) as blocks:
        out.writelines(blocks)
    assert path.stat().st_size == 2048


def test_an_engine_that_goes_away(daemon: FakeDaemon, client: docker.DockerClient) -> None:
    daemon.answers[PUSH] = [events({"status": "Pushing", "id": "a"}, cut=True)]
    with pytest.raises(UnableError, match="the connection to the engine was lost"):
        pushed(client)
    daemon.answers["GET /images/get"] = [Answer([b"x" * 100], cut=True)]
    with (
        pytest.raises(UnableError, match="the connection to the engine was lost"),
        save(client, ["a"], {}, View()) as blocks,
    ):
        list(blocks)


@dataclass
class Pushing:
    """Pushes of a plan to a registry, with the waits between them and the lines for the user."""

    client: docker.DockerClient
    host: str = "registry.example"
    waits: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    shown: View = field(default_factory=View)

    @property
    def dock(self) -> Dock:
        target = SimpleNamespace(arch="arm64")
        plan: Any = SimpleNamespace(reference="stack:1", recipe=SimpleNamespace(target=target))
        access = Access(PipSettings(), lambda _: Login())
        place = EnginePlace(SimpleNamespace(), self.client, {})  # type: ignore[arg-type] # not asked for
        return Dock(place, plan, f"{self.host}/team", access, self.said.append, lambda *_: nullcontext(self.shown))

    def __call__(self) -> None:
        _transfer(self.dock, "push", REFERENCE, lambda view: push(self.client, REFERENCE, "me", view, {}))


@pytest.fixture
def pushing(client: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> Pushing:
    found = Pushing(client)
    monkeypatch.setattr(waiting, "WAITS", (1.0, 2.0))
    monkeypatch.setattr(waiting, "time", SimpleNamespace(sleep=found.waits.append))
    return found


def test_what_may_pass_is_retried_with_longer_waits(daemon: FakeDaemon, pushing: Pushing) -> None:
    flaky = events({"errorDetail": {"message": "connection reset by peer"}})
    daemon.answers[PUSH] = [flaky, flaky, events(PUSHED)]
    pushing()
    assert pushing.waits == [1.0, 2.0]
    assert "connection reset by peer; retry in 2 s" in pushing.said[-1]


def test_after_the_last_wait_it_is_an_error(daemon: FakeDaemon, pushing: Pushing) -> None:
    daemon.answers[PUSH] = [events({"errorDetail": {"message": "EOF"}})]
    with pytest.raises(NetworkError, match="EOF"):
        pushing()
    assert (len(daemon.paths("POST")), pushing.waits) == (3, [1.0, 2.0])


def test_as_long_as_it_gets_further_it_goes_on(daemon: FakeDaemon, pushing: Pushing) -> None:
    lost = {"errorDetail": {"message": "EOF"}}
    layers = [{"status": "Pushed", "id": f"l{n}"} for n in range(4)]
    daemon.answers[PUSH] = [
        *(events(*layers[:n], lost) for n in (0, 1, 1, 2, 3, 3)),
        events(*layers, PUSHED),
    ]
    pushing()
    assert pushing.waits == [1.0, 1.0, 2.0, 1.0, 1.0, 2.0]


def test_a_wrong_password_is_not_retried(daemon: FakeDaemon, pushing: Pushing) -> None:
    daemon.answers[PUSH] = [events({"errorDetail": {"message": "unauthorized: authentication required"}})]
    with pytest.raises(NetworkError) as caught:
        pushing()
    assert (len(daemon.paths("POST")), pushing.waits) == (1, [])
    assert (caught.value.code, "docker login" in caught.value.hint) == (ExitCode.NETWORK, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("received unexpected HTTP status: 500 Internal Server Error", "full disk"),
        ("received unexpected HTTP status: 507 Insufficient Storage", "full disk"),
        ("toomanyrequests: You have reached your unauthenticated pull rate limit", "wait a while"),
        ("filesystem layer verification failed for digest sha256:1", "push --force"),
        ("unexpected commit digest sha256:1, expected sha256:2: failed precondition", "push --force"),
        ("failed to copy: r/x@sha256:1: not found: unknown", "push --force"),
    ],
)
def test_trouble_of_the_registry_has_its_own_next_step(text: str, words: str) -> None:
    error = registry_error(EngineError(text), "pull", REFERENCE, str)
    assert (type(error), words in error.hint) == (NetworkError, True)
    assert "docker login" not in error.hint


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("unauthorized", NetworkError),
        ("no space left on device", UnableError),
        ("EOF", NetworkError),
        ("no matching manifest for linux/arm64", NetworkError),
    ],
)
def test_kinds_of_errors(text: str, kind: type[Exception]) -> None:
    assert type(registry_error(EngineError(text), "push", REFERENCE, str)) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [("unexpected EOF", FindingsError), ("no space left on device", UnableError), ("permission denied", UnableError)],
)
def test_kinds_of_errors_of_a_load(text: str, kind: type[Exception]) -> None:
    assert type(load_error(EngineError(text), "x.tar", str)) is kind


def test_secrets_in_messages_of_an_engine_are_masked() -> None:
    error = registry_error(
        EngineError("proxy http://me:s3cret@proxy.example says no"), "push", "x", lambda t: t.replace("s3cret", "*")
    )
    assert "s3cret" not in str(error)


CONTAINERD = {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]], "Architecture": "x86_64"}


@pytest.mark.parametrize(
    ("info", "api", "arch", "wanted"),
    [
        ({"DriverStatus": [["Backing Filesystem", "extfs"]]}, "1.45", "arm64", {}),
        (CONTAINERD, "1.45", "amd64", {}),
        (CONTAINERD, "1.48", "arm64", {"platform": '{"os": "linux", "architecture": "arm64"}'}),
        (CONTAINERD, "1.45", "arm64", {}),
    ],
)
def test_a_foreign_platform_is_named_where_an_engine_takes_it(
    daemon: FakeDaemon, client: docker.DockerClient, info: dict[str, Any], api: str, arch: str, wanted: dict[str, str]
) -> None:
    daemon.answers["GET /info"] = [Answer([json.dumps(info).encode()])]
    client.api._version = api
    assert platform_parameter(client, arch, (1, 48)) == wanted


def test_images_and_info_of_an_engine(daemon: FakeDaemon, client: docker.DockerClient) -> None:
    value = {
        "Id": DIGEST,
        "Architecture": "arm64",
        "Size": 7,
        "RootFS": {"Layers": [DIGEST]},
        "Config": {"Labels": {"a": "b"}},
        "RepoDigests": None,
        "RepoTags": ["a:1"],
    }
    daemon.answers["GET /images/a:1/json"] = [Answer([json.dumps(value).encode()])]
    found = find_image(client, "a:1")
    assert found is not None
    assert (found.id, found.platform, found.layers, found.labels) == (DIGEST, "linux/arm64", (DIGEST,), {"a": "b"})
    assert find_image(client, "b:1") is None
    indexes = {"plain.example:5000": {"Secure": False}, "docker.io": {"Secure": True}}
    daemon.answers["GET /info"] = [Answer([json.dumps({"RegistryConfig": {"IndexConfigs": indexes}}).encode()])]
    assert plain_registries(engine_info(client)) == {"plain.example:5000"}


def test_a_registry_that_this_host_does_not_reach_is_not_asked_by_the_engine(
    daemon: FakeDaemon, client: docker.DockerClient
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        here = Pushing(client, f"127.0.0.1:{closed.getsockname()[1]}").dock
        with pytest.raises(NetworkError) as caught:
            published(here, here.reference)
    assert (caught.value.where, "https_proxy" in caught.value.hint) == (here.host, True)
    assert not any("distribution" in path for path in daemon.paths("GET"))


@pytest.mark.parametrize("columns", [80, 120])
def test_bars_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = io.StringIO()
    with transfer("pushing x", 0, said, is_terminal=True) as view:
        for n in range(20):
            layers = {f"l{i}": {"current": n, "total": 20} for i in range(12)}
            state = StreamState()
            for name, detail in layers.items():
                state = apply_line(
                    state, json.dumps({"status": "Pushing", "id": name, "progressDetail": detail}).encode()
                )
            view.state(state)
        view.moved(20)
    assert "pushing x" in said.getvalue()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.getvalue()).splitlines()
    assert all(len(line) <= columns for line in lines)


def test_plain_lines_say_when_it_is_not_done() -> None:
    said = io.StringIO()
    with suppress(KeyError), transfer("loading x", 2_000_000, said, is_terminal=False) as view:
        view.moved(1_000_000)
        raise KeyError
    first, last = said.getvalue().splitlines()
    assert first == "loading x (2.0 MB)"
    assert last.startswith("loading x: not done, 1.0 MB of 2.0 MB (")
    assert "\x1b" not in said.getvalue()


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("400 Invalid image, fail to parse 'manifest.json'", OCI_REFUSED),
        ("manifest invalid: OCI", OCI_REFUSED),
        ("dial tcp: lookup registry.example: no such host", ENGINE_PROXY),
    ],
)
def test_a_push_that_no_retry_helps_names_what_does(message: str, hint: str) -> None:
    error = EngineError(message)
    assert not error.may_pass
    assert registry_error(error, "push", "r.example/x:1", str).hint == hint
