"""Ask a container registry for an image (OCI distribution API): its digest, its platforms, its configuration.

Nothing is downloaded but a few KB. How the host reaches it is `registry_session`'s business, and how it is logged in to
and how long it may take `registry_calls`'.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from urllib3.exceptions import HTTPError

from cannery.engine.io.registry_calls import RegistryCalls
from cannery.engine.io.registry_errors import PassingError, RefusedError, refuse_lacking
from cannery.engine.io.registry_session import RegistrySession
from cannery.engine.oci import ACCEPT, ImageConfig, Index, MalformedError, read_config, read_manifest, read_tags
from cannery.util.image_reference import is_loopback, parse_reference
from cannery.util.trouble import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cannery.engine.io.registry_calls import Access
    from cannery.vocab import Arch

T = TypeVar("T")
PASSING = frozenset({State.RESET, State.TIMEOUT, State.SERVER, State.BUSY})


@dataclass(frozen=True)
class Answer:
    """An image that a registry has: the digest of its index or manifest; `config` None where `unread` says why.

    `size` are the bytes of its layers, as they are moved; 0 where they are not told.
    """

    digest: str
    config: ImageConfig | None
    unread: str = ""
    size: int = 0


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
            calls = RegistryCalls(session, reference, access, scheme, end)
            try:
                return job(Registry(calls))
            except (requests.RequestException, HTTPError, OSError, ValueError) as error:
                state, reason = calls.reason(error)
                if scheme == schemes[-1] or state not in {State.TLS, State.RESET}:
                    raise (PassingError if state in PASSING else RefusedError)(reason) from error
    raise AssertionError("a scheme is asked, or raises")


class Registry:
    """What one repository has.

    Its methods raise as requests does, `RefusedError`, and `MalformedError` for what is no registry's answer.
    """

    def __init__(self, calls: RegistryCalls) -> None:
        self._calls = calls
        self.reference = calls.reference

    def answer(self, arch: Arch, arches: Sequence[Arch]) -> Answer:
        """Return the image for `arch`, where it is there for all of `arches`."""
        digest, _, body = self.manifest(self.reference.wanted, self.reference.digest or "")
        found = read_manifest(body)
        if isinstance(found, Index):
            refuse_lacking(tuple(found.manifests), arches)
            return self._read(digest, found.manifests[arch])
        config = read_config(self.blob(found.config))
        refuse_lacking((config.architecture,), arches)
        return Answer(digest, config, size=found.size)

    def _read(self, index: str, manifest: str) -> Answer:
        """Read the configuration of one image of an index; without it the image can be built upon as well."""
        try:
            _, _, body = self.manifest(manifest)
            found = read_manifest(body)
            if isinstance(found, Index):
                raise MalformedError("its index leads to an index")
            return Answer(index, read_config(self.blob(found.config)), size=found.size)
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            return Answer(index, None, self._calls.reason(error)[1])

    def manifest(self, wanted: str, digest: str = "") -> tuple[str, str, bytes]:
        """Return digest, media type and text of an index or a manifest; `digest` is what it must have."""
        body, headers = self._get(f"{self._calls.url}/manifests/{wanted}", ACCEPT)
        has = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if has != (digest or headers.get("Docker-Content-Digest", "") or has):
            raise MalformedError("its manifest does not have the digest that it should have")
        return has, headers.get("Content-Type", "").partition(";")[0].strip(), body

    def blob(self, digest: str) -> bytes:
        """Return an image's configuration."""
        body, _ = self._get(f"{self._calls.url}/blobs/{digest}", "*/*")
        if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
            raise MalformedError("its image configuration does not have the digest that it should have")
        return body

    def tags(self, pages: int = 10) -> tuple[str, ...]:
        """Return the tags of the repository, of `pages` answers at the most: some registries have no end of them."""
        found: list[str] = []
        url = f"{self._calls.url}/tags/list?n=1000"
        for _ in range(pages):
            body, headers = self._get(url, "application/json")
            found += read_tags(body)
            following = requests.utils.parse_header_links(headers.get("Link", ""))
            path = next((link["url"] for link in following if link.get("rel") == "next"), None)
            if path is None:
                break
            url = urljoin(url, path)
            if urlsplit(url).netloc != urlsplit(self._calls.url).netloc:
                break  # credentials stay with the host that they are for
        return tuple(found)

    def put_manifest(self, tag: str, media_type: str, body: bytes) -> None:
        """Put an index or a manifest under `tag`; what it names must be in the repository."""
        self._calls.call("PUT", f"{self._calls.url}/manifests/{tag}", {"Content-Type": media_type}, body)

    def _get(self, url: str, accept: str) -> tuple[bytes, requests.structures.CaseInsensitiveDict[str]]:
        return self._calls.call("GET", url, {"Accept": accept})
