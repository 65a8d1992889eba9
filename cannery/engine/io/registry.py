"""A client of container registries (OCI distribution API): login, manifests, configurations, tags.

It uses pip's proxy, CA bundle and trusted hosts, and also trusts docker's certificates. Credentials only come from
docker's settings, because those of pip and netrc are for other servers.
"""

from __future__ import annotations

import json
import re
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import parse_http_list, parse_keqv_list

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import parse_header_links
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_chain, wait_fixed
from urllib3.exceptions import HTTPError
from urllib3.util import create_urllib3_context

from cannery.engine.io.find import docker_config
from cannery.engine.oci import (
    ACCEPT,
    AbsentError,
    DeniedError,
    Entry,
    ImageConfig,
    MalformedError,
    PassingError,
    Published,
    RefusedError,
    read_config,
    read_manifest,
    read_published,
    read_tags,
    read_token,
    refuse_missing,
)
from cannery.util.addresses import DEFAULT_REGISTRY, digest_of, is_loopback, parse_reference
from cannery.util.io.http import HostSession, trouble
from cannery.util.trouble import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import IO

    from requests.structures import CaseInsensitiveDict

    from cannery.engine.oci import Manifest
    from cannery.util.io.pip_settings import PipSettings
    from cannery.vocab import Arch


@dataclass(frozen=True)
class Login:
    """Docker's entry for a registry, {} without one, and the reason if docker's file or helper cannot be read.

    Never print the entry.
    """

    entry: Mapping[str, Any] = field(default_factory=dict, repr=False)
    fault: str = ""

    @property
    def password(self) -> tuple[str, str] | None:
        """User and password; None without them, as with an identity token."""
        # The file has lower-case keys, a helper does not.
        values = {str(name).lower(): value for name, value in self.entry.items()}
        user, password = values.get("username"), values.get("password")
        return (user, password) if user and password else None


def read_login(registry: str, env: Mapping[str, str]) -> Login:
    """Return docker's login for `registry`. A broken file or helper is not an error, as public images need no login."""
    file = docker_config(env) / "config.json"
    if not file.is_file():
        return Login()
    from docker.auth import AuthConfig  # noqa: PLC0415 - 0.2 s that a host without a login does not pay for
    from docker.errors import DockerException  # noqa: PLC0415

    helper = None
    try:
        json.loads(file.read_text(encoding="utf-8"))  # the SDK reads a file that is not JSON as one without logins
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = AuthConfig.load_config(str(file), None, dict(env))
            helper = config.get_credential_store(registry)
            return Login(dict(config.resolve_authconfig(registry) or {}))
    except (DockerException, OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        # The message may quote the helper's output, which may be secret.
        return Login(fault=f"docker-credential-{helper} does not work" if helper else f"{file} cannot be read")


CERTIFICATES = Path("/etc/docker/certs.d")
DAEMON = Path("/etc/docker/daemon.json")
# By the specification, registries accept manifests of up to 4 MiB. Configurations are smaller.
MAX_BODY = 4 << 20
# Bytes of a manifest or configuration that are waited for at once; the limit of time is looked at in between.
CHUNK = 512
# Bytes of one read of a blob.
BLOCK = 1 << 18
# docker.io is only a name; this host serves its API.
API_HOSTS = {DEFAULT_REGISTRY: "index.docker.io"}
PASSING = frozenset({State.RESET, State.TIMEOUT, State.SERVER, State.BUSY})
KINDS: dict[State, type[RefusedError]] = {
    State.NOT_FOUND: AbsentError,
    State.DENIED: DeniedError,
    **dict.fromkeys(PASSING, PassingError),
}
WORDS = {
    State.NOT_FOUND: "it has no such image",
    State.DENIED: "it refuses access",
    State.BUSY: "it limits the rate of requests",
    State.OTHER: "the server there is not a registry",
}


# The body of a request: bytes, or a function that opens a file.
Body: TypeAlias = "bytes | Callable[[], IO[bytes]] | None"


@dataclass(frozen=True)
class Limits:
    """Seconds: to connect, to wait for bytes, and in all."""

    connect: float = 3.0
    read: float = 4.0
    total: float = 5.0


@dataclass(frozen=True)
class Access:
    """How this host reaches registries.

    - `login` returns docker's credentials for a registry.
    - `plain` are registries that may be used without TLS, like the engine's `insecure-registries`.
    - `actions` are the actions to request with a token; "" requests those that the registry names. Some registries
      refuse a read-only token for a repository that does not exist yet.
    - `waits` are the seconds before each retry of a request.
    """

    pip: PipSettings
    login: Callable[[str], Login]
    limits: Limits = Limits()
    plain: frozenset[str] = frozenset()
    actions: str = ""
    waits: tuple[float, ...] = ()


@dataclass(frozen=True)
class Answer:
    """An image in a registry: the digest of its index or manifest. If `config` is None, `unread` has the reason."""

    digest: str
    config: ImageConfig | None
    unread: str = ""


@dataclass(frozen=True)
class Reply:
    """A response with its complete body; `url` is that of the last redirect."""

    status: int
    headers: CaseInsensitiveDict[str]
    body: bytes
    url: str


def insecure_registries(file: Path = DAEMON) -> frozenset[str]:
    """Return the registries that docker's settings on this host allow without TLS; empty if they cannot be read."""
    try:
        found = json.loads(file.read_bytes())["insecure-registries"]
        return frozenset(name for name in found if isinstance(name, str))
    except (OSError, ValueError, LookupError, TypeError):
        return frozenset()


def ask(text: str, arch: Arch, arches: Sequence[Arch], access: Access) -> Answer:
    """Return the image of the reference `text` for `arch`; it must exist for all `arches`.

    An image is returned even if its configuration cannot be read. Raises `RefusedError`. The limits are for each wait:
    a response that arrives byte by byte takes longer, and the caller has to stop it.
    """
    with Repository(text, access) as repository:
        found = repository.published(repository.reference.wanted, repository.reference.digest or "")
        refuse_missing([entry.arch for entry in found.entries], arches)
        entry = found.entry(arch)
        assert entry is not None  # noqa: S101 - `arch` is one of `arches`
        try:
            return Answer(found.digest, repository.config(repository.manifest(entry.manifest).config))
        except RefusedError as error:
            return Answer(found.digest, None, str(error))


class Repository:
    """One repository of a registry, by a reference in it. Methods only raise `RefusedError`, no errors of requests.

    As in docker, a registry on loopback or in `Access.plain` is used without TLS if it does not support it. `sources`
    are other repositories of the registry (`team/base`), from which blobs may be mounted.
    """

    def __init__(self, text: str, access: Access, sources: Sequence[str] = ()) -> None:
        self.reference = parse_reference(text, "IMAGE")
        self._access, self._sources = access, sources
        self._end = time.monotonic() + access.limits.total
        self._session = RegistrySession(access.pip, self.reference.registry)
        is_plain = is_loopback(self.reference.registry) or self.reference.registry in access.plain
        self._schemes = ["http", "https"] if is_plain else ["https"]  # the last one is tried first
        self._auth: AuthBase = Authorization("")
        self._bodies: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def published(self, wanted: str, digest: str = "", arch: str = "") -> Published:
        """Return the content of a tag or digest; it must have `digest` if that is given.

        For an index, the manifest for `arch` is also read, so that its entry has the digest of its configuration.
        """
        reply = self.call("GET", f"manifests/{wanted}", {"Accept": ACCEPT})
        has = digest_of(reply.body)
        if has != (digest or reply.headers.get("Docker-Content-Digest", "") or has):
            raise MalformedError("its manifest does not have the expected digest")
        self._bodies[has] = reply.body
        found = read_published(has, reply.headers.get("Content-Type", "").partition(";")[0].strip(), reply.body)
        return replace(found, entries=tuple(self._completed(entry, arch) for entry in found.entries))

    def _completed(self, entry: Entry, arch: str) -> Entry:
        if not entry.arch:
            return replace(entry, arch=self.config(entry.config).architecture)
        return replace(entry, config=self.manifest(entry.manifest).config) if entry.arch == arch else entry

    def manifest(self, digest: str) -> Manifest:
        """Return the manifest of one image."""
        return read_manifest(self._content(f"manifests/{digest}", digest, ACCEPT))

    def config(self, digest: str) -> ImageConfig:
        """Return an image's configuration."""
        return read_config(self.config_text(digest))

    def config_text(self, digest: str) -> bytes:
        """Return the bytes of an image's configuration, or of another small blob."""
        return self._content(f"blobs/{digest}", digest, "*/*")

    def tags(self, pages: int = 10) -> tuple[str, ...]:
        """Return the tags of the repository, from at most `pages` responses, because some registries never end."""
        found = self.pages("tags/list?n=1000", "application/json", pages)
        return tuple(tag for reply in found for tag in read_tags(reply.body))

    def pages(self, url: str, accept: str, most: int = 10) -> Iterator[Reply]:
        """Yield the pages of a list, at most `most`."""
        for _ in range(most):
            reply = self.call("GET", url, {"Accept": accept})
            yield reply
            url = _next_page(reply)
            if not url:
                break

    def put_manifest(self, tag: str, media_type: str, body: bytes) -> None:
        """Set `tag` to an index or a manifest, whose parts must be in the repository."""
        self.call("PUT", f"manifests/{tag}", {"Content-Type": media_type}, body)

    def blob(self, digest: str, start: int) -> Iterator[bytes | None]:
        """Yield the blocks of a blob from byte `start`. Yields None first if the registry sends the whole blob."""
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
        if len(self._schemes) > 1:
            self.call("HEAD", f"blobs/{digest}", {})  # finds out whether the registry uses TLS
        url = self._url(f"blobs/{digest}")
        try:
            response = self._request("GET", url, headers, self._auth)
            if response.status_code == 401 and self._may_authorize(response.url):
                self._auth = self._authorize(url, response.headers.get("WWW-Authenticate", ""))
                response.close()
                response = self._request("GET", url, headers, self._auth)
            with response:
                if response.status_code >= 300:
                    raise self._status_error(Reply(response.status_code, response.headers, b"", response.url))
                if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                    yield None
                yield from response.raw.stream(BLOCK, decode_content=False)
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            raise _refused(*trouble(error, self._session, url)) from error

    def _may_authorize(self, url: str) -> bool:
        """Whether the credentials for this registry may go to a URL."""
        return self._session.keeps_auth(self._url(""), url)

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds before each retry of a request."""
        return self._access.waits

    def call(self, method: str, path: str, headers: Mapping[str, str], data: bytes | None = None) -> Reply:
        """Return the response to a request below the repository, or to a whole URL. Temporary failures are retried."""
        waits = self._access.waits
        retry = Retrying(
            retry=retry_if_exception_type(PassingError),
            wait=wait_chain(*map(wait_fixed, waits or (0,))),
            stop=stop_after_attempt(1 + len(waits)),
            reraise=True,
        )
        return retry(self.call_once, method, path, headers, data)

    def call_once(self, method: str, path: str, headers: Mapping[str, str], data: Body = None) -> Reply:
        """Return the response like `call`, without retries."""
        while True:
            url = self._url(path)
            auth = self._auth if self._may_authorize(url) else Authorization("")
            try:
                reply = self._send(method, url, headers, auth, data)
                if reply.status == 401 and self._may_authorize(reply.url):
                    self._auth = self._authorize(url, reply.headers.get("WWW-Authenticate", ""))
                    reply = self._send(method, url, headers, self._auth, data)
                if reply.status >= 300:
                    raise self._status_error(reply)
            except (requests.RequestException, HTTPError, OSError, ValueError) as error:
                state, detail = trouble(error, self._session, url)
                if len(self._schemes) > 1 and state in {State.TLS, State.RESET}:
                    self._schemes.pop()
                    continue
                raise _refused(state, detail) from error
            self._schemes = self._schemes[-1:]
            return reply

    def _url(self, path: str) -> str:
        if "://" in path:
            return path
        host = API_HOSTS.get(self.reference.registry, self.reference.registry)
        return f"{self._schemes[-1]}://{host}/v2/{self.reference.repository}/{path}"

    def _content(self, path: str, digest: str, accept: str) -> bytes:
        if digest not in self._bodies:
            body = self.call("GET", path, {"Accept": accept}).body
            if digest_of(body) != digest:
                raise MalformedError("its manifest or image configuration does not have the expected digest")
            self._bodies[digest] = body
        return self._bodies[digest]

    def _authorize(self, url: str, header: str) -> AuthBase:
        """Return the credentials for the challenge in `header`. Raises `DeniedError` without them."""
        scheme, _, rest = header.strip().partition(" ")
        pairs = [item for item in parse_http_list(rest) if "=" in item]
        challenge = {name.lower(): value for name, value in parse_keqv_list(pairs).items()}
        credentials = self._access.login(self.reference.registry).password
        if scheme.lower() == "basic" and credentials:
            return HTTPBasicAuth(*credentials)
        realm = challenge.get("realm", "")
        # A password is only sent to a token service over TLS, unless the registry does not use TLS.
        if scheme.lower() != "bearer" or not realm.startswith(("https://", f"{urlsplit(url).scheme}://")):
            raise _refused(State.DENIED, "HTTP 401")
        own = f"repository:{self.reference.repository}:{self._access.actions or 'pull'}"
        scopes = [own if self._access.actions else challenge.get("scope") or own]
        query: dict[str, Any] = {"scope": [*scopes, *(f"repository:{source}:pull" for source in self._sources)]}
        query |= {"service": challenge["service"]} if "service" in challenge else {}
        login = HTTPBasicAuth(*credentials) if credentials else Authorization("")
        at = f"{realm}{'&' if urlsplit(realm).query else '?'}{urlencode(query, doseq=True)}"
        reply = self._send("GET", at, {"Accept": "application/json"}, login)
        if reply.status != 200:
            raise self._status_error(reply, "its token service: ")
        return Authorization(f"Bearer {read_token(reply.body)}")

    def _request(
        self, method: str, url: str, headers: Mapping[str, str], auth: AuthBase, data: bytes | IO[bytes] | None = None
    ) -> requests.Response:
        """Return a response before its body is read."""
        limits, left = self._access.limits, self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        wait = (min(limits.connect, left), min(limits.read, left))
        return self._session.request(
            method, url, headers=dict(headers), auth=auth, data=data, timeout=wait, stream=True
        )

    def _send(self, method: str, url: str, headers: Mapping[str, str], auth: AuthBase, data: Body = None) -> Reply:
        with ExitStack() as stack:
            sent = stack.enter_context(data()) if callable(data) else data
            response = stack.enter_context(self._request(method, url, headers, auth, sent))
            body = bytearray()
            for chunk in response.iter_content(CHUNK):
                body += chunk
                if time.monotonic() > self._end:
                    raise TimeoutError
                if len(body) > MAX_BODY:
                    raise MalformedError(f"its response is larger than {MAX_BODY >> 20} MiB")
            return Reply(response.status_code, response.headers, bytes(body), response.url)

    def _status_error(self, reply: Reply, who: str = "") -> RefusedError:
        """Return the error for a status. A 404 from a token service (`who`) does not mean a missing image."""
        if reply.status == 404:
            return _refused(State.OTHER if who else State.NOT_FOUND, "HTTP 404", who)
        if reply.status == 416:  # the registry was still writing the data from before a lost connection
            return PassingError("it has another part of the upload (HTTP 416)")
        response = requests.Response()
        response.status_code, response.headers = reply.status, reply.headers
        error = requests.HTTPError(response=response)
        state, detail = trouble(error, self._session, reply.url)
        code = _error_code(reply.body)
        return (
            RefusedError(f"{who}it refuses: {code} ({detail})")
            if code and state is State.OTHER
            else _refused(state, detail, who)
        )


def named_url(reply: Reply, named: str) -> str:
    """Return a URL that a response names. On the same host it keeps our scheme: a proxy in between may add TLS."""
    asked, found = urlsplit(reply.url), urlsplit(urljoin(reply.url, named))
    return (found._replace(scheme=asked.scheme) if found.netloc == asked.netloc else found).geturl()


def _next_page(reply: Reply) -> str:
    """Return the URL of the next page, if it is on the same host (credentials are only for this host), else ""."""
    links = parse_header_links(reply.headers.get("Link", ""))
    try:
        url = next((named_url(reply, link["url"]) for link in links if link.get("rel") == "next"), "")
        return url if urlsplit(url).netloc == urlsplit(reply.url).netloc else ""
    except ValueError as error:
        raise MalformedError("its link to the next page of a list is no URL") from error


def _refused(state: State, detail: str, who: str = "") -> RefusedError:
    words = f"{who}{WORDS.get(state, str(state))}"
    return KINDS.get(state, RefusedError)(f"{words} ({detail})" if detail else words)


def _error_code(body: bytes) -> str:
    """Return the code in the body of an error (OCI distribution specification, "Error Codes"), or ""."""
    try:
        code = str(json.loads(body)["errors"][0]["code"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return code if re.fullmatch(r"[A-Z_]{3,40}", code) else ""


class RegistrySession(HostSession):
    """A session with pip's proxy and CA bundle, which also trusts the certificates of the system and of docker."""

    def __init__(self, settings: PipSettings, registry: str) -> None:
        super().__init__(settings)
        self.max_redirects = 5
        self.mount("https://", _TrustingAdapter(()))
        self.mount(f"https://{registry}/", _TrustingAdapter(sorted((CERTIFICATES / registry).glob("*.crt"))))

    def keeps_auth(self, url: str, other: str) -> bool:
        """Whether the credentials for `url` may go to `other`: to no other host, and not from TLS to plain HTTP."""
        return not self.should_strip_auth(url, other)  # type: ignore[no-untyped-call]

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Remove the credentials of a request that is redirected elsewhere. Unlike requests, add none of netrc."""
        if not self.keeps_auth(str(response.request.url), str(prepared_request.url)):
            prepared_request.headers.pop("Authorization", None)


class _TrustingAdapter(HTTPAdapter):
    def __init__(self, certificates: Sequence[Path]) -> None:
        self._certificates = certificates
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - requests' own signature
        super().init_poolmanager(*args, **kwargs, ssl_context=self._context())

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:  # noqa: ANN401 - requests' own signature
        return super().proxy_manager_for(proxy, **kwargs, ssl_context=self._context())

    def _context(self) -> Any:  # noqa: ANN401 - urllib3 chooses the class
        context = create_urllib3_context()
        # urllib3 checks host names itself. For a trusted host of pip it must not verify anything.
        context.check_hostname = False
        context.load_default_certs()
        for path in self._certificates:
            context.load_verify_locations(cafile=str(path))
        return context


class Authorization(AuthBase):
    """The Authorization header for a registry. It replaces the session's credentials for package indexes."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the header, unless the value is empty."""
        if self.value:
            request.headers["Authorization"] = self.value
        return request
