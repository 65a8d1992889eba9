"""What is under a tag, which tags there are, and setting one: against a stub registry."""

from __future__ import annotations

import json
import socket
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from stub_registry import INDEX, LIST, MANIFEST, REPOSITORY, TAG, StubRegistry, sha, tokens_asked

from cannery.engine.io.client import OCI_REFUSED
from cannery.engine.io.registry import Access, Login, Repository, insecure_registries
from cannery.engine.oci import AbsentError, DeniedError, PassingError, RefusedError, read_published
from cannery.errors import ExitCode, NetworkError
from cannery.ship.io import registry as registry_images
from cannery.ship.io.index import read_registry
from cannery.ship.io.registry import REQUEST_WAITS, UNREACHED, Dock, _put, published
from cannery.ship.published import DOCKER_MANIFEST, merged_index
from cannery.util.io.pip_settings import PipSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with StubRegistry() as found:
        yield found


@pytest.fixture
def dock(stub: StubRegistry) -> Dock:
    target = SimpleNamespace(arch="arm64")
    plan: Any = SimpleNamespace(reference="stack:1", recipe=SimpleNamespace(target=target))
    place: Any = SimpleNamespace()  # never asked
    login = Login({"username": "me", "password": "s3cret"})
    access = Access(PipSettings(), lambda _: login, waits=REQUEST_WAITS)
    return Dock(place, plan, stub.host, access, print, lambda *_: nullcontext())  # type: ignore[arg-type,return-value]


def tags(stub: StubRegistry) -> tuple[str, ...]:
    with Repository(stub.reference, Access(PipSettings(), lambda _: Login())) as repository:
        return repository.tags()


@pytest.mark.parametrize("kind", [INDEX, LIST])
def test_every_image_of_an_index(stub: StubRegistry, dock: Dock, kind: str) -> None:
    digest = stub.add(kind=kind)
    found = published(dock, stub.reference)
    assert found is not None
    assert (found.digest, found.media_type, found.body) == (digest, kind, stub.manifests[TAG][1])
    assert [entry.arch for entry in found.entries] == ["amd64", "arm64"]
    for entry in found.entries:
        assert sha(stub.manifests[entry.manifest][1]) == entry.descriptor["digest"] == entry.manifest
    # Only the image of the plan's architecture is read.
    amd64, arm64 = found.entries
    assert (amd64.config, json.loads(stub.blobs[arm64.config])["architecture"]) == ("", "arm64")


def test_a_manifest_without_an_index_has_the_platform_of_its_configuration(stub: StubRegistry, dock: Dock) -> None:
    digest = stub.add(["arm64"], kind=MANIFEST)
    found = published(dock, stub.reference)
    assert found is not None
    (entry,) = found.entries
    assert (entry.arch, entry.manifest) == ("arm64", digest)
    assert entry.descriptor == {"mediaType": MANIFEST, "digest": digest, "size": len(stub.manifests[digest][1])}


def test_what_is_not_there_is_none_and_what_is_refused_an_error(stub: StubRegistry, dock: Dock) -> None:
    assert published(dock, stub.reference) is None
    stub.auth, stub.login = "basic", "me:another"
    with pytest.raises(NetworkError, match="does not take the login that docker's settings have") as caught:
        published(dock, stub.reference)
    assert (caught.value.code, caught.value.where) == (ExitCode.NETWORK, stub.host)
    assert f"docker login {stub.host}" in caught.value.hint
    assert "s3cret" not in str(caught.value)
    assert len(stub.seen) == 3  # asked once for each, and once with the login: no second try


def test_a_registry_that_cannot_be_reached_has_one_hint_in_every_command(dock: Dock) -> None:
    """An engine may have a proxy of its own, but this host reads the tags."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    lost = replace(dock, registry=f"{closed}/team")
    with pytest.raises(NetworkError) as one:
        published(lost, f"{closed}/team/stack:1")
    with pytest.raises(NetworkError) as other:
        list(read_registry(f"{closed}/team", ["stack"], dock.access, print))
    assert one.value.hint == other.value.hint == UNREACHED
    assert "can be reached from this host" in UNREACHED


def test_an_identity_token_is_no_login_that_was_refused(stub: StubRegistry, dock: Dock) -> None:
    """Azure's registry gives Docker one; only Docker can ask for access with it."""
    stub.auth, stub.login = "bearer", "me:s3cret"
    token = replace(dock.access, login=lambda _: Login({"IdentityToken": "t0ken"}))
    with pytest.raises(NetworkError, match="no password for it, only a token that Docker alone can use") as caught:
        published(replace(dock, access=token), stub.reference)
    assert "t0ken" not in str(caught.value)


def test_the_kinds_of_refusal(stub: StubRegistry) -> None:
    def refusal() -> type[RefusedError]:
        with (
            pytest.raises(RefusedError) as caught,
            Repository(stub.reference, Access(PipSettings(), lambda _: Login())) as repository,
        ):
            repository.published(TAG)
        return caught.type

    for status, kind in (
        *((404, AbsentError), (401, DeniedError), (403, DeniedError), (418, RefusedError)),
        *((429, PassingError), (503, PassingError), (507, PassingError)),
    ):
        stub.status = status
        assert refusal() is kind
    stub.status, stub.auth, stub.token_status = 200, "bearer", 404
    assert refusal() is RefusedError  # no word on the image
    stub.token_status = 429
    assert refusal() is PassingError


def test_what_may_pass_is_retried(stub: StubRegistry, dock: Dock, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def repaired(seconds: float) -> None:
        if seconds:  # the stub itself sleeps for none
            waits.append(seconds)
            stub.status = 200

    monkeypatch.setattr("time.sleep", repaired)
    digest, stub.status = stub.add(), 503
    found = published(dock, stub.reference)
    assert found is not None
    assert (found.digest, waits) == (digest, [REQUEST_WAITS[0]])


def test_a_push_asks_for_a_token_to_push(stub: StubRegistry, dock: Dock) -> None:
    stub.auth = "bearer"
    stub.add()
    assert published(replace(dock, access=replace(dock.access, actions="pull,push")), stub.reference) is not None
    assert tokens_asked(stub)[0]["scope"] == [f"repository:{REPOSITORY}:pull,push"]


def test_a_push_that_mounts_asks_to_read_the_other_repositories_too(stub: StubRegistry, dock: Dock) -> None:
    stub.auth = "bearer"
    stub.add()
    with Repository(stub.reference, replace(dock.access, actions="pull,push"), ["team/base"]) as repository:
        repository.published(TAG)
    assert tokens_asked(stub)[0]["scope"] == [f"repository:{REPOSITORY}:pull,push", "repository:team/base:pull"]


def test_all_pages_of_tags(stub: StubRegistry) -> None:
    stub.tags, stub.page = [f"t{n}" for n in range(7)], 3
    assert tags(stub) == tuple(stub.tags)
    stub.tags = []
    assert tags(stub) == ()
    stub.status = 500
    with pytest.raises(PassingError):
        tags(stub)


def test_credentials_do_not_follow_to_another_host(stub: StubRegistry) -> None:
    with StubRegistry() as other:
        stub.tags, stub.page, stub.link = ["a", "b"], 1, f"http://{other.host}/v2/{REPOSITORY}/tags/list?last=1"
        assert tags(stub) == ("a",)
        assert other.seen == []


@pytest.mark.parametrize("auth", ["", "basic", "bearer"])
def test_a_tag_is_set(stub: StubRegistry, dock: Dock, auth: str) -> None:
    stub.add()
    stub.auth, stub.login = auth, "me:s3cret" if auth == "basic" else ""
    _put(dock, f"{stub.repository}:moving", INDEX, b"{}")
    assert stub.manifests["moving"] == (INDEX, b"{}")
    stub.status = 200
    stub.login, stub.auth = "me:another", "basic"
    with pytest.raises(NetworkError, match="does not take the login"):
        _put(dock, f"{stub.repository}:moving", INDEX, b"[]")
    assert stub.manifests["moving"] == (INDEX, b"{}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"insecure-registries": ["r.example:5000", 7]}', {"r.example:5000"}),
        ("{}", set()),
        ("[]", set()),
        ("{", set()),
        ('{"insecure-registries": null}', set()),
    ],
)
def test_registries_without_tls_are_those_of_dockers_settings(tmp_path: Path, text: str, found: set[str]) -> None:
    file = tmp_path / "daemon.json"
    assert insecure_registries(file) == set()
    file.write_text(text)
    assert insecure_registries(file) == found


@pytest.mark.parametrize(("changes", "words"), [("", "build.py image stack builds"), ("idna==3.10", "with the same")])
def test_what_is_not_there_is_built_by_the_options_that_were_given(
    monkeypatch: pytest.MonkeyPatch, changes: str, words: str
) -> None:
    monkeypatch.setattr(registry_images, "published", lambda *_: None)
    recipe = SimpleNamespace(name="stack", changes=changes)
    dock: Any = SimpleNamespace(
        reference="r/stack:1", registry="r", arch="amd64", plan=SimpleNamespace(tag="1", recipe=recipe)
    )
    assert words in registry_images.absent(dock).hint


def test_a_registry_that_takes_no_oci_manifests_gets_dockers(stub: StubRegistry, dock: Dock) -> None:
    stub.refuses_oci = True
    mine = {"mediaType": DOCKER_MANIFEST, "digest": sha(b"mine"), "size": 4}
    there = read_published(sha(b"x"), LIST, json.dumps(_list_of(DOCKER_MANIFEST)).encode())
    kind, body = merged_index(there, "arm64", mine)
    assert kind == LIST
    _put(dock, f"{stub.repository}:both", kind, body)
    assert stub.manifests["both"] == (LIST, body)
    kind, body = merged_index(there, "arm64", {**mine, "mediaType": MANIFEST})
    with pytest.raises(NetworkError) as caught:
        _put(dock, f"{stub.repository}:oci", kind, body)
    assert caught.value.hint == OCI_REFUSED
    assert "oci" not in stub.manifests


def _list_of(kind: str) -> dict[str, Any]:
    platform = {"os": "linux", "architecture": "amd64"}
    return {"manifests": [{"mediaType": kind, "digest": sha(b"other"), "size": 5, "platform": platform}]}
