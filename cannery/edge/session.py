"""An HTTP session that behaves as the host's pip does: its CA bundle, proxy, trusted hosts, credentials and netrc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_netrc_auth

from cannery.edge.pipconf import url_credentials

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from cannery.edge.pipconf import PipSettings

CONNECTIONS = 16


class HostAuth(AuthBase):
    """Credentials of the index URLs, for every file on the same host; else the user's netrc."""

    def __init__(self, settings: PipSettings) -> None:
        self._known: dict[str, tuple[str, str]] = {}
        for url in settings.urls:
            found = url_credentials(url)
            if found and url != settings.proxy:
                self._known[urlsplit(url).netloc.rpartition("@")[2]] = found

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the credentials that are known for the request's host on it."""
        url = str(request.url)
        found = self._known.get(urlsplit(url).netloc.rpartition("@")[2]) or get_netrc_auth(url)
        return HTTPBasicAuth(*found)(request) if found else request


class HostSession(requests.Session):
    """See the module. pip's settings win over requests' own environment variables, as they do in pip."""

    def __init__(self, settings: PipSettings) -> None:
        super().__init__()
        self._host = settings
        self.auth = HostAuth(settings)
        adapter = HTTPAdapter(pool_connections=CONNECTIONS, pool_maxsize=CONNECTIONS)
        self.mount("https://", adapter)
        self.mount("http://", adapter)
        if settings.trusted_hosts:
            # The user has said so to pip; a warning a request would bury everything else.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def merge_environment_settings(  # type: ignore[override]
        self,
        url: str,
        proxies: MutableMapping[str, str] | None,
        stream: bool | None,  # noqa: FBT001 - requests' own signature
        verify: Any,  # noqa: ANN401
        cert: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """Put pip's proxy, CA bundle, client certificate and trusted hosts over what the environment says."""
        if self._host.proxy:
            proxy = self._host.proxy if "://" in self._host.proxy else f"http://{self._host.proxy}"
            proxies = {"http": proxy, "https": proxy}
        merged = super().merge_environment_settings(url, proxies, stream, verify, cert)
        if self._host.cert:
            merged["verify"] = self._host.cert
        if self._host.client_cert:
            merged["cert"] = self._host.client_cert
        parts = urlsplit(url)
        if {parts.hostname, parts.netloc.rpartition("@")[2]} & {*self._host.trusted_hosts}:
            merged["verify"] = False
        return dict(merged)
