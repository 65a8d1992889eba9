"""Push, pull, save and load against an engine that is silent, breaks off, or tells of failures in its stream."""

from __future__ import annotations

import base64
import io
import json
import re
import socket
import tarfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import docker
import pytest
from fake_daemon import Answer, FakeDaemon, events, message

from cannery.build.io.transfer_view import BarView, transfer
from cannery.context import Context
from cannery.engine.io.client import StreamError, loading, told
from cannery.engine.io.engine_stream import load, pull, push, save
from cannery.engine.io.inspect import engine_info, find_image, plain_registries, platform_parameter
from cannery.engine.stream import StreamState, Trouble, apply_line
from cannery.errors import ExitCode, FindingsError, NetworkError, UnableError
from cannery.ship.io.archive import packer, whole_file, write_tar
from cannery.ship.io.registry import Place, again, place_of, published
from cannery.vocab import Arch

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

    def state(self, state: StreamState) -> None:
        self.states.append(state)

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
    with pytest.raises(StreamError) as caught:
        pushed(client)
    assert words in caught.value.message


def test_pull_and_load_tell_of_errors_too(daemon: FakeDaemon, client: docker.DockerClient) -> None:
    daemon.answers["POST /images/create"] = [
        events({"errorDetail": {"message": "no matching manifest for linux/arm64"}}),
        events({"status": "Downloading", "id": "a"}),
        events({"status": f"Digest: {DIGEST}"}),
    ]
    with pytest.raises(StreamError) as caught:
        pull(client, REFERENCE, "linux/arm64", "me", View())
    assert caught.value.trouble is Trouble.PLATFORM
    with pytest.raises(StreamError):
        pull(client, REFERENCE, "linux/arm64", "me", View())
    assert pull(client, REFERENCE, "linux/arm64", "me", View()).digest == DIGEST
    assert "platform=linux%2Farm64" in daemon.seen[-1][1]
    daemon.answers["POST /images/load"] = [events({"errorDetail": {"message": "invalid tar header"}}), events({})]
    for _ in range(2):  # the second says nothing at all
        with pytest.raises(StreamError) as caught:
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
    with path.open("wb") as out, save(client, ["a:1"], {}) as blocks:
        out.writelines(blocks)
    assert path.stat().st_size == 2048


def test_an_engine_that_goes_away(daemon: FakeDaemon, client: docker.DockerClient) -> None:
    daemon.answers[PUSH] = [events({"status": "Pushing", "id": "a"}, cut=True)]
    with pytest.raises(UnableError, match="the engine went away"):
        pushed(client)
    daemon.answers["GET /images/get"] = [Answer([b"x" * 100], cut=True)]
    with pytest.raises(UnableError, match="the engine went away"), save(client, ["a"], {}) as blocks:
        list(blocks)


def tar_bytes() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("x"))
    return out.getvalue()


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (b'{"errorDetail": {"message": "layer is gone"}}', "layer is gone"),
        (b"x" * 2000, "broke off"),
        (b"", "its archive has no end"),
    ],
)
def test_a_saved_archive_that_ends_in_an_error_is_none(tmp_path: Path, tail: bytes, words: str) -> None:
    path = tmp_path / "x.tar"
    blocks = [tar_bytes()[:600], tail]
    with (
        pytest.raises(UnableError, match=words),
        whole_file(path, lambda _: pytest.fail("it was called whole")) as part,
    ):
        write_tar(part, blocks, packer(path), lambda _: None)
    assert list(tmp_path.iterdir()) == []


class Clock:
    def __init__(self) -> None:
        self.waits: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


def place(client: docker.DockerClient, tmp_path: Path, host: str = "registry.example") -> Place:
    context = Context(tmp_path, tmp_path / "cache", {"HOME": str(tmp_path)}, Arch.AMD64, is_terminal=False)
    return place_of(context, client, f"{host}/team/stack:1", frozenset())


def test_what_may_pass_is_tried_again_with_longer_waits(
    daemon: FakeDaemon, client: docker.DockerClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flaky = events({"errorDetail": {"message": "connection reset by peer"}})
    daemon.answers[PUSH] = [flaky, flaky, events(PUSHED)]
    clock = Clock()
    state = again(lambda: pushed(client), "push", place(client, tmp_path), waits=(1.0, 2.0, 4.0), sleep=clock)
    assert (state.digest, clock.waits) == (DIGEST, [1.0, 2.0])
    assert "push: connection reset by peer; again in 2 s" in capsys.readouterr().err


def test_after_the_last_wait_it_is_an_error(daemon: FakeDaemon, client: docker.DockerClient, tmp_path: Path) -> None:
    daemon.answers[PUSH] = [events({"errorDetail": {"message": "EOF"}})]
    clock = Clock()
    with pytest.raises(StreamError, match="EOF"):
        again(lambda: pushed(client), "push", place(client, tmp_path), waits=(1.0, 2.0), sleep=clock)
    assert (len(daemon.paths("POST")), clock.waits) == (3, [1.0, 2.0])


def test_as_long_as_it_gets_further_it_goes_on(daemon: FakeDaemon, client: docker.DockerClient, tmp_path: Path) -> None:
    lost = {"errorDetail": {"message": "EOF"}}
    layers = [{"status": "Pushed", "id": f"l{n}"} for n in range(4)]
    daemon.answers[PUSH] = [
        *(events(*layers[:n], lost) for n in (0, 1, 1, 2, 3, 3)),
        events(*layers, PUSHED),
    ]
    clock, view = Clock(), View()
    state = again(
        lambda: pushed(client, view),
        "push",
        place(client, tmp_path),
        done=lambda: max((state.counts[0] for state in view.states), default=0),
        waits=(1.0, 2.0),
        sleep=clock,
    )
    assert (state.digest, clock.waits) == (DIGEST, [1.0, 1.0, 2.0, 1.0, 1.0, 2.0])


def test_a_registry_with_trouble_of_its_own_is_said() -> None:
    error = told(StreamError("received unexpected HTTP status: 500 Internal Server Error"), "push", REFERENCE, str)
    assert "full disk" in error.hint


def test_a_wrong_password_is_not_tried_again(daemon: FakeDaemon, client: docker.DockerClient, tmp_path: Path) -> None:
    daemon.answers[PUSH] = [events({"errorDetail": {"message": "unauthorized: authentication required"}})]
    with pytest.raises(StreamError) as caught:
        again(lambda: pushed(client), "push", place(client, tmp_path), sleep=lambda _: pytest.fail("it waited"))
    assert len(daemon.paths("POST")) == 1
    error = told(caught.value, "push", REFERENCE, str)
    assert (error.code, "docker login" in error.hint) == (ExitCode.NETWORK, True)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("unauthorized", NetworkError),
        ("no space left on device", UnableError),
        ("EOF", NetworkError),
        ("no matching manifest for linux/arm64", NetworkError),
        ("invalid diffID for layer 1", FindingsError),
    ],
)
def test_kinds_of_errors(text: str, kind: type[Exception]) -> None:
    assert type(told(StreamError(text), "push", REFERENCE, str)) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [("unexpected EOF", FindingsError), ("no space left on device", UnableError), ("permission denied", UnableError)],
)
def test_kinds_of_errors_of_a_load(text: str, kind: type[Exception]) -> None:
    assert type(loading(StreamError(text), "x.tar", str)) is kind


def test_secrets_in_what_an_engine_tells_are_masked() -> None:
    error = told(
        StreamError("proxy http://me:s3cret@proxy.example says no"), "push", "x", lambda t: t.replace("s3cret", "*")
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
def test_a_foreign_platform_is_told_where_an_engine_can_be_told(
    client: docker.DockerClient, info: dict[str, Any], api: str, arch: str, wanted: dict[str, str]
) -> None:
    client.api._version = api
    assert platform_parameter(client, info, arch, (1, 48)) == wanted


def test_what_an_engine_says_of_images_and_itself(daemon: FakeDaemon, client: docker.DockerClient) -> None:
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


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_the_engine_is_asked_where_this_host_reaches_no_registry(
    daemon: FakeDaemon, client: docker.DockerClient, tmp_path: Path
) -> None:
    host = f"127.0.0.1:{closed_port()}"
    reference = f"{host}/team/stack:1"
    found = {
        "Descriptor": {"digest": DIGEST, "mediaType": "m"},
        "Platforms": [{"os": "linux", "architecture": "arm64"}],
    }
    daemon.answers[f"GET /distribution/{host}/team/stack:1/json"] = [
        Answer([json.dumps(found).encode()]),
        message("manifest unknown", 404),
        message("unauthorized: authentication required", 401),
        message("dial tcp: connection refused", 500),
    ]
    here = place(client, tmp_path, host)
    there = published(here, reference)
    assert there is not None
    assert (there.digest, [entry.arch for entry in there.entries]) == (DIGEST, ["arm64"])
    assert base64.urlsafe_b64decode(daemon.seen[-1][2]["X-Registry-Auth"]) == b"{}"
    assert published(here, reference) is None
    with pytest.raises(NetworkError, match="no login for it"):
        published(here, reference)
    with pytest.raises(NetworkError, match="connection refused; to the engine: dial tcp"):
        published(here, reference)


@pytest.mark.parametrize("columns", [80, 120])
def test_bars_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = io.StringIO()
    with transfer("pushing x", 0, said, is_terminal=True) as view:
        assert isinstance(view, BarView)
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
