"""Push, pull, save and load by docker's command: silent, broken off, or with a failure to report."""

from __future__ import annotations

import io
import re
import socket
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cannery.engine.io import client
from cannery.engine.io.client import OCI_REFUSED, EngineError, load, load_error, pull, push, registry_error, save
from cannery.engine.io.find import Engine
from cannery.engine.io.registry import Access, Login
from cannery.engine.io.transfer_view import TransferView, transfer
from cannery.engine.stream import ENGINE_PROXY, Trouble
from cannery.errors import ExitCode, FindingsError, NetworkError, UnableError
from cannery.host.io.place import EnginePlace
from cannery.ship.io.archive import saved_layers
from cannery.ship.io.registry import Dock, _transfer, published
from cannery.util.io.pip_settings import PipSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REFERENCE = "registry.example/team/stack:1"
ENV = {"PATH": "/usr/bin:/bin"}
LAYERS = ("1a2b3c4d5e6f", "2a2b3c4d5e6f", "3a2b3c4d5e6f")


@dataclass
class View(TransferView):
    """Only remembers."""

    shown: list[tuple[int, ...]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def layers(self, done: int, count: int, moved: int = 0, size: int = 0) -> None:
        self.shown.append((done, count, moved, size))

    def moved(self, count: int) -> None:
        self.counts.append(count)


@dataclass
class Docker:
    """A docker command that runs a script, and keeps the words of each call."""

    folder: Path

    def does(self, *scripts: str) -> Engine:
        """Let it run a script a call, the last one for all after it."""
        for number, script in enumerate(scripts, 1):
            (self.folder / f"{number}.sh").write_text(script)
        program = self.folder / "docker"
        program.write_text(
            f'#!/bin/sh\ncd {self.folder}\necho "$*" >> calls\nn=$(wc -l < calls)\n'
            f"[ $n -gt {len(scripts)} ] && n={len(scripts)}\n. ./$n.sh\n"
        )
        program.chmod(0o755)
        return Engine("unix:///s", program, server_version="26", arch="amd64", data_root=None)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    return Docker(tmp_path)


def layers(*words: str) -> str:
    return "".join(f"echo '{name}: {word}'\n" for name, word in zip(LAYERS, words, strict=False))


def fails(message: str) -> str:
    return f"echo 'Error response from daemon: {message}' >&2; exit 1\n"


def test_layers_of_a_push_are_counted(docker: Docker) -> None:
    script = "echo 'The push refers to repository [registry.example/team/stack]'\n" + layers(
        "Preparing", "Layer already exists", "Mounted from team/base"
    )
    view = View()
    push(docker.does(f"{script}{layers('Pushed')}echo '1: digest: sha256:1 size: 7'"), ENV, REFERENCE, "arm64", view)
    assert docker.calls == [f"push {REFERENCE}"]
    assert view.shown == [(0, 1, 0, 0), (1, 2, 0, 0), (2, 3, 0, 0), (3, 3, 0, 0)]


def test_a_pull_names_the_platform(docker: Docker) -> None:
    script = layers("Pulling fs layer", "Already exists") + layers("Download complete") + layers("Pull complete")
    view = View()
    pull(docker.does(script), ENV, REFERENCE, "arm64", view)
    assert docker.calls == [f"pull --platform linux/arm64 {REFERENCE}"]
    assert view.shown[-1] == (2, 2, 0, 0)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (fails("denied: no"), "denied: no"),
        (layers("Preparing") + "echo 'denied: no' >&2\nexit 1", "denied: no"),
        ("kill -9 $$", "status -9"),
        ("exit 3", "status 3"),
    ],
)
def test_a_command_that_fails_is_an_error(docker: Docker, script: str, words: str) -> None:
    with pytest.raises(EngineError) as caught:
        push(docker.does(script), ENV, REFERENCE, "arm64", View())
    assert caught.value.message == words


def test_a_load_gives_the_names(docker: Docker) -> None:
    script = "cat > got; echo 'Loaded image: a:1'; echo 'Loaded image ID: sha256:1'"
    view = View()
    assert load(docker.does(script), ENV, [b"x" * 10, b"y" * 10_000_000], view) == ("a:1", "sha256:1")
    assert (docker.folder / "got").stat().st_size == 10_000_010
    assert view.counts == [10, 10_000_010]


@pytest.mark.parametrize(
    "script", ["cat > got", fails("invalid tar header"), f"cat > got; {fails('invalid manifest')}"]
)
def test_a_load_that_names_nothing_is_an_error(docker: Docker, script: str) -> None:
    """The second one reads nothing of 10 MB: docker reports why, not the pipe."""
    with pytest.raises(EngineError) as caught:
        load(docker.does(script), ENV, [b"y" * 10_000_000], View())
    assert caught.value.trouble is Trouble.ARCHIVE


def test_what_cannot_be_read_ends_a_load(docker: Docker) -> None:
    def blocks() -> Iterator[bytes]:
        yield b"y" * 10_000_000
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        load(docker.does("cat > got"), ENV, blocks(), View())


def test_a_save_gives_the_archive(docker: Docker) -> None:
    view = View()
    with save(docker.does("head -c 3000000 /dev/zero"), ENV, ["a:1", "a:2"], "arm64", view) as blocks:
        assert sum(map(len, blocks)) == 3_000_000
    assert (docker.calls, view.counts[-1]) == (["save a:1 a:2"], 3_000_000)
    (docker.folder / "calls").unlink()
    with save(docker.does("head -c 3000000 /dev/zero"), ENV, ["a:1"], "arm64", view) as blocks:
        next(blocks)  # the end of a tar is not read
    (docker.folder / "calls").unlink()
    with (
        pytest.raises(EngineError, match="no space left"),
        save(docker.does(f"head -c 100 /dev/zero; {fails('no space left')}"), ENV, ["a"], "arm64", view) as blocks,
    ):
        list(blocks)


@pytest.mark.parametrize(
    ("api", "words"), [("1.48", "save --platform linux/arm64 a"), ("1.47", "save a"), ("", "save a")]
)
def test_a_platform_is_named_where_an_engine_takes_it(docker: Docker, api: str, words: str) -> None:
    engine = replace(docker.does(f"echo {api}", ""), is_classic=False)
    with save(engine, ENV, ["a"], "arm64", View()):
        pass
    assert docker.calls == ["version --format {{.Client.APIVersion}}", words]


def dock_of(place: EnginePlace, host: str = "registry.example") -> Dock:
    """A plan's place in a registry, whose image is in an engine."""
    target = SimpleNamespace(arch="arm64")
    plan: Any = SimpleNamespace(reference="stack:1", recipe=SimpleNamespace(target=target))
    access = Access(PipSettings(), lambda _: Login())
    return Dock(place, plan, f"{host}/team", access, print, lambda *_: nullcontext(View()))


def placed(engine: Engine) -> EnginePlace:
    return EnginePlace(engine, SimpleNamespace(), ENV)  # type: ignore[arg-type] # not asked for


@pytest.mark.parametrize(
    ("message", "words"),
    [("unauthorized: authentication required", "docker login"), ("connection reset by peer", "goes on from here")],
)
def test_a_push_that_fails_is_an_error_of_the_network(docker: Docker, message: str, words: str) -> None:
    place = placed(docker.does(fails(message)))
    with pytest.raises(NetworkError, match=message) as caught:
        _transfer(dock_of(place), place, "push", REFERENCE)
    assert (caught.value.code, words in caught.value.hint) == (ExitCode.NETWORK, True)
    assert len(docker.calls) == 1, "docker itself tries each layer again"


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


def test_a_registry_that_this_host_does_not_reach_is_not_asked_by_the_engine(docker: Docker) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        here = dock_of(placed(docker.does("true")), f"127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(NetworkError) as caught:
            published(here, here.reference)
    assert (caught.value.where, "https_proxy" in caught.value.hint) == (here.host, True)
    assert not (docker.folder / "calls").exists()


@pytest.mark.parametrize("given", ["true", "head -c 700 /dev/zero", "echo no archive"])
def test_why_docker_saved_no_more_is_reported_by_a_bundle(docker: Docker, given: str) -> None:
    engine, why = (
        docker.does(f"{given}\nexec >&-\nsleep 0.1\n{fails('no space left on device')}"),
        "no space left on device",
    )
    with (
        pytest.raises(EngineError, match=why) as caught,
        save(engine, ENV, [REFERENCE], "amd64", View()) as blocks,
    ):
        list(saved_layers(blocks, ["sha256:1"], {}, docker.folder))
    assert (caught.value.message, type(caught.value.__cause__)) == (why, UnableError)


@pytest.mark.parametrize("script", ["true", "echo no archive; exec sleep 60"])
def test_what_broke_a_bundle_is_reported_where_docker_names_no_failure(
    docker: Docker, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(client, "ENDS", 0.2)
    with (
        pytest.raises(UnableError, match="the disk of OUTPUT"),
        save(docker.does(script), ENV, [REFERENCE], "amd64", View()),
    ):
        raise UnableError("the disk of OUTPUT")


@pytest.mark.parametrize("columns", [80, 120])
def test_bars_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = io.StringIO()
    with transfer("pushing x", 0, said, is_terminal=True) as view:
        for n in range(20):
            view.layers(n // 2, 12, n, 20)
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
def test_a_push_that_is_refused_names_what_helps(message: str, hint: str) -> None:
    assert registry_error(EngineError(message), "push", "r.example/x:1", str).hint == hint
