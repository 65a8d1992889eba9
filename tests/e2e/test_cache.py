"""BuildKit's cache in a registry: what one engine has built, an empty one takes from there (`--cache`, `--builder`).

Two engines of tools/engine.py, with containerd's store, and a registry, all on loopback. The second engine is also a
remote builder, by a door to its BuildKit.
"""

from __future__ import annotations

import json
import re
import select
import shutil
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pytest

from cannery.context import read_context
from tests.e2e.engine_fixtures import ROOT, Cannery, containerd_engine, layers_of, small_checkout
from tests.e2e.registry import Registry, login
from tests.images.test_lines import profile_text

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

NAME = "cached"
# No torch: seconds for a build.
COMPONENTS = ("pip", "numpy")
BASE = "ascend/cann:8.5.0-910b-ubuntu22.04-py3.11"
# What asks dockerd for a connection to its BuildKit; what it answers is gRPC, as a BuildKit of its own speaks.
UPGRADE = b"POST /grpc HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"


class Door:
    """A TCP port on loopback that leads to the BuildKit of an engine."""

    def __init__(self, host: str) -> None:
        self.path = host.removeprefix("unix://")
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as engine, suppress(OSError):
            engine.connect(self.path)
            engine.sendall(UPGRADE)
            answer = b""
            while not answer.endswith(b"\r\n\r\n"):
                answer += engine.recv(1)
            assert answer.startswith(b"HTTP/1.1 101"), answer
            while True:
                for ready in select.select([client, engine], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    (engine if ready is client else client).sendall(data)


@dataclass(frozen=True)
class Machines:
    """The first engine, the second one, and a registry."""

    first: Cannery
    second: Cannery
    registry: str

    @property
    def cache(self) -> str:
        return f"{self.registry}/team/cache:{NAME}"


def on(cannery: Cannery, host: str, **more: str) -> Cannery:
    """The same checkout on another engine."""
    env = {**cannery.env, "DOCKER_HOST": host, **more}
    return replace(cannery, engine=replace(cannery.engine, host=host), env=env)


@pytest.fixture(scope="session")
def early() -> None:
    """These tests need no other image: none is begun beside them."""


@pytest.fixture(scope="module")
def checkout(cannery: Cannery, tmp_path_factory: pytest.TempPathFactory) -> Cannery:
    text = profile_text(str(read_context(ROOT).arch), COMPONENTS)
    return small_checkout(cannery, tmp_path_factory.mktemp("cache") / "checkout", NAME, text)


@pytest.fixture(scope="module")
def machines(checkout: Cannery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("machines")
    for name in ("first", "second"):
        (folder / name).mkdir()
    with (
        Registry(folder, read_context(ROOT).cache) as registry,
        containerd_engine(folder / "first") as first,
        containerd_engine(folder / "second") as second,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        # By name: a private address may not stand in a Dockerfile.
        host = f"localhost:{registry.port}"
        settings = str(login(folder / "docker", [host]))
        monkeypatch.setenv("DOCKER_CONFIG", settings)
        yield Machines(
            *(on(checkout, engine.host, DOCKER_CONFIG=settings) for engine in (first, second)), registry=host
        )


def image(cannery: Cannery, *words: str) -> tuple[dict[str, Any], str]:
    """Make the image; return what `--json` prints of it, and the log of its build."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("DOCKER_HOST", cannery.env["DOCKER_HOST"])
        table = json.loads(cannery.build_py("image", NAME, *words, "--json").stdout)
    (log,) = (cannery.root / "out").glob("*/log/build.log")
    text = log.read_text(encoding="utf-8")
    shutil.rmtree(cannery.root / "out")
    return table, text


def cached(log: str) -> set[str]:
    """The stages with steps that were taken from a cache."""
    return set(re.findall(r"\[([\w-]+)\] --- cached$", log, re.MULTILINE))


@pytest.fixture(scope="module")
def built(machines: Machines) -> dict[str, Any]:
    """The image as the first engine has built it, which wrote the cache."""
    table, log = image(machines.first, "--cache", machines.cache)
    assert (table["cached"], cached(log)) == (0, set())
    return table


FOUNDATION = {"system", "venv", "foundation"}


def test_an_empty_engine_takes_what_another_has_built(machines: Machines, built: dict[str, Any]) -> None:
    table, log = image(machines.second, "--cache", machines.cache)
    assert cached(log) >= FOUNDATION
    assert "numpy" in str(built["new_layers"])
    assert table["id"] == built["id"]


def test_so_does_a_remote_builder_on_a_base_from_a_registry(
    machines: Machines, built: dict[str, Any], checkout: Cannery
) -> None:
    """The image comes into the engine of the host, which has its own store."""
    first, second = machines.first, machines.second
    base, far = (
        f"{machines.registry}/{BASE}",
        on(checkout, checkout.engine.host, DOCKER_CONFIG=first.env["DOCKER_CONFIG"]),
    )
    standin = first.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "cannery-standin").stdout.strip()
    first.docker("tag", standin, base)
    first.docker("push", base)
    names = second.docker("image", "ls", "--quiet").stdout.split()
    second.docker("image", "rm", "--force", *names)
    second.docker("buildx", "prune", "--all", "--force")
    with Door(second.engine.host) as door:
        far.docker("buildx", "create", "--name", "far", "--driver", "remote", door.address)
        table, log = image(far, "--base", base, "--builder", "far", "--cache", machines.cache, "--no-verify")
    assert cached(log) >= FOUNDATION
    reference = table["references"][0]
    # The last layer has the manifest, which names the base.
    assert layers_of(far, reference)[:-1] == layers_of(first, built["references"][0])[:-1]
    far.docker("image", "rm", *table["references"])
