"""Image references, read as docker reads them: `[registry/]repository[:tag][@digest]`."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_REGISTRY = "docker.io"
# Labels of an image that say what it was built from.
BASE_NAME, BASE_DIGEST = "org.opencontainers.image.base.name", "org.opencontainers.image.base.digest"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_REGISTRY = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")


def digest_of(data: bytes) -> str:
    """Return the digest by which registries and engines know some bytes: `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


# Of registry and repository together, as engines have it.
LONGEST = 255
LAST_PORT = 65535


@dataclass(frozen=True)
class ImageReference:
    """A full reference; `repository` has the `library/` that docker.io puts before a name without a folder."""

    registry: str
    repository: str
    tag: str
    digest: str | None

    @property
    def wanted(self) -> str:
        """What a registry is asked for: the digest where there is one, else the tag."""
        return self.digest or self.tag


def parse_reference(text: str, option: str = "BASE") -> ImageReference:
    """Read a reference; without a tag it is `latest`. Raises `UsageError` for what no engine would take."""
    named, at, digest = text.partition("@")
    registry = registry_of(named)
    path = named.removeprefix(f"{registry}/")
    repository, colon, tag = path.partition(":")
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    if len(named) - len(colon + tag) > LONGEST:
        raise UsageError(f"{option}: a name of more than {LONGEST} letters is no image reference", hint="shorten it")
    good = _is_host(registry) and _REPOSITORY.fullmatch(repository)
    if not good or (colon and not _TAG.fullmatch(tag)) or (at and not DIGEST.fullmatch(digest)):
        hint = "[registry/]repository[:tag], in lower case but for the tag; a digest is @sha256: and 64 hex digits"
        raise UsageError(f"{option}: {text!r} is no image reference", hint=hint)
    return ImageReference(registry, repository, tag or "latest", digest or None)


def _is_host(registry: str) -> bool:
    port = registry.rpartition(":")[2] if re.search(r":\d+$", registry) else "0"
    return bool(_REGISTRY.fullmatch(registry)) and int(port) <= LAST_PORT


def registry_of(reference: str) -> str:
    """Return the registry host of an image reference; a first part without dot, colon or "localhost" is no host."""
    first, slash, _rest = reference.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else DEFAULT_REGISTRY


def split_digest(reference: str) -> tuple[str, str | None]:
    """Return a reference without its digest, and the digest (`sha256:…`) or None."""
    named, _at, digest = reference.partition("@")
    return named, digest or None


def split_tag(reference: str) -> tuple[str, str]:
    """Return a reference that has a tag and no digest without its tag, and the tag."""
    named, _colon, tag = reference.rpartition(":")
    return named, tag


def pinned(reference: str, digest: str | None) -> str:
    """Return the reference that names exactly the image of `digest`; unchanged where none is known."""
    return f"{split_digest(reference)[0]}@{digest}" if digest else reference


def mirrored(reference: str, mirrors: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return where mirrors have the image of `reference`, best first; none where no mirror is named for it.

    `mirrors` are {registry, or a repository or folder of one: places in its stead}; the longest that fits counts.
    """
    found = parse_reference(reference)
    named, digest = split_digest(reference)
    tag = f":{found.tag}" if ":" in named.rpartition("/")[2] or not digest else ""
    name = f"{found.registry}/{found.repository}"
    key = max((key for key in mirrors if name == key or name.startswith(f"{key}/")), key=len, default=None)
    if key is None:
        return ()
    behind = f"{name.removeprefix(key)}{tag}{f'@{digest}' if digest else ''}"
    return tuple(f"{mirror}{behind}" for mirror in mirrors[key])


def is_loopback(registry: str) -> bool:
    """Whether a registry host (with its port) is this machine: docker asks such a one without TLS too."""
    host = registry.rpartition(":")[0] if re.search(r":\d+$", registry) else registry
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
