"""Reads the responses of container registries (OCI distribution and image specification) into small values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cannery.util.addresses import DIGEST

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from cannery.vocab import Arch


# The media types of indexes (one manifest for each platform) and manifests, of OCI and of Docker.
ACCEPT = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)


class RefusedError(Exception):
    """A registry does not give an image. The text is the reason, for the user, without secrets."""


class AbsentError(RefusedError):
    """The registry does not have the image."""


class DeniedError(RefusedError):
    """The registry, or its token service, refuses access."""


class PassingError(RefusedError):
    """A failure that may be temporary: a lost connection, a time-out, a busy server."""


class OtherArchError(RefusedError):
    """The image exists, but not for this architecture."""


class MalformedError(RefusedError):
    """A response that breaks the specification."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the server there is not a registry: {what}")


@dataclass(frozen=True)
class Manifest:
    """The manifest of one image: the digest of its configuration; digest and bytes of its layers, lowest first."""

    config: str
    layers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class ImageConfig:
    """The configuration of an image. `env` is {name: value}."""

    architecture: str
    env: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """One image of a tag: architecture, digests of its manifest and configuration, descriptor.

    `arch` is "" if the tag is a single manifest without an index. `config` is "" until the manifest is read.
    """

    arch: str
    manifest: str
    config: str
    descriptor: Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """The content of a tag: digest, media type and text of its index or manifest, and its images for Linux."""

    digest: str
    media_type: str
    body: bytes
    entries: tuple[Entry, ...]

    def entry(self, arch: str) -> Entry | None:
        """Return the image for `arch`, or None."""
        return next((entry for entry in self.entries if entry.arch == arch), None)

    def needed(self, arch: str) -> Entry:
        """Return the image for `arch`. Raises `OtherArchError` if there is none."""
        found = self.entry(arch)
        if found is None:
            raise _other_arch([one.arch for one in self.entries], [arch])
        return found

    def has_image(self, arch: str, ids: Container[str]) -> bool:
        """Whether the image for `arch` has one of `ids` as its id.

        An engine with containerd's image store uses the digest of the index as the id.
        """
        entry = self.entry(arch)
        return entry is not None and (self.digest in ids or entry.config in ids or entry.manifest in ids)


def refuse_missing(has: Sequence[str], wanted: Sequence[Arch]) -> None:
    """Raise `OtherArchError` if one of the architectures `wanted` is not in `has`."""
    missing = [arch for arch in wanted if arch not in has]
    if missing:
        raise _other_arch(has, missing)


def _other_arch(has: Sequence[str], missing: Sequence[str]) -> OtherArchError:
    return OtherArchError(f"it has the image for {' and '.join(has) or 'no platform'}, not for {' and '.join(missing)}")


def read_published(digest: str, media_type: str, body: bytes) -> Published:
    """Read an index or a manifest. Their fields decide which it is, because registries set different media types.

    Of several variants of an architecture, the first is used, as in engines. Raises `MalformedError`.
    """
    value = _table(body, "manifest")
    media_type = media_type or str(value.get("mediaType") or "")
    listed = value.get("manifests")
    if not isinstance(listed, list):
        descriptor = {"mediaType": media_type, "size": len(body), "digest": digest}
        return Published(digest, media_type, body, (Entry("", digest, read_manifest(body).config, descriptor),))
    entries: dict[str, Entry] = {}
    for item in listed:
        platform = item.get("platform") if isinstance(item, dict) else None
        if isinstance(platform, dict) and platform.get("os") == "linux":
            arch = str(platform.get("architecture"))
            entries.setdefault(arch, Entry(arch, _digest(item.get("digest"), "an entry of the index"), "", item))
    return Published(digest, media_type, body, tuple(entries.values()))


def read_manifest(body: bytes) -> Manifest:
    """Read the manifest of one image. Raises `MalformedError`."""
    value = _table(body, "manifest")
    if isinstance(value.get("manifests"), list):
        raise MalformedError("its index leads to an index")
    if value.get("schemaVersion") == 1:
        raise MalformedError("it has the image in Docker's old schema 1 only, which BuildKit does not take")
    config, layers = value.get("config"), value.get("layers")
    digest = _digest(config.get("digest") if isinstance(config, dict) else None, "the manifest's config")
    found = [one if isinstance(one, dict) else {} for one in (layers if isinstance(layers, list) else ())]
    if not all(type(one.get("size")) is int and 0 <= one["size"] < 2**63 for one in found):
        raise MalformedError("a layer of its manifest has no size, or one that cannot be")
    return Manifest(
        digest, tuple((_digest(one.get("digest"), "a layer of the manifest"), one["size"]) for one in found)
    )


def read_config(body: bytes) -> ImageConfig:
    """Read an image's configuration. Raises `MalformedError`."""
    value = _table(body, "image configuration")
    architecture = value.get("architecture")
    if not isinstance(architecture, str) or not architecture:
        raise MalformedError("the image configuration names no architecture")
    return image_config(architecture, value.get("config"))


def env_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables in `config`, from an image configuration or `docker inspect`."""
    env = config.get("Env")
    pairs = (line.partition("=") for line in env if isinstance(line, str)) if isinstance(env, list) else ()
    return {name: value for name, _, value in pairs}


def image_config(architecture: str, config: object) -> ImageConfig:
    """Return the configuration from `config`, of an image configuration or `docker inspect`; null means empty."""
    table = config if isinstance(config, dict) else {}
    labels = table.get("Labels")
    texts = {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}
    return ImageConfig(architecture, env_of(table), texts)


def read_token(body: bytes) -> str:
    """Return the token in the response of a token service. Raises `MalformedError`."""
    value = _table(body, "token")
    token = value.get("token") or value.get("access_token")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise MalformedError("its token service gives no token")
    return token


def read_tags(body: bytes) -> tuple[str, ...]:
    """Return a list of tags; null means empty. Raises `MalformedError`."""
    tags = _table(body, "list of tags").get("tags")
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


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
class EngineImage:
    """An image in an engine. `layers` are DiffIDs, lowest first; `digests` are its `RepoDigests`."""

    id: str
    arch: str
    size: int
    layers: tuple[str, ...]
    labels: Mapping[str, str]
    digests: tuple[str, ...]
    tags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def platform(self) -> str:
        """The platform in OCI's form."""
        return f"linux/{self.arch}"


def engine_image(found: Mapping[str, Any]) -> EngineImage:
    """Return an image from the output of `docker inspect`."""
    config = image_config(str(found.get("Architecture")), found.get("Config"))
    return EngineImage(
        id=str(found["Id"]),
        arch=config.architecture,
        size=int(found.get("Size") or 0),
        layers=tuple((found.get("RootFS") or {}).get("Layers") or ()),
        labels=config.labels,
        digests=tuple(found.get("RepoDigests") or ()),
        tags=tuple(found.get("RepoTags") or ()),
        env=config.env,
    )
