"""Calls of a registry's API over HTTP: the login that it asks for, limits of time and size, words for trouble."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import requests
from requests.auth import HTTPBasicAuth

from cannery.engine.io.registry_errors import NOT_A_REGISTRY, refused
from cannery.engine.io.registry_session import Authorization
from cannery.engine.oci import MalformedError, parse_challenge, read_token
from cannery.util.image_reference import DEFAULT_REGISTRY
from cannery.util.io.trouble import trouble
from cannery.util.trouble import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from requests.auth import AuthBase

    from cannery.engine.io.registry_session import RegistrySession
    from cannery.util.image_reference import ImageReference
    from cannery.util.io.pip_settings import PipSettings

# The specification asks registries to take manifests of 4 MiB; configurations are smaller.
MAX_BODY = 4 * 1024 * 1024
# docker.io is a name only; this host serves its API.
API_HOSTS = {DEFAULT_REGISTRY: "index.docker.io"}


@dataclass(frozen=True)
class Limits:
    """Seconds: to connect, to wait for bytes, and in all."""

    connect: float = 3.0
    read: float = 4.0
    total: float = 5.0


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


class RegistryCalls:
    """Calls to one repository; it keeps the token that it was given.

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

    def call(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None = None
    ) -> tuple[bytes, requests.structures.CaseInsensitiveDict[str]]:
        """Return body and headers of an answer that is one, after the login that the registry asks for."""
        status, got, body = self._once(method, url, headers, self.auth, data)
        if status == 401:
            self.auth = self._authorize(got.get("WWW-Authenticate", ""))
            status, got, body = self._once(method, url, headers, self.auth, data)
        if status not in {200, 201}:
            raise refused(status)
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
            raise refused(401)
        own = f"repository:{self.reference.repository}:{self.access.actions or 'pull'}"
        scope = own if self.access.actions else challenge.parameters.get("scope") or own
        query = {"scope": scope} | {k: v for k, v in challenge.parameters.items() if k == "service"}
        url = f"{realm}{'&' if urlsplit(realm).query else '?'}{urlencode(query)}"
        login = HTTPBasicAuth(*credentials) if credentials else Authorization("")
        status, _, body = self._once("GET", url, {"Accept": "application/json"}, login)
        if status != 200:
            raise refused(status, "its token service: ")
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
