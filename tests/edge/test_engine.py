"""Which engine is taken, and what is said when none can be."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from docker.errors import DockerException

from cannery.engine.io import endpoint as engine_endpoint
from cannery.engine.io import find as engine_module
from cannery.engine.io.find import Engine, docker_client, find_engine, free_disk
from cannery.engine.io.probe import Endpoint, Server, UnreachableError, numbers, probe
from cannery.engine.own import engine as owned_engine
from cannery.engine.own import requirements as engine_requirements
from cannery.engine.own.layout import Layout
from cannery.engine.own.packages import Binaries
from cannery.errors import UnableError, UsageError
from tests.edge.engine_fakes import BUILDX, VERSION, serve
from tests.edge.engine_fakes import docker_client as fake_client

if TYPE_CHECKING:
    from collections.abc import Iterator

SAID: list[str] = []


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a unix socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="ce-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def no_default_engine(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own engine, if it has one, plays no part."""
    SAID.clear()
    monkeypatch.setattr(engine_endpoint, "DEFAULT_SOCKET", str(short / "default.sock"))


def environment(short: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{short}/bin:/usr/bin:/bin", "HOME": str(short), **more}


def answers(short: Path, **version: object) -> dict[str, Any]:
    return {"/version": {**VERSION, **version}, "/info": {"DockerRootDir": str(short), "Driver": "overlay2"}}


def find(short: Path, *, start: bool = True, **env: str) -> Engine:
    return find_engine(environment(short, **env), short / "cache", start=start, say=SAID.append)


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


def test_default_socket_is_used_without_a_word(short: Path) -> None:
    client = fake_client(short / "bin", BUILDX)
    with serve(short / "default.sock", answers(short)):
        engine = find(short)
    assert engine == Engine(
        host=f"unix://{short}/default.sock",
        docker=client,
        buildx=None,
        owned=False,
        server_version="27.3.1",
        api_version="1.47",
        arch="arm64",
        data_root=short,
        storage_driver="overlay2",
        origin=f"{short}/default.sock",
    )
    assert SAID == []
    assert free_disk(engine) == pytest.approx(shutil.disk_usage(short).free, rel=0.2)
    assert engine.command("ps", "-a") == (str(client), "ps", "-a")
    assert engine.buildx_command("bake") == (str(client), "buildx", "--builder", "default", "bake")
    assert engine.buildx_command("ls", builder="farm")[3] == "farm"
    env = environment(short, DOCKER_CONFIG="/mine", BUILDX_BUILDER="mine")
    assert engine.client_env(env) == env


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
        find_engine(environment(short) | env, short / "cache", start=True, say=SAID.append)


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


# ---- none reachable: our own ------------------------------------------------------------------------------------


def own(short: Path) -> owned_engine.OwnedEngine:
    layout = Layout.of(short / "cache", short)
    return owned_engine.OwnedEngine(
        layout, Binaries(layout.packages / "26.1"), Server("26.1", "1.45", "amd64", False, str(layout.data), "overlay2")
    )


def test_own_engine_is_started_with_one_line(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_engine, "running", lambda cache: None)
    monkeypatch.setattr(engine_module, "refuse_unless_possible", lambda env, root: None)
    monkeypatch.setattr(owned_engine, "start", lambda cache, env, say: own(short))
    engine = find(short)
    assert len(SAID) == 1
    assert "Cannery's own" in SAID[0]
    assert engine.owned
    assert engine.buildx_command("bake")[0].endswith("docker-buildx")
    env = engine.client_env(
        environment(short, DOCKER_CONTEXT="lab", DOCKER_TLS_VERIFY="1", BUILDX_BUILDER="x", DOCKER_CONFIG="/mine")
    )
    assert env == environment(short, DOCKER_CONFIG="/mine", DOCKER_HOST=engine.host)


def test_own_engine_that_runs_is_used_without_start(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_engine, "running", lambda cache: own(short))
    assert find(short, start=False).owned
    assert SAID == []


def test_without_start_nothing_is_started(short: Path) -> None:
    with pytest.raises(UnableError, match="no Docker engine answers") as caught:
        find(short, start=False)
    assert "engine start" in caught.value.hint
    assert not (short / "cache").exists()


@pytest.mark.parametrize(("user", "message"), [(1000, "needs root"), (0, "Debian or Ubuntu; the host is other")])
def test_a_host_that_cannot_gets_what_to_install(
    short: Path, monkeypatch: pytest.MonkeyPatch, user: int, message: str
) -> None:
    def other() -> None:
        raise UnableError("this needs Debian or Ubuntu; the host is other")

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(engine_requirements, "host_release", other)
    with pytest.raises(UnableError, match=message) as caught:
        find(short)
    assert "DOCKER_HOST" in caught.value.hint
    assert SAID == []


def test_a_missing_program_is_named_with_its_package(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = short / "programs"
    programs.mkdir()
    for name in engine_requirements.PROGRAMS:
        (programs / name).symlink_to("/bin/true")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine_requirements, "host_release", lambda: None)
    monkeypatch.setattr(engine_requirements, "SYSTEM_PATH", str(short / "none"))
    env = {"PATH": str(programs), "HOME": str(short)}
    engine_requirements.refuse_unless_possible(env, short)
    for name in ("mount", "umount", "setsid"):
        (programs / name).unlink()
    with pytest.raises(UnableError) as caught:
        find_engine(env, short / "cache", start=True, say=SAID.append)
    for words in ("setsid (package util-linux)", "mount (package mount)", "umount (package mount)"):
        assert words in caught.value.what
    assert caught.value.hint == "apt-get install util-linux mount"
    assert SAID == []
    assert not (short / "cache").exists()


@pytest.mark.parametrize("sign", [":", "%", ",", "\\"])
def test_cache_that_docker_cannot_store_in_is_refused(short: Path, monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine_requirements, "host_release", lambda: None)
    cache = short / f"a{sign}b"
    with pytest.raises(UnableError, match="path holds") as caught:
        find_engine(environment(short), cache, start=True, say=SAID.append)
    assert repr(sign) in caught.value.what
    assert "CANNERY_CACHE" in caught.value.hint
    assert not cache.exists()


def test_docker_host_of_our_own_engine_means_our_own(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell that evaluated `engine env`: running or stopped, and without buildx beside the client."""
    fake_client(short / "bin", {})
    here = own(short)
    monkeypatch.setattr(engine_module, "_own_socket", lambda cache: here.layout.socket)
    here.layout.run.mkdir()
    with serve(here.layout.socket, answers(short)):
        monkeypatch.setattr(owned_engine, "running", lambda cache: here)
        engine = find(short, start=False, DOCKER_HOST=here.layout.host)
    assert engine.owned
    assert engine.docker == here.binaries.docker
    here.layout.socket.unlink()
    started: list[Path] = []

    def start(cache: Path, env: object, say: object) -> owned_engine.OwnedEngine:
        started.append(cache)
        return here

    monkeypatch.setattr(owned_engine, "running", lambda cache: None)
    monkeypatch.setattr(owned_engine, "start", start)
    monkeypatch.setattr(engine_module, "refuse_unless_possible", lambda env, root: None)
    assert find(short, DOCKER_HOST=here.layout.host).owned
    assert started == [short / "cache"]
    (line,) = SAID
    assert line.startswith(f"DOCKER_HOST={here.layout.host} is Cannery's own engine: starting it (nothing is installed")
    with pytest.raises(UnableError, match="no Docker engine answers"):
        find(short, start=False, DOCKER_HOST=here.layout.host)


def test_a_silent_engine_of_another_cache_has_its_own_hint(short: Path) -> None:
    host = Layout.of(short / "elsewhere").host
    with pytest.raises(UnableError) as caught:
        find(short, DOCKER_HOST=host)
    assert "another CANNERY_CACHE" in caught.value.hint


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
