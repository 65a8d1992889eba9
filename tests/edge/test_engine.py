"""Which engine is taken, and what is said when none can be."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from docker.errors import DockerException, TLSParameterError

from cannery.engine.io import find as module
from cannery.engine.io.find import Engine, NoEngineError, docker_client, find_engine, numbers
from cannery.errors import ExitCode, UnableError, UsageError
from tests.edge.engine_fakes import VERSION, serve
from tests.edge.engine_fakes import docker_client as fake_client

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILDX = "github.com/docker/buildx v0.17.1 257815a"
# What docker 28 and 29 print where nothing listens, and docker 28 for a socket that the user may not open.
NOBODY = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
NOBODY_29 = "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct"
DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose path leaves room for a unix socket's name. The machine's own engine plays no part."""
    folder = Path(tempfile.mkdtemp(prefix="ce-"))
    monkeypatch.setattr(module, "DEFAULT_SOCKET", str(folder / "default.sock"))
    yield folder
    shutil.rmtree(folder)


def client(
    short: Path, *, context: str = "default", error: str = "", buildx: str | None = BUILDX, **info: object
) -> Path:
    """A docker command that reports an engine with these facts, or the error of one that does not answer."""
    host = f"unix://{short}/{context}.sock"
    about = {"Endpoints": {"docker": {"Host": host}}, "TLSMaterial": {}, "Storage": {"TLSPath": "/t"}}
    found = {
        "ServerVersion": "" if error else "27.3.1",
        "ServerErrors": [error] if error else None,
        "Architecture": "aarch64",
        "DockerRootDir": str(short),
        "Driver": "overlay2",
        "ClientInfo": {"Context": context},
        **info,
    }
    answers = {f"context inspect {context}": json.dumps([about]), "info --format": json.dumps(found)}
    answers |= {} if buildx is None else {"buildx version": buildx}
    return fake_client(short / "bin", answers)


def environment(short: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{short}/bin:/usr/bin:/bin", "HOME": str(short), **more}


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
    client(short, SecurityOptions=options)
    assert find(short).user_map == user_map


def test_default_socket_is_used(short: Path) -> None:
    program = client(short)
    engine = find(short)
    assert engine == Engine(
        host=f"unix://{short}/default.sock",
        docker=program,
        server_version="27.3.1",
        arch="arm64",
        data_root=short,
        storage_driver="overlay2",
    )
    assert engine.command("ps", "-a") == (str(program), "ps", "-a")
    assert engine.buildx_command("bake") == (str(program), "buildx", "--builder", "default", "bake")
    assert engine.buildx_command("ls", builder="farm")[3] == "farm"


def test_what_else_an_engine_reports(short: Path) -> None:
    indexes = {"plain.example:5000": {"Secure": False}, "docker.io": {"Secure": True}}
    status = [["driver-type", "io.containerd.snapshotter.v1"]]
    client(short, Runtimes={"runc": {}, "ascend": {}}, RegistryConfig={"IndexConfigs": indexes}, DriverStatus=status)
    engine = find(short)
    assert (engine.runtimes, engine.plain, engine.is_classic) == ({"runc", "ascend"}, {"plain.example:5000"}, False)
    client(short, Runtimes=None, RegistryConfig=None, DriverStatus=[["Backing Filesystem", "extfs"]])
    engine = find(short)
    assert (engine.runtimes, engine.plain, engine.is_classic) == (set(), set(), True)


def test_docker_host_is_used_and_a_remote_disk_is_unknown(short: Path) -> None:
    client(short, DockerRootDir="/nowhere/here")
    assert find(short, DOCKER_HOST=f"unix://{short}/a.sock").data_root is None
    client(short)
    far = find(short, DOCKER_HOST="ssh://me@far.example")
    assert (far.host, far.data_root, far.cert_path) == ("ssh://me@far.example", None, None)
    tls = find(short, DOCKER_HOST="tcp://far.example:2376", DOCKER_TLS_VERIFY="1")
    assert tls.cert_path == short / ".docker"
    tls = find(short, DOCKER_HOST="tcp://far.example:2376", DOCKER_TLS_VERIFY="1", DOCKER_CERT_PATH="/certs")
    assert tls.cert_path == Path("/certs")


def test_a_docker_host_without_a_scheme_is_a_tcp_address_as_for_docker(short: Path) -> None:
    client(short)
    assert find(short, DOCKER_HOST="localhost:2375").host == "tcp://localhost:2375"
    client(short, error=NOBODY)
    with pytest.raises(UnableError) as caught:
        find(short, DOCKER_HOST="localhost:2375")
    assert caught.value.where == "DOCKER_HOST=localhost:2375"


@pytest.mark.parametrize("error", [NOBODY, NOBODY_29])
def test_named_engine_that_is_silent_is_an_error_not_another_engine(short: Path, error: str) -> None:
    client(short, error=error)
    host = f"unix://{short}/gone.sock"
    with pytest.raises(UnableError) as caught:
        find(short, DOCKER_HOST=host)
    assert not isinstance(caught.value, NoEngineError)
    assert caught.value.where == f"DOCKER_HOST={host}"
    assert "unset" in caught.value.hint


def test_engine_that_hangs_is_reported_within_seconds(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(short).write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(module, "ANSWERS", 0.2)
    with pytest.raises(UnableError, match=r"no answer within 0\.2 s") as caught:
        find(short)
    assert not isinstance(caught.value, NoEngineError)


@pytest.mark.parametrize("answer", ["hello", "[]", '{"ServerVersion": ""}'])
def test_something_else_on_the_default_socket_is_not_replaced(short: Path, answer: str) -> None:
    program = client(short)
    texts = json.loads((short / "bin/answers.json").read_text())
    fake_client(program.parent, texts | {"info --format": answer})
    with pytest.raises(UnableError, match="no reason given") as caught:
        find(short)
    assert not isinstance(caught.value, NoEngineError)
    assert "restart" in caught.value.hint


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"DockerRootDir": "/home/me/.local/share/containers/storage", "ServerVersion": "4.3.1"}, "Podman"),
        ({"ServerVersion": "", "host": {"arch": "amd64"}}, "Podman"),
        ({"ServerVersion": "18.06"}, "too old"),
        ({"ServerVersion": "20.10.24"}, "too old"),
    ],
)
def test_engine_without_buildkit_is_refused(short: Path, info: dict[str, str], message: str) -> None:
    client(short, **info)
    with pytest.raises(UnableError, match=message) as caught:
        find(short)
    assert "buildx" in caught.value.hint


def test_a_build_of_docker_s_own_between_releases_is_taken(short: Path) -> None:
    client(short, ServerVersion="dev")
    assert find(short).server_version == "dev"


@pytest.mark.parametrize(
    ("buildx", "message"),
    [
        (None, "no buildx plugin"),
        ("github.com/docker/buildx v0.11.2 abc", r"buildx v0\.11\.2 is older"),
        ("github.com/docker/buildx", "of unknown version"),
    ],
)
def test_client_side_that_is_missing_is_named(short: Path, buildx: str | None, message: str) -> None:
    client(short, buildx=buildx)
    with pytest.raises(UnableError, match=message):
        find(short)


def test_a_host_without_docker_s_command(short: Path) -> None:
    env = environment(short, PATH=str(short / "nothing"))
    with pytest.raises(NoEngineError):
        find_engine(env)
    for name, value in (("DOCKER_HOST", "tcp://far.example:2375"), ("DOCKER_CONTEXT", "lab")):
        with pytest.raises(UnableError, match="no docker client") as caught:
            find_engine({**env, name: value})
        assert (caught.value.where, type(caught.value)) == (f"{name}={value}", UnableError)
    (short / "default.sock").touch()
    with pytest.raises(UnableError, match="no docker client") as caught:
        find_engine(env)
    assert caught.value.where == str(short / "default.sock")


def test_context_of_the_docker_settings_is_followed(short: Path) -> None:
    client(short, context="lab")
    engine = find(short)
    assert (engine.host, engine.builder, engine.cert_path) == (f"unix://{short}/lab.sock", "lab", None)
    client(short, context="lab", error=NOBODY)
    with pytest.raises(UnableError) as caught:
        find(short)
    assert not isinstance(caught.value, NoEngineError)
    assert caught.value.where == f"docker context lab (unix://{short}/lab.sock)"
    for answers in ({}, {"context inspect": "[]"}, {"context inspect": "[1]"}):
        fake_client(short / "bin", answers)
        with pytest.raises(UnableError, match="docker context other cannot be read"):
            find(short, DOCKER_CONTEXT="other")


@pytest.mark.parametrize("script", ["echo 'context not found' >&2; exit 1", "exec sleep 60"])
def test_the_context_of_the_settings_is_named_where_docker_reports_nothing(
    short: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    program = client(short, context="lab")
    program.rename(program.with_name("answers"))
    program.write_text(f'#!/bin/sh\n[ "$1" = context ] && exec "${{0%/*}}/answers" "$@"\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setattr(module, "ANSWERS", 1.0)
    settings = short / ".docker/config.json"
    settings.parent.mkdir()
    settings.write_text('{"currentContext": "lab"}')
    with pytest.raises(UnableError) as caught:
        find(short)
    assert caught.value.where == f"docker context lab (unix://{short}/lab.sock)"
    settings.write_text('{"currentContext": "nope"}')
    with pytest.raises(UnableError, match="docker context nope cannot be read") as caught:
        find(short)
    assert caught.value.hint == "see `docker context ls`, or unset it"
    for text in ("{}", "[]", "{", '{"currentContext": null}'):
        settings.write_text(text)
        with pytest.raises(UnableError) as caught:
            find(short)
        assert caught.value.where == f"unix://{short}/default.sock"


@pytest.mark.parametrize("error", [NOBODY, NOBODY_29])
def test_no_engine_at_all_is_an_error_of_its_own(short: Path, error: str) -> None:
    client(short, error=error)
    with pytest.raises(NoEngineError, match="no Docker engine is running") as caught:
        find(short)
    assert caught.value.code is ExitCode.UNABLE
    for words in ("install Docker Engine", "make engine-start"):
        assert words in caught.value.hint


def test_no_permission_on_the_socket_is_not_taken_for_no_engine(short: Path) -> None:
    client(short, error=DENIED)
    with pytest.raises(UnableError, match="permission denied") as caught:
        find(short)
    assert not isinstance(caught.value, NoEngineError)
    assert "group docker" in caught.value.hint


def test_sdk_client_has_no_time_limit(short: Path) -> None:
    client(short)
    engine, version = find(short), {"/v1.47/version": VERSION}
    with serve(short / "default.sock", {"/version": VERSION, **version}):
        found = docker_client(engine)
        assert found.version()["Version"] == "27.3.1"
        assert found.api.timeout is None
        found.close()


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
    client(short)
    engine = find(short)
    monkeypatch.setenv("DOCKER_CONFIG", str(short))
    (short / "config.json").write_text(text)
    answers = {"/version": VERSION, "/v1.47/version": VERSION}
    with serve(short / "default.sock", answers), pytest.raises(UsageError) as caught:
        docker_client(engine)
    assert (caught.value.code, caught.value.where) == (2, str(short / "config.json"))
    assert "settings cannot be read" in caught.value.what


def test_an_engine_that_is_away_is_not_blamed_on_the_settings(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(short))
    (short / "config.json").write_text('{"auths": {"h": {}}}')
    client(short)
    engine = find(short)

    def away(**_more: object) -> None:
        raise DockerException("Error while fetching server API version")

    monkeypatch.setattr("docker.DockerClient", away)
    with pytest.raises(UnableError, match="server API version") as caught:
        docker_client(engine)
    assert "docker info" in caught.value.hint
    assert isinstance(caught.value.__cause__, DockerException)


@pytest.mark.parametrize("files", [(), ("ca.pem",), ("ca.pem", "cert.pem")])
def test_a_folder_without_a_certificate_of_the_client(
    short: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...]
) -> None:
    client(short)
    for name in files:
        (short / name).touch()
    env = {"DOCKER_HOST": "tcp://127.0.0.1:1", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(short)}
    seen: list[Any] = []
    monkeypatch.setattr("docker.DockerClient", lambda **more: seen.append(more["tls"]))
    engine = find(short, **env)
    if files:
        docker_client(engine)
        assert (seen[0].cert, seen[0].ca_cert, seen[0].verify) == (None, str(short / "ca.pem"), True)
        (short / "cert.pem").touch()
        (short / "key.pem").touch()
        docker_client(engine)
        assert seen[1].cert == (str(short / "cert.pem"), str(short / "key.pem"))
    else:
        with pytest.raises(UnableError) as caught:
            docker_client(engine)
        assert isinstance(caught.value.__cause__, TLSParameterError)


def test_numbers() -> None:
    assert numbers("v0.13.1+ds1") == (0, 13, 1)
    assert numbers("26.1.5+dfsg1") == (26, 1, 5)
    assert numbers("") == ()
