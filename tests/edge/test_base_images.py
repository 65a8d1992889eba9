"""Finding a base: the order, the engine's part in it, the reasons, and the seconds."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import docker.errors
import pytest
from stub_registry import REPOSITORY, TAG, StubRegistry, sha

from cannery.base.io import find as base_images
from cannery.base.io.find import Search, find_base
from cannery.base.real import BaseImage
from cannery.engine.io.registry import Access, Limits, Login
from cannery.errors import CanneryError, ExitCode, FindingsError, NetworkError, UsageError
from cannery.plan.make import BaseNeed
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch, BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator

BOTH = (Arch.AMD64, Arch.ARM64)
DIGEST = sha(b"an image")
LIMITS = Limits()
UNREACHED = "registry.invalid/ascend/cann:8.5.0"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(autouse=True)
def no_name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are unknown at once; addresses stay."""
    real = socket.getaddrinfo

    def look_up(host: str, *rest: object, **more: object) -> object:
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *rest, **more)  # type: ignore[arg-type] # passed on

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@dataclass
class Engine:
    """An engine: images that it holds by reference, and what it learns from registries (an error, or attributes)."""

    holds: dict[str, dict[str, Any]] = field(default_factory=dict)
    stall: float = 0.0

    @property
    def images(self) -> Engine:
        return self

    def get(self, reference: str) -> SimpleNamespace:
        time.sleep(self.stall)
        if reference not in self.holds:
            raise docker.errors.ImageNotFound("No such image")
        return SimpleNamespace(attrs=self.holds[reference])


def image(arch: str = "amd64", *digests: str) -> dict[str, Any]:
    """What `docker inspect` says of an image."""
    return {"Architecture": arch, "Config": {"Env": ["A=1"], "Labels": None}, "RepoDigests": list(digests)}


def need(*references: str, kind: BaseKind = BaseKind.REAL, arches: tuple[Arch, ...] = (Arch.AMD64,)) -> BaseNeed:
    return BaseNeed(references, arches[-1], arches, kind)


@dataclass
class Finder:
    """find_base, and what it said."""

    engine: Engine | None = None
    limits: Limits = LIMITS
    other_builder: bool = False
    said: list[str] = field(default_factory=list)

    def __call__(self, wanted: BaseNeed) -> BaseImage:
        access = Access(PipSettings(), lambda _: Login(), self.limits)
        return find_base(
            wanted,
            Search(
                access,
                lambda: self.engine,  # type: ignore[arg-type,return-value] # what is asked of it
                self.said.append,
                self.other_builder,
            ),
        )

    def error(self, wanted: BaseNeed) -> CanneryError:
        with pytest.raises(CanneryError) as caught:
            self(wanted)
        return caught.value


@pytest.fixture
def two() -> Iterator[tuple[StubRegistry, StubRegistry]]:
    with StubRegistry() as first, StubRegistry() as second:
        yield first, second


@contextmanager
def silent() -> Iterator[str]:
    """A registry that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        yield f"127.0.0.1:{server.getsockname()[1]}/{REPOSITORY}:{TAG}"


def test_the_first_that_has_it_is_taken(two: tuple[StubRegistry, StubRegistry]) -> None:
    first, second = two
    digest = first.add(config={"Env": ["A=1"]})
    second.add(config={"Env": ["A=2"]})
    first.stall = 0.1  # the order counts, not who is quick
    find = Finder()
    found = find(need(first.reference, second.reference, arches=BOTH))
    assert (found.reference, found.digest, found.on_engine) == (first.reference, digest, False)
    assert found.config is not None
    assert found.config.env == {"A": "1"}
    assert len(find.said) == 1
    assert find.said[0].startswith(f"base: {first.reference} is {digest[:19]}… (found in ")


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_the_second_takes_the_place_of_the_first(two: tuple[StubRegistry, StubRegistry], status: int) -> None:
    first, second = two
    first.status, digest = status, second.add()
    find = Finder()
    found = find(need(first.reference, second.reference))
    # Both are copies of one image, whose name is the first one's.
    assert (found.reference, found.source, found.digest) == (first.reference, second.reference, digest)
    assert find.said[0].startswith(f"base: {first.reference} is not used: ")
    assert f"HTTP {status}" in find.said[0]


def test_the_second_takes_the_place_of_one_of_another_architecture(two: tuple[StubRegistry, StubRegistry]) -> None:
    first, second = two
    first.add(["arm64"])
    digest = second.add()
    assert Finder()(need(first.reference, second.reference)).digest == digest


def test_every_registry_is_named_with_its_reason(two: tuple[StubRegistry, StubRegistry]) -> None:
    first, second = two
    second.status = 403
    error = Finder().error(need(first.reference, second.reference, UNREACHED))
    assert isinstance(error, NetworkError)
    assert error.code is ExitCode.NETWORK
    assert error.what.splitlines() == [
        "no registry gives the base image for amd64",
        f"  {first.reference}: it has no such image (HTTP 404)",
        f"  {second.reference}: it refuses access (HTTP 403)",
        f"  {UNREACHED}: host name not found",
    ]
    assert "docker login" in error.hint
    assert "BASE=<reference>" in error.hint


def test_an_image_of_other_architectures_is_a_finding(two: tuple[StubRegistry, StubRegistry]) -> None:
    first, second = two
    first.add(["arm64"])
    second.add(["arm64", "riscv64"])
    error = Finder(Engine()).error(need(first.reference, second.reference))
    assert isinstance(error, FindingsError)
    assert f"  {second.reference}: it has the image for arm64 and riscv64, not for amd64" in error.what.splitlines()
    second.status = 503
    assert isinstance(Finder().error(need(first.reference, second.reference)), NetworkError)


def test_a_misspelt_reference_is_not_asked_for() -> None:
    assert isinstance(Finder().error(need("registry.example/UPPER:1")), UsageError)


def test_dead_registries_cost_the_time_of_one() -> None:
    find = Finder(limits=Limits(connect=1.0, read=1.0, total=1.2))
    with silent() as first, silent() as second, silent() as third:
        started = time.monotonic()
        error = find.error(need(first, second, third))
        took = time.monotonic() - started
    assert error.what.count("time-out") == 3
    assert 1.0 <= took < 2.9


def test_a_registry_that_drips_costs_no_more(two: tuple[StubRegistry, StubRegistry]) -> None:
    first, second = two
    first.add()
    first.drip, digest = 0.3, second.add()
    find = Finder(limits=Limits(connect=0.5, read=0.5, total=1.0))
    started = time.monotonic()
    assert find(need(first.reference, second.reference)).digest == digest
    assert time.monotonic() - started < 1.0 + base_images.GRACE + 3
    assert find.said[0].startswith(f"base: {first.reference} is not used: time-out")


def test_the_real_limits_leave_time_within_ten_seconds() -> None:
    limits = Limits()
    # Registries, then an engine that answers late and does not say what it holds.
    assert limits.total + base_images.GRACE + 2 * base_images.ENGINE_ANSWERS <= 8.5
    assert max(limits.connect, limits.read) < limits.total


def test_nothing_hangs_on_a_hanging_engine_or_name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: released.wait(60))
    monkeypatch.setattr(base_images, "ENGINE_ANSWERS", 0.2)
    find = Finder(Engine(stall=60), limits=Limits(connect=0.2, read=0.2, total=0.25))
    started = time.monotonic()
    error = find.error(need(UNREACHED))
    took = time.monotonic() - started
    released.set()
    assert 0.4 <= took < 10
    assert f"{UNREACHED}: time-out" in error.what
    assert "  the engine: time-out" in error.what.splitlines()


def test_a_host_that_reaches_no_registry_is_told_what_the_engine_can_do() -> None:
    error = Finder(Engine()).error(need(UNREACHED))
    assert f"  {UNREACHED}: host name not found" in error.what.splitlines()
    assert "docker pull" in error.hint


def test_an_image_that_the_engine_holds_serves_where_no_registry_gives_one() -> None:
    repository = UNREACHED.rpartition(":")[0]
    holds = {UNREACHED: image("amd64", f"elsewhere.example/x@{sha(b'')}", f"{repository}@{DIGEST}")}
    find = Finder(Engine(holds=holds))
    found = find(need("first.invalid/cann:1", UNREACHED))
    assert (found.source, found.digest, found.on_engine) == (UNREACHED, DIGEST, True)
    assert found.config is not None
    assert found.config.env == {"A": "1"}
    assert find.said == [
        f"base: {UNREACHED} ({DIGEST[:19]}…) as the engine has it: no registry gives a newer one",
        "base: first.invalid/cann:1: host name not found",
        f"base: {UNREACHED}: host name not found",
    ]


def test_an_image_that_was_loaded_has_no_digest() -> None:
    found = Finder(Engine(holds={UNREACHED: image()}))(need(UNREACHED))
    assert (found.reference, found.digest, found.on_engine) == (UNREACHED, None, True)


def test_an_image_that_the_engine_holds_for_another_architecture_does_not_serve() -> None:
    find = Finder(Engine(holds={UNREACHED: image("arm64")}))
    error = find.error(need(UNREACHED))
    assert isinstance(error, NetworkError)
    assert "  the engine: it has the image for arm64, not for amd64" in error.what.splitlines()
    # The stages run on the host's own architecture, and under one name an engine has one.
    assert isinstance(find.error(need(UNREACHED, arches=BOTH)), NetworkError)
    # Of the user's own image it is the whole truth.
    assert isinstance(find.error(need(UNREACHED, kind=BaseKind.CUSTOM)), FindingsError)


def test_a_registrys_image_goes_before_the_one_that_the_engine_holds() -> None:
    with StubRegistry() as stub:
        digest = stub.add()
        find = Finder(Engine(holds={stub.reference: image("amd64", f"{stub.repository}@{DIGEST}")}))
        assert find(need(stub.reference)).digest == digest
        assert find(need(stub.reference, kind=BaseKind.CUSTOM)).digest == digest


def test_the_users_own_image_is_never_taken_from_a_registry() -> None:
    with StubRegistry() as stub:
        stub.add()
        find = Finder(Engine(holds={stub.reference: image()}))
        found = find(need(stub.reference, kind=BaseKind.CUSTOM))
        assert (found.digest, found.on_engine) == (None, True)
        assert stub.seen == []
        # A CANN image is another matter: there the registry knows better.
        assert find(need(stub.reference)).on_engine is False


def test_a_name_without_a_registry_is_docker_hubs() -> None:
    held = image("amd64", f"cann@{DIGEST}")
    find = Finder(Engine(holds={"docker.io/library/cann:1": held}))
    assert find(need("docker.io/library/cann:1")).digest == DIGEST


def test_another_builder_takes_nothing_from_the_engine() -> None:
    find = Finder(Engine(holds={UNREACHED: image()}), other_builder=True)
    assert isinstance(find.error(need(UNREACHED)), NetworkError)
    pinned = find(need(f"{UNREACHED}@{DIGEST}", kind=BaseKind.CUSTOM))
    assert pinned == BaseImage(UNREACHED, DIGEST, None, unread="host name not found")
    assert find.said == [f"base: {UNREACHED}@{DIGEST}: host name not found; the builder may reach it"]
    alone = replace(find, engine=None, other_builder=False)
    assert isinstance(alone.error(need(f"{UNREACHED}@{DIGEST}")), NetworkError)
