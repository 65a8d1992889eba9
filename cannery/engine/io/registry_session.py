"""An HTTP session to a container registry: proxies, CA bundle and trusted hosts as the host's pip has them.

Beside pip's CA bundle it trusts what docker trusts, the system's certificates and those that docker has for the one
registry. The credentials that pip's settings and netrc have are for other servers, and stay there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util import create_urllib3_context

from cannery.util.io.http import HostSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    import requests

    from cannery.util.io.pip_settings import PipSettings

CERTIFICATES = Path("/etc/docker/certs.d")


class RegistrySession(HostSession):
    """See the module."""

    def __init__(self, settings: PipSettings, registry: str) -> None:
        super().__init__(settings)
        self.max_redirects = 5
        self.mount("https://", _TrustingAdapter(()))
        folder = CERTIFICATES / registry
        own = tuple(sorted(folder.glob("*.crt"))) if folder.is_dir() else ()
        if own:
            self.mount(f"https://{registry}/", _TrustingAdapter(own))


class _TrustingAdapter(HTTPAdapter):
    def __init__(self, certificates: Sequence[Path]) -> None:
        self._certificates = certificates
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - requests' own signature
        super().init_poolmanager(*args, **kwargs, ssl_context=self._context())

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:  # noqa: ANN401 - requests' own signature
        return super().proxy_manager_for(proxy, **kwargs, ssl_context=self._context())

    def _context(self) -> Any:  # noqa: ANN401 - urllib3 gives the class of its own choice
        context = create_urllib3_context()
        # urllib3 compares host names itself then, and a trusted host's context may be told to verify nothing.
        context.check_hostname = False
        context.load_default_certs()
        for path in self._certificates:
            context.load_verify_locations(cafile=str(path))
        return context


class Authorization(AuthBase):
    """The header that a registry asked for, in place of the credentials that the session has for package indexes."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the header on; nothing where the value is empty."""
        if self.value:
            request.headers["Authorization"] = self.value
        return request
