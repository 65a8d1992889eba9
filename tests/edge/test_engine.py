"""Which engine is taken, and what is said when none can be."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from docker.errors import DockerException

from cannery.engine.io import endpoint as engine_endpoint
from cannery.engine.io import find as engine_module
from cannery.engine.io.find import Engine, NoEngineError, docker_client, find_engine, free_disk
from cannery.engine.io.probe import Endpoint, UnreachableError, numbers, probe
from cannery.errors import ExitCode, UnableError, UsageError
from tests.edge.engine_fakes import BUILDX, VERSION, serve
from tests.edge.engine_fakes import docker_client as fake_client

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a unix socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="ce-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def no_default_engine(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own engine, if it has one, plays no part."""
    monkeypatch.setattr(engine_endpoint, "DEFAULT_SOCKET", str(short / "default.sock"))


def environment(short: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{short}/bin:/usr/bin:/bin", "HOME": str(short), **more}


def answers(short: Path, **version: object) -> dict[str, Any]:
    return {"/version": {**VERSION, **version}, "/info": {"DockerRootDir": str(short), "Driver": "overlay2"}}


def find(short: Path, **env: str) -> Engine:
    return find_engine(environment(short, **env))


@pytest.mark.parametrize(
    ("options", "user_map"),
    [
        (None, ""),
        (["name=seccomp,profile=builtin", "name=cgroupns"], ""),
        (["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"], "rootless"),
        (["name=userns"], "userns-remap"),
    ],
)
def test_an_engine_whose_containers_have_users_of_their_own(
    short: Path, options: list[str] | None, user_map: str
) -> None:
    fake_client(short / "bin", BUILDX)
    said = answers(short)
    said["/info"] |= {"SecurityOptions": options}
    with serve(short / "default.sock", said):
        assert find(short).user_map == user_map


def test_default_socket_is_used(short: Path) -> None:
    client = fake_client(short / "bin", BUILDX)
    with serve(short / "default.sock", answers(short)):
        engine = find(short)
    assert engine == Engine(
        host=f"unix://{short}/default.sock",
        docker=client,
        server_version="27.3.1",
        api_version="1.47",
        arch="arm64",
        data_root=short,
        storage_driver="overlay2",
        origin=f"{short}/default.sock",
    )
    assert free_disk(engine) == pytest.approx(shutil.disk_usage(short).free, rel=0.2)
    assert engine.command("ps", "-a") == (str(client), "ps", "-a")
    assert engine.buildx_command("bake") == (str(client), "buildx", "--builder", "default", "bake")
    assert engine.buildx_command("ls", builder="farm")[3] == "farm"


def test_docker_host_is_used_and_a_remote_disk_is_unknown(short: Path) -> None:
    fake_client(short / "bin", BUILDX)
    far = {**answers(short), "/info": {"DockerRootDir": "/nowhere/here"}}
    with serve(short / "a.sock", far), serve(short / "default.sock", answers(short, Version="1")):
        engine = find(short, DOCKER_HOST=f"unix://{short}/a.sock")
    assert engine.server_version == "27.3.1"
    assert free_disk(engine) is None


def test_named_engine_that_is_silent_is_an_error_not_another_engine(short: Path) -> None:
    fake_client(short / "bin", BUILDX)
    host = f"unix://{short}/gone.sock"
    with serve(short / "default.sock", answers(short)), pytest.raises(UnableError) as caught:
        find(short, DOCKER_HOST=host)
    assert f"DOCKER_HOST={host}" in str(caught.value)
    assert "unset" in caught.value.hint


def test_engine_that_hangs_is_reported_within_seconds(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short / "default.sock"))
        listener.listen()
        with pytest.raises(UnreachableError, match=r"no answer within 0\.2 s"):
            probe(Endpoint(f"unix://{short}/default.sock", "x"), {}, timeout=0.2)


def test_something_else_on_the_default_socket_is_not_replaced(short: Path) -> None:
    with serve(short / "default.sock", {"/version": b"hello"}), pytest.raises(UnableError, match="not Docker"):
        find(short)
    (short / "default.sock").unlink()
    with serve(short / "default.sock", {}), pytest.raises(UnableError, match="404"):
        find(short)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ({"Components": [{"Name": "Podman Engine"}], "Version": "4.3.1"}, r"Podman 4\.3\.1"),
        ({"ApiVersion": "1.38", "Version": "18.06"}, "has no BuildKit"),
        ({"ApiVersion": "1.41", "Version": "20.10.24"}, "too old"),
    ],
)
def test_engine_without_buildkit_is_refused(short: Path, version: dict[str, Any], message: str) -> None:
    fake_client(short / "bin", BUILDX)
    with serve(short / "default.sock", answers(short, **version)), pytest.raises(UnableError, match=message) as caught:
        find(short)
    assert "buildx" in caught.value.hint


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (None, "no docker client"),
        ({}, "no buildx plugin"),
        ({"buildx version": "github.com/docker/buildx v0.11.2 abc"}, r"buildx v0\.11\.2 is older"),
    ],
)
def test_client_side_that_is_missing_is_named(short: Path, client: dict[str, str] | None, message: str) -> None:
    env = {}
    if client is None:
        env = {"PATH": str(short / "nothing")}
    else:
        fake_client(short / "bin", client)
    with serve(short / "default.sock", answers(short)), pytest.raises(UnableError, match=message):
        find_engine(environment(short) | env)


def test_context_of_the_docker_settings_is_followed(short: Path) -> None:
    host = f"unix://{short}/ctx.sock"
    context = [{"Endpoints": {"docker": {"Host": host}}, "TLSMaterial": {}, "Storage": {"TLSPath": "/t"}}]
    fake_client(short / "bin", {**BUILDX, "context inspect lab": json.dumps(context)})
    (short / ".docker").mkdir()
    (short / ".docker/config.json").write_text('{"currentContext": "lab"}')
    with serve(short / "ctx.sock", answers(short)):
        engine = find(short)
        assert (engine.host, engine.builder) == (host, "lab")
    with pytest.raises(UnableError, match="docker context lab"):
        find(short)
    with pytest.raises(UnableError, match="docker context other cannot be read"):
        find(short, DOCKER_CONTEXT="other")


def test_ssh_engine_is_asked_through_the_client(short: Path) -> None:
    fake_client(
        short / "bin",
        {**BUILDX, "version --format": json.dumps(VERSION), "info --format": '{"DockerRootDir": "/var/lib/docker"}'},
    )
    engine = find(short, DOCKER_HOST="ssh://me@far.example")
    assert (engine.host, engine.arch, engine.data_root) == ("ssh://me@far.example", "arm64", None)


def test_no_engine_at_all_is_an_error_of_its_own(short: Path) -> None:
    fake_client(short / "bin", BUILDX)
    with pytest.raises(NoEngineError, match="no Docker engine is running") as caught:
        find(short)
    assert caught.value.code is ExitCode.UNABLE
    for words in ("install Docker Engine", "make engine-start"):
        assert words in caught.value.hint
    with pytest.raises(UnableError) as named:
        find(short, DOCKER_HOST=f"unix://{short}/gone.sock")
    assert not isinstance(named.value, NoEngineError)


def test_no_permission_on_the_socket_is_not_taken_for_no_engine(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*args: object) -> None:
        raise UnreachableError("permission denied", denied=True)

    monkeypatch.setattr(engine_module, "probe", denied)
    with pytest.raises(UnableError, match="permission denied") as caught:
        find(short)
    assert "group docker" in caught.value.hint


def test_sdk_client_has_no_time_limit(short: Path) -> None:
    fake_client(short / "bin", BUILDX)
    version = {"/v1.47/version": VERSION}
    with serve(short / "default.sock", {**answers(short), **version}):
        client = docker_client(find(short))
        assert client.version()["Version"] == "27.3.1"
        assert client.api.timeout is None
        client.close()


@pytest.mark.parametrize(
    "text",
    [
        *("[]", '{"auths": {"127.0.0.1:1": {"auth": "!!x"}}}', '{"auths": {"h": 5}}', '{"auths": [1]}'),
        '{"proxies": 1}',
        '{"auths": {"h": {"auth": "c2VjcmV0"}}}',
        pytest.param("[" * 200_000, id="deep"),
    ],
)
def test_settings_of_docker_that_cannot_be_read_are_named(
    short: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    fake_client(short / "bin", BUILDX)
    monkeypatch.setenv("DOCKER_CONFIG", str(short))
    (short / "config.json").write_text(text)
    with serve(short / "default.sock", {**answers(short), "/v1.47/version": VERSION}):
        engine = find(short)
        with pytest.raises(UsageError) as caught:
            docker_client(engine)
    assert (caught.value.code, caught.value.where) == (2, str(short / "config.json"))
    assert "settings cannot be read" in caught.value.what


def test_an_engine_that_is_away_is_not_blamed_on_the_settings(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_client(short / "bin", BUILDX)
    monkeypatch.setenv("DOCKER_CONFIG", str(short))
    (short / "config.json").write_text('{"auths": {"h": {}}}')
    with serve(short / "default.sock", {**answers(short), "/v1.47/version": VERSION}):
        engine = find(short)

    def away(**_more: object) -> None:
        raise DockerException("Error while fetching server API version")

    monkeypatch.setattr("docker.DockerClient", away)
    with pytest.raises(DockerException, match="server API version"):
        docker_client(engine)


def test_numbers() -> None:
    assert numbers("v0.13.1+ds1") == (0, 13, 1)
    assert numbers("26.1.5+dfsg1") == (26, 1, 5)
    assert numbers("") == ()
