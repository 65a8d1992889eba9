"""Asking a registry: tokens, indexes, every kind of trouble, and no more time than allowed."""

from __future__ import annotations

import gc
import socket
import struct
import time
import warnings
from typing import TYPE_CHECKING

import pytest
from stub_registry import INDEX, LIST, MANIFEST, REPOSITORY, TAG, StubRegistry, make_certificate, sha, tokens_asked

from cannery.engine.io import registry
from cannery.engine.io.registry import MAX_BODY, Access, Answer, Limits, Login, Repository, ask
from cannery.engine.oci import OtherArchError, RefusedError
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BOTH = (Arch.AMD64, Arch.ARM64)
FAST = Limits(connect=0.4, read=0.3, total=0.8)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with StubRegistry() as found:
        yield found


def access(
    *, pip: PipSettings | None = None, user: tuple[str, str] | None = None, limits: Limits | None = None
) -> Access:
    login = Login({"username": user[0], "password": user[1]} if user else {})
    return Access(pip or PipSettings(), lambda _: login, limits or Limits())


def answer(stub: StubRegistry, arch: Arch = Arch.ARM64, found: Access | None = None) -> Answer:
    return ask(stub.reference, arch, BOTH, found or access())


def refusal(stub: StubRegistry, found: Access | None = None) -> str:
    with pytest.raises(RefusedError) as caught:
        answer(stub, found=found)
    return str(caught.value)


@pytest.mark.parametrize("kind", [INDEX, LIST])
def test_an_index_gives_its_own_digest_and_the_targets_configuration(stub: StubRegistry, kind: str) -> None:
    digest = stub.add(config={"Env": ["PATH=/bin", "A=b=c"], "Labels": {"of": "it"}}, kind=kind)
    found = answer(stub)
    assert found.digest == digest
    assert found.config is not None
    assert (found.config.architecture, found.config.env, found.config.labels) == (
        "arm64",
        {"PATH": "/bin", "A": "b=c"},
        {"of": "it"},
    )
    assert answer(stub, Arch.AMD64).config.architecture == "amd64"  # type: ignore[union-attr] # it has one


def test_one_image_without_an_index(stub: StubRegistry) -> None:
    digest = stub.add(["amd64"], kind=MANIFEST)
    found = ask(stub.reference, Arch.AMD64, [Arch.AMD64], access())
    assert found.digest == digest
    assert found.config is not None
    assert found.config.architecture == "amd64"
    with pytest.raises(OtherArchError, match="it has the image for amd64, not for arm64"):
        answer(stub)


def test_an_index_without_an_architecture(stub: StubRegistry) -> None:
    stub.add(["arm64"])
    with pytest.raises(OtherArchError, match="it has the image for arm64, not for amd64"):
        answer(stub)


def test_a_digest_is_asked_for_by_itself(stub: StubRegistry) -> None:
    digest = stub.add()
    assert ask(f"{stub.repository}:gone@{digest}", Arch.ARM64, BOTH, access()).digest == digest
    assert f"/v2/{REPOSITORY}/manifests/{digest}" in stub.paths
    stub.body = b'{"manifests": []}'
    with pytest.raises(RefusedError, match="does not have the expected digest"):
        ask(f"{stub.repository}@{digest}", Arch.ARM64, BOTH, access())


def test_a_token_without_a_login(stub: StubRegistry) -> None:
    stub.auth, digest = "bearer", stub.add()
    assert answer(stub).digest == digest
    assert tokens_asked(stub) == [{"scope": [f"repository:{REPOSITORY}:pull"], "service": ["stub, of a registry"]}]
    assert [path for path, auth in stub.seen if auth == "Bearer let-me-in"] == [
        path for path in stub.paths[1:] if not path.startswith("/token")
    ]


def test_a_token_by_another_name(stub: StubRegistry) -> None:
    stub.auth, stub.token_body, digest = "bearer", b'{"access_token": "let-me-in"}', stub.add()
    assert answer(stub).digest == digest


@pytest.mark.parametrize("auth", ["bearer", "basic"])
def test_a_login(stub: StubRegistry, auth: str) -> None:
    stub.auth, stub.login, digest = auth, "me:s3cret", stub.add()
    assert "HTTP 401" in refusal(stub)
    assert "HTTP 401" in refusal(stub, access(user=("me", "wrong")))
    assert answer(stub, found=access(user=("me", "s3cret"))).digest == digest


def test_a_password_goes_to_no_token_service_without_tls(tmp_path: Path) -> None:
    certificate, context = make_certificate(tmp_path)
    with StubRegistry() as eager, StubRegistry(context=context) as stub:
        stub.auth, stub.realm = "bearer", f"http://{eager.host}/token"
        stub.add()
        assert "HTTP 401" in refusal(stub, access(pip=PipSettings(cert=str(certificate)), user=("me", "s3cret")))
        assert eager.seen == []


def test_credentials_for_package_indexes_stay_there(
    stub: StubRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret")
    monkeypatch.setenv("NETRC", str(netrc))
    digest = stub.add()
    settings = PipSettings(index_url=f"http://me:s3cret@{stub.host}/simple")
    assert answer(stub, found=access(pip=settings)).digest == digest
    assert {auth for _, auth in stub.seen} == {""}


def test_a_redirect_is_followed_and_takes_no_token_along(stub: StubRegistry) -> None:
    with StubRegistry() as other:
        digest = other.add()
        # Another name is another host, to which requests sends no Authorization.
        stub.auth, stub.moved = "bearer", f"http://localhost:{other.server.server_address[1]}"
        assert answer(stub).digest == digest
        assert {auth for _, auth in other.seen} == {""}


def test_another_host_gets_no_credentials_that_it_asks_for(
    stub: StubRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").write_text("default login you password of-netrc")
    with StubRegistry() as other:
        other.add()
        other.auth = "basic"
        stub.auth, stub.login, stub.tags = "basic", "me:s3cret", ["1"]
        with Repository(stub.reference, access(user=("me", "s3cret"))) as repository:
            assert repository.tags() == ("1",)
            stub.moved = f"http://localhost:{other.server.server_address[1]}"
            for read in (
                repository.tags,
                lambda: repository.call("PUT", f"{stub.moved}/v2/{REPOSITORY}/uploads/1", {}, b""),
                lambda: next(repository.blob(sha(b"layer"), 0)),
            ):
                with pytest.raises(RefusedError, match="HTTP 401"):
                    read()
        assert (len(other.seen), {auth for _, auth in other.seen}) == (3, {""})


def test_the_next_page_of_a_list_is_asked_over_tls_as_the_first(tmp_path: Path) -> None:
    certificate, context = make_certificate(tmp_path)
    with StubRegistry(context=context) as stub:
        stub.tags, stub.page = ["1", "2"], 1
        stub.link = f"http://{stub.host}/v2/{REPOSITORY}/tags/list?last=1"
        with Repository(stub.reference, access(pip=PipSettings(cert=str(certificate)))) as repository:
            assert repository.tags() == ("1", "2")


def test_a_response_that_drips_ends_with_the_limit_of_all(stub: StubRegistry) -> None:
    stub.add(["arm64"], {"Labels": {"long": "x" * 40_000}}, kind=MANIFEST)
    stub.drip = 0.2
    started = time.monotonic()
    with (
        pytest.raises(RefusedError, match="time-out"),
        Repository(stub.reference, access(limits=Limits(connect=0.5, read=0.5, total=3.0))) as repository,
    ):
        repository.config(repository.manifest(repository.published(TAG).digest).config)
    assert time.monotonic() - started > 3.0


def test_a_redirect_to_itself_ends(stub: StubRegistry) -> None:
    stub.moved = f"http://{stub.host}"
    assert refusal(stub) == "the server there is not a registry (TooManyRedirects)"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "it has no such image (HTTP 404)"),
        (401, "it refuses access (HTTP 401)"),
        (403, "it refuses access (HTTP 403)"),
        (429, "it limits the rate of requests (HTTP 429; wait a while and try again)"),
        (503, "server error (HTTP 503)"),
        (507, "server error (HTTP 507: its disk is full)"),
        (418, "the server there is not a registry (HTTP 418)"),
    ],
)
def test_statuses(stub: StubRegistry, status: int, words: str) -> None:
    stub.add()
    stub.status = status
    assert refusal(stub) == words


def test_a_token_service_that_refuses(stub: StubRegistry) -> None:
    stub.auth = "bearer"
    stub.token_status = 429
    assert refusal(stub) == "its token service: it limits the rate of requests (HTTP 429; wait a while and try again)"
    stub.token_status, stub.token_body = 200, b'{"token": "with\\nline"}'
    assert refusal(stub).endswith("its token service gives no token")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>log in to this network</html>", "its manifest is no JSON"),
        (b"[" * 100_000, "its manifest is no JSON"),
        (b"[]", "its manifest is no JSON object"),
        (b"{}", "the manifest's config has no SHA-256 digest"),
        (b'{"schemaVersion": 1}', "it has the image in Docker's old schema 1 only, which BuildKit does not take"),
        (b'{"manifests": [{"platform": {"os": "linux"}}]}', "an entry of the index has no SHA-256 digest"),
        (b" " * (MAX_BODY + 1), "its response is larger than 4 MiB"),
    ],
)
def test_malformed_answers(stub: StubRegistry, body: bytes, words: str) -> None:
    stub.add()
    stub.body = body
    assert refusal(stub) == f"the server there is not a registry: {words}"


def test_a_manifest_with_another_digest_than_its_header(stub: StubRegistry) -> None:
    stub.add()
    stub.headers = {"Docker-Content-Digest": sha(b"other")}
    assert "does not have the expected digest" in refusal(stub)


def test_an_index_whose_configuration_cannot_be_read_can_be_built_upon(stub: StubRegistry) -> None:
    digest = stub.add()
    stub.blob_status = 503
    assert answer(stub) == Answer(digest, None, "server error (HTTP 503)")
    stub.blob_status = 200
    stub.blobs = dict.fromkeys(stub.blobs, b'{"architecture": "arm64"}')
    assert answer(stub).unread.endswith("image configuration does not have the expected digest")


def test_a_refused_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        reference = f"127.0.0.1:{taken.getsockname()[1]}/{REPOSITORY}:{TAG}"
        with pytest.raises(RefusedError, match=r"^connection refused$"):
            ask(reference, Arch.ARM64, BOTH, access())


def test_a_host_that_there_is_not() -> None:
    with pytest.raises(RefusedError, match=r"^host name not found$"):
        ask("registry.invalid/cann:1", Arch.ARM64, BOTH, access())


@pytest.mark.parametrize("stall", [5.0, 0.25])
def test_a_slow_registry_gets_no_more_time_than_allowed(stub: StubRegistry, stall: float) -> None:
    stub.add()
    stub.auth, stub.stall = "bearer", stall  # 0.25 s is below each request's limit, and four of them above the whole's
    started = time.monotonic()
    assert refusal(stub, access(limits=FAST)) == "time-out"
    assert time.monotonic() - started < FAST.total + 3


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    certificate, context = make_certificate(tmp_path)
    with StubRegistry(context=context) as stub:
        digest = stub.add()
        # A name that is not this machine's own is never asked without TLS.
        with pytest.raises(RefusedError, match=r"TLS certificate or handshake \(self-signed certificate\)"):
            ask(stub.reference.replace("127.0.0.1", _name()), Arch.ARM64, BOTH, access())
        assert answer(stub, found=access(pip=PipSettings(cert=str(certificate)))).digest == digest
        assert answer(stub, found=access(pip=PipSettings(trusted_hosts=("127.0.0.1",)))).digest == digest


def _name() -> str:
    """A name of this machine that is no loopback address by its looks."""
    return "127.0.0.1.nip.test"


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def look_up(host: str, *rest: object, **more: object) -> object:
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real("127.0.0.1" if host == _name() else host, *rest, **more)  # type: ignore[arg-type] # passed on

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def test_a_client_that_has_gone_leaves_no_socket_open(tmp_path: Path) -> None:
    certificate, context = make_certificate(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with StubRegistry(context=context) as stub:
            digest = stub.add()
            stub.server.shutdown()
            for _ in range(3):
                gone = socket.create_connection(stub.server.server_address[:2])
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it ends with a reset
                gone.close()
            stub.serve(stub.server)
            assert answer(stub, found=access(pip=PipSettings(cert=str(certificate)))).digest == digest
        gc.collect()
    assert [str(each.message) for each in caught if each.category is ResourceWarning] == []


def test_a_certificate_of_another_name(tmp_path: Path) -> None:
    certificate, context = make_certificate(tmp_path, "DNS:other.example")
    with StubRegistry(context=context) as stub:
        stub.add()
        reference = stub.reference.replace("127.0.0.1", _name())
        with pytest.raises(RefusedError, match="TLS certificate or handshake"):
            ask(reference, Arch.ARM64, BOTH, access(pip=PipSettings(cert=str(certificate))))


def test_a_certificate_that_docker_has_for_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, context = make_certificate(tmp_path)
    monkeypatch.setattr(registry, "CERTIFICATES", tmp_path / "certs.d")
    with StubRegistry(context=context) as stub:
        digest = stub.add()
        folder = tmp_path / "certs.d" / stub.host
        folder.mkdir(parents=True)
        (folder / "ca.crt").write_bytes(certificate.read_bytes())
        assert answer(stub).digest == digest


def test_a_certificate_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, context = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with StubRegistry(context=context) as stub:
        digest = stub.add()
        assert answer(stub).digest == digest


def test_a_bundle_that_is_not_there() -> None:
    settings = PipSettings(cert="/nonexist/ca.pem")
    with pytest.raises(RefusedError, match=r"the CA bundle /nonexist/ca\.pem, named by pip's setting `cert`"):
        ask("registry.example/cann:1", Arch.ARM64, BOTH, access(pip=settings))


def test_proxies_and_their_exceptions(stub: StubRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = stub.add()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        proxy = f"http://me:s3cret@127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        monkeypatch.setenv("HTTP_PROXY", proxy)
        with pytest.raises(RefusedError) as caught:
            ask("registry.example/cann:1", Arch.ARM64, BOTH, access())
        assert str(caught.value).startswith("proxy (http://127.0.0.1:")
        assert "named by HTTPS_PROXY" in str(caught.value)
        assert "s3cret" not in str(caught.value)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert answer(stub).digest == digest


def test_credentials_do_not_go_to_another_host(stub: StubRegistry) -> None:
    with StubRegistry() as other:
        stub.auth, stub.login = "basic", "me:s3cret"
        stub.add()
        with Repository(stub.reference, access(user=("me", "s3cret"))) as repository:
            repository.published(TAG)
            with pytest.raises(RefusedError):
                repository.call("GET", f"http://localhost:{other.server.server_address[1]}/v2/x", {})
        assert {auth for _, auth in other.seen} == {""}
