"""What went wrong with a request: its kind, and the proxy or certificate that had a part in it."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import requests
from urllib3.exceptions import NameResolutionError, ProtocolError
from urllib3.exceptions import TimeoutError as BodyTimeoutError

from cannery.util.io.http import CertificateError, HostSession, ProxyAddressError
from cannery.util.trouble import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


NEEDS_USER = "it wants a user and password in its address, or other ones"
# Tried in this order: requests wraps errors, so one chain may hold several of these.
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
    """Return what kind of trouble `error` is and a detail without secrets, for a request to `url` in `session`."""
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
    # A file that cannot be read has words of the system's; other texts may hold the URL.
    words = error.strerror if type(error).__module__ == "builtins" and isinstance(error, OSError) else None
    return State.OTHER, words.lower() if words else type(error).__name__


def status_trouble(response: requests.Response, proxy: str) -> tuple[State, str]:
    """Return the trouble of an answer with a status of 400 or more; `proxy` are `HostSession.proxy_words`."""
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
    """Return why the proxy itself is not reached, or what it answered (`Tunnel connection failed: 407 …`)."""
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
