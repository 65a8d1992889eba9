"""Ask a container registry for an image (OCI distribution API): its digest, its platforms, its configuration.

Nothing is downloaded but a few KB. How the host reaches it is `registry_session`'s business.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import requests
from requests.auth import HTTPBasicAuth
from urllib3.exceptions import HTTPError

from cannery.core.image_reference import DEFAULT_REGISTRY, is_loopback, parse_reference
from cannery.core.oci import (
    ACCEPT,
    ImageConfig,
    Index,
    MalformedError,
    parse_challenge,
    read_config,
    read_manifest,
    read_tags,
    read_token,
)
from cannery.edge.index_trouble import State, trouble
from cannery.edge.registry_session import Authorization, RegistrySession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from requests.auth import AuthBase

    from cannery.core.image_reference import ImageReference
    from cannery.core.words import Arch
    from cannery.edge.pipconf import PipSettings

T = TypeVar("T")
# The specification asks registries to take manifests of 4 MiB; configurations are smaller.
MAX_BODY = 4 * 1024 * 1024
# docker.io is a name only; this host serves its API.
API_HOSTS = {DEFAULT_REGISTRY: "index.docker.io"}
LOGIN = "it refuses access"
STATUSES = {404: "it has no such image", 401: LOGIN, 403: LOGIN, 429: "it limits the rate of requests"}
PASSING = frozenset({State.RESET, State.TIMEOUT, State.SERVER, State.BUSY})
# The words of `trouble` for what is no registry's own answer.
NOT_A_REGISTRY = "what answers there is no registry"


class RefusedError(Exception):
    """Why a registry gives no image; the text is for the user, without secrets."""


class OtherArchError(RefusedError):
    """The image is there, and not for this architecture."""


class AbsentError(RefusedError):
    """The registry answers, and has no such image."""


class DeniedError(RefusedError):
    """The registry, or its token service, refuses access."""


class PassingError(RefusedError):
    """Trouble that another try may not meet: a lost connection, silence, an overloaded server."""


@dataclass(frozen=True)
class Limits:
    """Seconds: to connect, to wait for bytes, and in all."""

    connect: float = 3.0
    read: float = 4.0
    total: float = 5.0


@dataclass(frozen=True)
class Answer:
    """An image that a registry has: the digest of its index or manifest; `config` None where `unread` says why."""

    digest: str
    config: ImageConfig | None
    unread: str = ""


@dataclass(frozen=True)
class Access:
    """How this host reaches registries: pip's settings, and docker's credentials by registry, (user, password).

    `plain` are registries that the engine is told to ask without TLS (`insecure-registries`). `actions` are what a
    token is asked for, "" for what the registry says: to one that may only read, some refuse what is not there yet.
    """

    pip: PipSettings
    credentials: Callable[[str], tuple[str, str] | None]
    limits: Limits = Limits()
    plain: frozenset[str] = frozenset()
    actions: str = ""


def ask(text: str, arch: Arch, arches: Sequence[Arch], access: Access) -> Answer:
    """Return what the registry of the reference `text` has for `arch`; it must be there for each of `arches`.

    Raises `RefusedError`. The limits hold for each wait: an answer that drips takes longer, and is the caller's to end.
    """
    return on_registry(text, access, lambda registry: registry.answer(arch, arches))


def on_registry(text: str, access: Access, job: Callable[[Registry], T]) -> T:
    """Return what `job` makes of the registry of the reference `text`. Raises `RefusedError`, and nothing of requests'.

    A loopback registry that speaks no TLS is asked without, as docker does.
    """
    reference = parse_reference(text)
    end = time.monotonic() + access.limits.total
    plain = is_loopback(reference.registry) or reference.registry in access.plain
    schemes = ("https", "http") if plain else ("https",)
    for scheme in schemes:
        with RegistrySession(access.pip, reference.registry) as session:
            registry = Registry(session, reference, access, scheme, end)
            try:
                return job(registry)
            except (requests.RequestException, HTTPError, OSError, ValueError) as error:
                state, reason = registry.reason(error)
                if scheme == schemes[-1] or state not in {State.TLS, State.RESET}:
                    raise (PassingError if state in PASSING else RefusedError)(reason) from error
    raise AssertionError("a scheme is asked, or raises")


class Registry:
    """One registry while it is asked: it keeps the token that it was given.

    Its methods raise as requests does, `RefusedError`, and `MalformedError` for what is no registry's answer.
    """

    def __init__(
        self, session: RegistrySession, reference: ImageReference, access: Access, scheme: str, end: float
    ) -> None:
        self.session = session
        self.reference = reference
        self.access = access
        self.end = end
        host = API_HOSTS.get(reference.registry, reference.registry)
        self.url = f"{scheme}://{host}/v2/{reference.repository}"
        self.auth: AuthBase = Authorization("")

    def answer(self, arch: Arch, arches: Sequence[Arch]) -> Answer:
        """Return the image for `arch`, where it is there for all of `arches`."""
        digest, _, body = self.manifest(self.reference.wanted, self.reference.digest or "")
        found = read_manifest(body)
        if isinstance(found, Index):
            refuse_lacking(tuple(found.manifests), arches)
            return self._read(digest, found.manifests[arch])
        config = read_config(self.blob(found.config))
        refuse_lacking((config.architecture,), arches)
        return Answer(digest, config)

    def _read(self, index: str, manifest: str) -> Answer:
        """Read the configuration of one image of an index; without it the image can be built upon as well."""
        try:
            _, _, body = self.manifest(manifest)
            found = read_manifest(body)
            if isinstance(found, Index):
                raise MalformedError("its index leads to an index")
            return Answer(index, read_config(self.blob(found.config)))
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            return Answer(index, None, self.reason(error)[1])

    def manifest(self, wanted: str, digest: str = "") -> tuple[str, str, bytes]:
        """Return digest, media type and text of an index or a manifest; `digest` is what it must have."""
        body, headers = self._get(f"{self.url}/manifests/{wanted}", ACCEPT)
        has = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if has != (digest or headers.get("Docker-Content-Digest", "") or has):
            raise MalformedError("its manifest does not have the digest that it should have")
        return has, headers.get("Content-Type", "").partition(";")[0].strip(), body

    def blob(self, digest: str) -> bytes:
        """Return an image's configuration."""
        body, _ = self._get(f"{self.url}/blobs/{digest}", "*/*")
        if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
            raise MalformedError("its image configuration does not have the digest that it should have")
        return body

    def tags(self, pages: int = 10) -> tuple[str, ...]:
        """Return the tags of the repository, of `pages` answers at the most: some registries have no end of them."""
        found: list[str] = []
        url = f"{self.url}/tags/list?n=1000"
        for _ in range(pages):
            body, headers = self._get(url, "application/json")
            found += read_tags(body)
            following = requests.utils.parse_header_links(headers.get("Link", ""))
            path = next((link["url"] for link in following if link.get("rel") == "next"), None)
            if path is None:
                break
            url = urljoin(url, path)
            if urlsplit(url).netloc != urlsplit(self.url).netloc:
                break  # credentials stay with the host that they are for
        return tuple(found)

    def put_manifest(self, tag: str, media_type: str, body: bytes) -> None:
        """Put an index or a manifest under `tag`; what it names must be in the repository."""
        self._call("PUT", f"{self.url}/manifests/{tag}", {"Content-Type": media_type}, body)

    def _get(self, url: str, accept: str) -> tuple[bytes, requests.structures.CaseInsensitiveDict[str]]:
        return self._call("GET", url, {"Accept": accept})

    def _call(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None = None
    ) -> tuple[bytes, requests.structures.CaseInsensitiveDict[str]]:
        status, got, body = self._once(method, url, headers, self.auth, data)
        if status == 401:
            self.auth = self._authorize(got.get("WWW-Authenticate", ""))
            status, got, body = self._once(method, url, headers, self.auth, data)
        if status not in {200, 201}:
            raise _refused(status)
        return body, got

    def _authorize(self, header: str) -> AuthBase:
        """Return what the challenge in `header` asks for. Raises `RefusedError` without it."""
        challenge = parse_challenge(header)
        credentials = self.access.credentials(self.reference.registry)
        if challenge.scheme == "basic" and credentials:
            return HTTPBasicAuth(*credentials)
        realm = challenge.parameters.get("realm", "")
        # A password goes to a token service over TLS, unless the registry itself is asked without.
        if challenge.scheme != "bearer" or not realm.startswith(("https://", f"{urlsplit(self.url).scheme}://")):
            raise _refused(401)
        own = f"repository:{self.reference.repository}:{self.access.actions or 'pull'}"
        scope = own if self.access.actions else challenge.parameters.get("scope") or own
        query = {"scope": scope} | {k: v for k, v in challenge.parameters.items() if k == "service"}
        url = f"{realm}{'&' if urlsplit(realm).query else '?'}{urlencode(query)}"
        login = HTTPBasicAuth(*credentials) if credentials else Authorization("")
        status, _, body = self._once("GET", url, {"Accept": "application/json"}, login)
        if status != 200:
            raise _refused(status, "its token service: ")
        return Authorization(f"Bearer {read_token(body)}")

    def _once(
        self, method: str, url: str, headers: Mapping[str, str], auth: AuthBase, data: bytes | None = None
    ) -> tuple[int, requests.structures.CaseInsensitiveDict[str], bytes]:
        limits = self.access.limits
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        wait = (min(limits.connect, left), min(limits.read, left))
        send = self.session.request
        with send(method, url, headers=headers, auth=auth, data=data, timeout=wait, stream=True) as response:
            body = bytearray()
            for chunk in response.iter_content(65536):
                body += chunk
                if len(body) > MAX_BODY:
                    raise MalformedError(f"its answer is larger than {MAX_BODY >> 20} MiB")
            if response.status_code == 407 or response.status_code >= 500:
                raise requests.HTTPError(response=response)
            return response.status_code, response.headers, bytes(body)

    def reason(self, error: Exception) -> tuple[State, str]:
        """Return the kind of trouble and the words for the user."""
        if isinstance(error, MalformedError):
            return State.OTHER, f"{NOT_A_REGISTRY}: {error}"
        state, detail = trouble(error, self.session, self.url)
        words = NOT_A_REGISTRY if state is State.OTHER else str(state)
        return state, f"{words} ({detail})" if detail else words


def refuse_lacking(has: Sequence[str], arches: Sequence[Arch]) -> None:
    """Raise `OtherArchError` where an image that is there for the architectures `has` lacks one of `arches`."""
    lacking = [arch for arch in arches if arch not in has]
    if lacking:
        has_words = " and ".join(has) or "no platform"
        raise OtherArchError(f"it has the image for {has_words}, not for {' and '.join(lacking)}")


def _refused(status: int, who: str = "") -> RefusedError:
    """Return the error for a status; a token service's 404 says nothing of an image."""
    kinds: dict[int, type[RefusedError]] = {401: DeniedError, 403: DeniedError, 429: PassingError}
    kinds |= {} if who else {404: AbsentError}
    return kinds.get(status, RefusedError)(f"{who}{STATUSES.get(status, NOT_A_REGISTRY)} (HTTP {status})")
