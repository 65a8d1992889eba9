"""HTTP with the settings of the host's pip (CA, proxy, trusted hosts, credentials, netrc), retries, and failures."""

from __future__ import annotations

import os
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_environ_proxies, get_netrc_auth, select_proxy
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_before_delay, wait_exponential
from urllib3.exceptions import NameResolutionError, ProtocolError
from urllib3.exceptions import TimeoutError as BodyTimeoutError

from cannery.util.addresses import PROXY_SCHEMES, shown, url_credentials, url_host, url_problem
from cannery.util.trouble import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence

    from cannery.util.io.pip_settings import PipSettings


CONNECTIONS = 16
# The variables in which requests looks for a CA bundle if pip has none, in order.
CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
TRIES = 4
# Seconds before the second try. Each further wait is three times as long.
FIRST_WAIT = 0.5
NEEDS_USER = "it needs a user and a password in its address, or other ones"


class CertificateError(OSError):
    """A CA bundle or client certificate does not exist. The message has its path and the setting."""


class ProxyAddressError(requests.exceptions.ProxyError):
    """The address of a proxy is invalid. The message is the reason, without the address."""


class HostAuth(AuthBase):
    """Credentials from the index URLs for every file on the same host, or else from the user's netrc."""

    def __init__(self, settings: PipSettings) -> None:
        self._known: dict[str, tuple[str, str]] = {}
        for url in settings.urls:
            found = url_credentials(url)
            if found and url != settings.proxy:
                self._known[url_host(url).rpartition("@")[2]] = found

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the credentials for the request's host."""
        url = str(request.url)
        found = self._known.get(urlsplit(url).netloc.rpartition("@")[2]) or get_netrc_auth(url)
        return HTTPBasicAuth(*found)(request) if found else request


class HostSession(requests.Session):
    """A session with pip's settings. As in pip, they override the environment variables of requests."""

    def __init__(self, settings: PipSettings) -> None:
        super().__init__()
        self._host = settings
        self.auth = HostAuth(settings)
        adapter = HTTPAdapter(pool_connections=CONNECTIONS, pool_maxsize=CONNECTIONS)
        self.mount("https://", adapter)
        self.mount("http://", adapter)
        if settings.trusted_hosts:
            # The user has set this for pip. A warning for each request would hide everything else.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def merge_environment_settings(  # type: ignore[override]
        self,
        url: str,
        proxies: MutableMapping[str, str] | None,
        stream: bool | None,  # noqa: FBT001 - requests' own signature
        verify: Any,  # noqa: ANN401
        cert: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """Override the environment with pip's proxy, CA bundle, client certificate and trusted hosts."""
        if self._host.proxy:
            proxy = _with_scheme(self._host.proxy)
            proxies = {"http": proxy, "https": proxy}
        merged = super().merge_environment_settings(url, proxies, stream, verify, cert)
        if self._host.cert:
            merged["verify"] = self._host.cert
        if self._host.client_cert:
            merged["cert"] = self._host.client_cert
        parts = urlsplit(url)
        if {parts.hostname, parts.netloc.rpartition("@")[2]} & {*self._host.trusted_hosts}:
            merged["verify"] = False
        self._check_certificates(parts.scheme, merged)
        chosen = select_proxy(url, merged["proxies"])
        problem = url_problem(_with_scheme(chosen), PROXY_SCHEMES) if chosen else ""
        if problem:
            raise ProxyAddressError(f"its address {problem}")
        return dict(merged)

    def _check_certificates(self, scheme: str, merged: Mapping[str, Any]) -> None:
        """Raise `CertificateError` for a missing file, because requests would raise a plain OSError."""
        bundle, client = merged["verify"], merged["cert"]
        if isinstance(bundle, str) and scheme == "https" and not Path(bundle).exists():
            variable = next((name for name in CA_VARIABLES if os.environ.get(name) == bundle), CA_VARIABLES[0])
            source = "pip's setting `cert`" if self._host.cert else variable
            raise CertificateError(f"the CA bundle {bundle}, named by {source}, is not there")
        if isinstance(client, str) and not Path(client).exists():
            raise CertificateError(f"the client certificate {client}, named by pip's `client-cert`, is not there")

    def proxy_words(self, url: str) -> str:
        """Return the proxy for `url` and its setting, without credentials; "" if there is none."""
        scheme = url.partition(":")[0].lower()
        if scheme not in {"http", "https"} or not url_host(url):
            return ""
        if self._host.proxy:
            return f"{shown(_with_scheme(self._host.proxy))}, named by pip's setting `proxy`"
        # The proxies of requests, which also reads no_proxy.
        proxies = get_environ_proxies(url)
        for kind in (scheme, "all"):
            if kind in proxies:
                name = next(
                    (n for n in (f"{kind}_proxy", f"{kind}_proxy".upper()) if os.environ.get(n)), f"{kind}_proxy"
                )
                return f"{shown(_with_scheme(proxies[kind]))}, named by {name}"
        return ""


def _with_scheme(proxy: str) -> str:
    return proxy if "://" in proxy else f"http://{proxy}"


class PassingError(Exception):
    """A try failed for a reason that may be temporary. The message is the reason."""


def retrying(sleep: Callable[[float], None] = time.sleep, longest: float = float("inf")) -> Retrying:
    """Return the retry policy: call it with a function that raises `PassingError` if another try may help.

    The last error is raised after four tries, or if the next wait would end later than `longest` seconds after the
    first try. `sleep` waits; an exception from it ends the tries.
    """
    return Retrying(
        retry=retry_if_exception_type(PassingError),
        wait=wait_exponential(multiplier=FIRST_WAIT, exp_base=3),
        stop=stop_after_attempt(TRIES) | stop_before_delay(longest),
        sleep=sleep,
        reraise=True,
    )


# Tried in this order. Requests wraps errors, so one chain may have several of these.
KINDS: tuple[tuple[type[BaseException], State], ...] = (
    (CertificateError, State.TLS),
    (requests.exceptions.ProxyError, State.PROXY),
    (requests.exceptions.SSLError, State.TLS),
    (NameResolutionError, State.DNS),
    (ConnectionRefusedError, State.REFUSED),
    (requests.exceptions.Timeout, State.TIMEOUT),
    (TimeoutError, State.TIMEOUT),
    (BodyTimeoutError, State.TIMEOUT),
    (requests.exceptions.ConnectionError, State.RESET),
    (requests.exceptions.ChunkedEncodingError, State.RESET),
    (ProtocolError, State.RESET),
)


def trouble(error: Exception, session: requests.Session, url: str) -> tuple[State, str]:
    """Return the kind of `error` and a detail without secrets, for a request to `url` in `session`."""
    proxy = session.proxy_words(url) if isinstance(session, HostSession) else ""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return status_trouble(error.response, proxy)
    if isinstance(error, RecursionError):
        return State.OTHER, "its page is nested too deeply"
    if isinstance(error, requests.exceptions.InvalidSchema) and proxy and "SOCKS" in str(error):
        return State.PROXY, f"{proxy}: a SOCKS proxy needs the Python package PySocks"
    chain = tuple(_causes(error))
    for kind, state in KINDS:
        if any(isinstance(cause, kind) for cause in chain):
            return state, _detail(state, chain, proxy)
    # For a file that cannot be read, the system's message is used. Other messages may have the URL.
    words = error.strerror if type(error).__module__ == "builtins" and isinstance(error, OSError) else None
    return State.OTHER, words.lower() if words else type(error).__name__


def status_trouble(response: requests.Response, proxy: str) -> tuple[State, str]:
    """Return the kind of failure of a response with status 400 or more; `proxy` is from `HostSession.proxy_words`."""
    status = response.status_code
    detail = f"HTTP {status}"
    if status == 407:
        return State.PROXY, f"{proxy or 'a proxy on the way'}: {detail}, {NEEDS_USER}"
    if status == 429:
        after = response.headers.get("Retry-After", "")
        return State.BUSY, f"{detail}; wait {f'{after} s' if after.isdecimal() else 'a while'} and try again"
    if status == 507:
        return State.SERVER, f"{detail}: its disk is full"
    if status in (401, 403):
        return State.DENIED, detail
    return (State.SERVER if status >= 500 else State.OTHER), detail


def _detail(state: State, chain: Sequence[BaseException], proxy: str) -> str:
    match state:
        case State.PROXY:
            return ": ".join(part for part in (proxy, _proxy_reason(chain)) if part)
        case State.TLS:
            return _tls_reason(chain)
        case State.TIMEOUT | State.RESET if proxy:
            return f"through {proxy}"
        case _:
            return ""


def _proxy_reason(chain: Sequence[BaseException]) -> str:
    """Return why the proxy is not reached, or its answer (`Tunnel connection failed: 407 …`)."""
    for cause in chain:
        if isinstance(cause, NameResolutionError):
            return State.DNS
        if isinstance(cause, ConnectionRefusedError):
            return State.REFUSED
        if isinstance(cause, ProxyAddressError):
            return str(cause)
        if type(cause) is OSError and str(cause).startswith("Tunnel connection failed"):
            return f"{cause}{f', {NEEDS_USER}' if ' 407' in str(cause) else ''}"
    return ""


def _tls_reason(chain: Sequence[BaseException]) -> str:
    for cause in chain:
        if isinstance(cause, CertificateError):
            return str(cause)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
    return next((cause.reason for cause in chain if isinstance(cause, ssl.SSLError) and cause.reason), "")


def _causes(error: BaseException) -> Iterator[BaseException]:
    todo: list[object] = [error]
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if not isinstance(item, BaseException) or id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        todo += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]
