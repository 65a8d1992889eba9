"""What registries answer (OCI distribution and image specification), read into small values. Pure: bytes in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cannery.util.image_reference import DIGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

# One image for each platform, and one image; Docker's own words and OCI's.
ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHALLENGE = re.compile(r"\s*(?P<scheme>[A-Za-z]+)(?:\s+(?P<parameters>.*))?", re.DOTALL)
_PARAMETER = re.compile(r'([A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


class MalformedError(ValueError):
    """An answer that is not what the specification says; the message says in which way."""


@dataclass(frozen=True)
class Index:
    """One manifest for each platform: {architecture: digest} of those for Linux."""

    manifests: Mapping[str, str]


@dataclass(frozen=True)
class Manifest:
    """One image; `config` is the digest of its configuration, `size` the bytes of its layers as they are moved."""

    config: str
    size: int = 0


@dataclass(frozen=True)
class ImageConfig:
    """What an image says of itself. `env` is {name: value}."""

    architecture: str
    env: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Challenge:
    """A `WWW-Authenticate` header: the scheme in lower case, and its parameters."""

    scheme: str
    parameters: Mapping[str, str]


def read_manifest(body: bytes) -> Index | Manifest:
    """Read an index or a manifest by its shape: registries differ in the media types that they name."""
    value = _table(body, "manifest")
    if isinstance(value.get("manifests"), list):
        return Index(_platforms(value["manifests"]))
    if value.get("schemaVersion") == 1:
        raise MalformedError("it has the image in Docker's old schema 1 only, which BuildKit does not take")
    config = value.get("config")
    digest = _digest(config.get("digest") if isinstance(config, dict) else None, "the manifest's config")
    return Manifest(digest, _size(value.get("layers")))


def read_config(body: bytes) -> ImageConfig:
    """Read an image's configuration."""
    value = _table(body, "image configuration")
    architecture = value.get("architecture")
    if not isinstance(architecture, str) or not architecture:
        raise MalformedError("the image configuration names no architecture")
    return image_config(architecture, value.get("config"))


def image_config(architecture: str, config: object) -> ImageConfig:
    """Return the configuration from its `config` table, which `docker inspect` has too; null stands for empty."""
    table = config if isinstance(config, dict) else {}
    env = table.get("Env")
    pairs = [line.partition("=") for line in env if isinstance(line, str)] if isinstance(env, list) else []
    labels = table.get("Labels")
    texts = labels if isinstance(labels, dict) else {}
    return ImageConfig(
        architecture,
        {name: value for name, _equals, value in pairs},
        {str(name): str(value) for name, value in texts.items()},
    )


def read_token(body: bytes) -> str:
    """Return the token of a token service's answer, which may call it `token` or `access_token`."""
    value = _table(body, "token")
    token = value.get("token") or value.get("access_token")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise MalformedError("its token service gives no token")
    return token


def read_tags(body: bytes) -> tuple[str, ...]:
    """Return the tags of a list of them; null stands for none."""
    tags = _table(body, "list of tags").get("tags") or []
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def read_published(digest: str, media_type: str, body: bytes, manifest: Callable[[str], bytes]) -> Published:
    """Read what stands under a tag; `manifest` gives the text of one of an index's manifests by its digest.

    A manifest alone says nothing of its platform: its one entry has the architecture "".
    """
    value = _table(body, "manifest")
    media_type = media_type or str(value.get("mediaType") or "")
    listed = value.get("manifests")
    if not isinstance(listed, list):
        found = read_manifest(body)
        assert isinstance(found, Manifest)  # noqa: S101 - it lists no manifests
        descriptor = {"mediaType": media_type, "size": len(body), "digest": digest}
        return Published(digest, media_type, body, (Entry("", digest, found.config, descriptor),))
    entries: list[Entry] = []
    for item in listed:
        platform = item.get("platform") if isinstance(item, dict) else None
        if not isinstance(platform, dict) or platform.get("os") != "linux":
            continue
        one = _digest(item.get("digest"), "an entry of the index")
        found = read_manifest(manifest(one))
        if isinstance(found, Index):
            raise MalformedError("its index leads to an index")
        entries.append(Entry(str(platform.get("architecture")), one, found.config, item))
    return Published(digest, media_type, body, tuple(entries))


def parse_challenge(header: str) -> Challenge:
    """Read a `WWW-Authenticate` header; an empty or strange one has an empty scheme."""
    found = _CHALLENGE.fullmatch(header)
    if found is None:
        return Challenge("", {})
    parameters = _PARAMETER.findall(found["parameters"] or "")
    return Challenge(
        found["scheme"].lower(),
        {name.lower(): re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in parameters},
    )


def _platforms(entries: list[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        platform = entry.get("platform") if isinstance(entry, dict) else None
        if isinstance(platform, dict) and platform.get("os") == "linux":
            # The first of several variants, as engines take it.
            digest = _digest(entry.get("digest"), "an entry of the index")
            found.setdefault(str(platform.get("architecture")), digest)
    return found


def _size(layers: object) -> int:
    """Return the bytes of layers, 0 where one does not say its own."""
    sizes = [one.get("size") if isinstance(one, dict) else None for one in (layers if isinstance(layers, list) else ())]
    numbers = [size for size in sizes if isinstance(size, int) and size >= 0]
    return sum(numbers) if len(numbers) == len(sizes) else 0


def _table(body: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"its {what} is no JSON") from error
    if not isinstance(value, dict):
        raise MalformedError(f"its {what} is no JSON object")
    return value


def _digest(value: object, what: str) -> str:
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise MalformedError(f"{what} has no SHA-256 digest")
    return value


@dataclass(frozen=True)
class Entry:
    """One image of a tag: its architecture, the digests of its manifest and its configuration, its descriptor."""

    arch: str
    manifest: str
    config: str
    descriptor: Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """What stands under a tag: digest, media type and text of the index or manifest, and its images for Linux."""

    digest: str
    media_type: str
    body: bytes
    entries: tuple[Entry, ...]

    def entry(self, arch: str) -> Entry | None:
        """Return the image for `arch`, None where it has none."""
        return next((entry for entry in self.entries if entry.arch == arch), None)

    def has_image(self, arch: str, ids: Container[str]) -> bool:
        """Whether its image for `arch` is the one that an engine knows by one of `ids`.

        An engine with containerd's store that has pulled an index, or built one, knows its image by the index's digest.
        """
        entry = self.entry(arch)
        return entry is not None and (self.digest in ids or entry.config in ids or entry.manifest in ids)
