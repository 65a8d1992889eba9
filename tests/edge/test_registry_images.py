"""What stands under a tag, which tags there are, and setting one: against a stub registry."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from stub_registry import INDEX, LIST, MANIFEST, REPOSITORY, TAG, StubRegistry, sha, tokens_asked

from cannery.context import Context
from cannery.engine.io.docker_login import auth_header, login, login_state
from cannery.engine.io.registry import on_registry
from cannery.engine.io.registry_calls import Access
from cannery.engine.io.registry_errors import AbsentError, DeniedError, RefusedError
from cannery.errors import ExitCode, NetworkError
from cannery.ship.io import registry as registry_images
from cannery.ship.io import shipping
from cannery.ship.io.registry import Place, place_of, published, put, tags
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch

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


def settings(folder: Path, host: str, password: str = "s3cret") -> dict[str, str]:
    auth = base64.b64encode(f"me:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return {"DOCKER_CONFIG": str(folder)}


@pytest.fixture
def place(stub: StubRegistry, tmp_path: Path) -> Place:
    context = Context(tmp_path, tmp_path, settings(tmp_path, stub.host), Arch.AMD64, is_terminal=False)
    vars(context)["pip"] = PipSettings()
    return place_of(context, SimpleNamespace(), stub.reference, frozenset())  # type: ignore[arg-type] # never asked


@pytest.mark.parametrize("kind", [INDEX, LIST])
def test_every_image_of_an_index(stub: StubRegistry, place: Place, kind: str) -> None:
    digest = stub.add(kind=kind)
    found = published(place, stub.reference)
    assert found is not None
    assert (found.digest, found.media_type, found.body) == (digest, kind, stub.manifests[TAG][1])
    assert [entry.arch for entry in found.entries] == ["amd64", "arm64"]
    for entry in found.entries:
        assert json.loads(stub.blobs[entry.config])["architecture"] == entry.arch
        assert sha(stub.manifests[entry.manifest][1]) == entry.manifest
        assert entry.descriptor["digest"] == entry.manifest


def test_a_manifest_that_stands_alone_has_the_platform_of_its_configuration(stub: StubRegistry, place: Place) -> None:
    digest = stub.add(["arm64"], kind=MANIFEST)
    found = published(place, stub.reference)
    assert found is not None
    (entry,) = found.entries
    assert (entry.arch, entry.manifest) == ("arm64", digest)
    assert entry.descriptor == {"mediaType": MANIFEST, "digest": digest, "size": len(stub.manifests[digest][1])}


def test_what_is_not_there_is_none_and_what_is_refused_an_error(stub: StubRegistry, place: Place) -> None:
    assert published(place, stub.reference) is None
    stub.auth, stub.login = "basic", "me:another"
    with pytest.raises(NetworkError, match="does not take the login that docker's settings have") as caught:
        published(place, stub.reference)
    assert (caught.value.code, caught.value.where) == (ExitCode.NETWORK, stub.host)
    assert f"docker login {stub.host}" in caught.value.hint
    assert "s3cret" not in str(caught.value)
    assert len(stub.seen) == 3  # asked once for each, and once with the login: no second try


def test_the_kinds_of_refusal(stub: StubRegistry) -> None:
    access = Access(PipSettings(), lambda _: None)
    for status, kind in ((404, AbsentError), (401, DeniedError), (403, DeniedError), (418, RefusedError)):
        stub.status = status
        with pytest.raises(RefusedError) as caught:
            on_registry(stub.reference, access, lambda registry: registry.manifest(TAG))
        assert type(caught.value) is kind
    stub.status, stub.auth, stub.token_status = 200, "bearer", 404
    with pytest.raises(RefusedError) as caught:
        on_registry(stub.reference, access, lambda registry: registry.manifest(TAG))
    assert type(caught.value) is RefusedError  # no word on the image


def test_what_may_pass_is_asked_again(stub: StubRegistry, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def mended(seconds: float) -> None:
        if seconds:  # the stub itself sleeps for none
            waits.append(seconds)
            stub.status = 200

    monkeypatch.setattr(registry_images.time, "sleep", mended)
    digest, stub.status = stub.add(), 503
    found = published(place, stub.reference)
    assert found is not None
    assert (found.digest, waits) == (digest, [registry_images.SHORT_WAITS[0]])


def test_a_push_asks_for_a_token_to_push(stub: StubRegistry, place: Place) -> None:
    stub.auth = "bearer"
    stub.add()
    assert published(replace(place, access=replace(place.access, actions="pull,push")), stub.reference) is not None
    assert tokens_asked(stub)[0]["scope"] == [f"repository:{REPOSITORY}:pull,push"]


def test_all_pages_of_tags(stub: StubRegistry, place: Place) -> None:
    stub.tags, stub.page = [f"t{n}" for n in range(7)], 3
    assert tags(place, stub.reference) == tuple(stub.tags)
    stub.tags = []
    assert tags(place, stub.reference) == ()
    stub.status = 500
    assert tags(place, stub.reference) == ()


def test_credentials_do_not_follow_to_another_host(stub: StubRegistry, place: Place) -> None:
    with StubRegistry() as other:
        stub.tags, stub.page, stub.link = ["a", "b"], 1, f"http://{other.host}/v2/{REPOSITORY}/tags/list?last=1"
        assert tags(place, stub.reference) == ("a",)
        assert other.seen == []


@pytest.mark.parametrize("auth", ["", "basic", "bearer"])
def test_a_tag_is_set(stub: StubRegistry, place: Place, auth: str) -> None:
    stub.add()
    stub.auth, stub.login = auth, "me:s3cret" if auth == "basic" else ""
    put(place, f"{stub.repository}:moving", INDEX, b"{}")
    assert stub.manifests["moving"] == (INDEX, b"{}")
    stub.status = 200
    stub.login, stub.auth = "me:another", "basic"
    with pytest.raises(NetworkError, match="does not take the login"):
        put(place, f"{stub.repository}:moving", INDEX, b"[]")
    assert stub.manifests["moving"] == (INDEX, b"{}")


def test_what_the_engine_is_handed_to_log_in_with(tmp_path: Path) -> None:
    env = settings(tmp_path, "registry.example")
    header = json.loads(base64.urlsafe_b64decode(auth_header("registry.example", env)))
    assert (header["username"], header["password"]) == login("registry.example", env) == ("me", "s3cret")
    assert login_state("registry.example", env) == (True, "")
    assert login_state("other.example", env) == (False, "")
    assert base64.urlsafe_b64decode(auth_header("other.example", env)) == b"{}"
    (tmp_path / "config.json").write_text('{"auths": {"registry.example": {"identitytoken": "t0ken"}}}')
    header = json.loads(base64.urlsafe_b64decode(auth_header("registry.example", env)))
    assert header["IdentityToken"] == "t0ken"
    assert login("registry.example", env) is None
    assert login_state("registry.example", env) == (True, "")


@pytest.mark.parametrize(("changes", "words"), [("", "build.py image stack builds"), ("idna==3.10", "with the same")])
def test_what_is_not_there_is_built_by_the_options_that_were_given(
    monkeypatch: pytest.MonkeyPatch, changes: str, words: str
) -> None:
    monkeypatch.setattr(shipping, "published", lambda *_: None)
    monkeypatch.setattr(shipping, "tags", lambda *_: ())
    monkeypatch.setattr(shipping, "near_words", lambda *_: "there is nothing for it")
    recipe = SimpleNamespace(name="stack", changes=changes)
    dock: Any = SimpleNamespace(
        place=None, reference="r/stack:1", arch="amd64", plan=SimpleNamespace(tag="1", recipe=recipe)
    )
    assert words in shipping.absent(dock).hint
