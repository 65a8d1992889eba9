"""How an image of the store is described: its layers, its name, what `docker inspect` would show, its manifest. Pure.

Media types are decided here alone (Docker's "Image Manifest V2, Schema 2", and the OCI image specification). Some
registries take no OCI manifest, so Docker's are what a push makes; a folder in OCI's layout always has OCI's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from cannery.util.addresses import DIGEST, parse_reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The annotation by which a layout's readers find a tag.
REF_NAME = "org.opencontainers.image.ref.name"
# The most repositories that are recorded for a layer.
MOST_ORIGINS = 6


class Dialect(NamedTuple):
    """Media types of a manifest, an image's configuration and a layer as gzip."""

    manifest: str
    config: str
    layer: str


DOCKER = Dialect(
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
)
OCI = Dialect(
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.oci.image.layer.v1.tar+gzip",
)


@dataclass(frozen=True)
class Blob:
    """A file in the store or in a registry: the digest and the number of its bytes."""

    digest: str
    size: int


@dataclass(frozen=True)
class Layer(Blob):
    """A layer as gzip: also the DiffID and bytes of its tar, and the repositories (`host/name`) that have the blob.

    The blob of a layer with `is_remote` is only in these repositories, and `raw` is its size there. `files` are the
    sizes of the files of a layer that is kept as pieces (cannery.store.io.pieces).
    """

    diff_id: str
    raw: int
    origins: tuple[str, ...] = ()
    is_remote: bool = False
    files: tuple[int, ...] = ()

    def repositories(self, registry: str) -> list[str]:
        """Return the repositories of a registry that have the blob, without the registry's host."""
        return [one.removeprefix(f"{registry}/") for one in self.origins if one.startswith(f"{registry}/")]

    def also_in(self, repository: str) -> Layer:
        """Return the layer with one more repository that has it, the newest first."""
        kept = [one for one in self.origins if one != repository]
        return replace(self, origins=(repository, *kept)[:MOST_ORIGINS])


def full_name(reference: str) -> str:
    """Return a reference with all of its parts, so that two spellings of one name are equal. Raises `UsageError`."""
    found = parse_reference(reference, "IMAGE")
    end = f"@{found.digest}" if found.digest else f":{found.tag}"
    return f"{found.name}{end}"


def attributes(image_id: str, config: Mapping[str, Any], names: Iterable[str], size: int) -> dict[str, Any]:
    """Return what `docker inspect` shows of an image with that configuration and those names."""
    listed = sorted(names)
    return {
        "Id": image_id,
        "RepoTags": [name for name in listed if "@" not in name],
        "RepoDigests": [name for name in listed if "@" in name],
        "Created": config.get("created", ""),
        "Architecture": config.get("architecture", ""),
        "Os": config.get("os", "linux"),
        **({"Variant": config["variant"]} if config.get("variant") else {}),
        "Config": config.get("config") or {},
        "RootFS": {"Type": "layers", "Layers": list(diff_ids(config))},
        "Size": size,
    }


def parse_config(text: bytes) -> dict[str, Any]:
    """Return an image's configuration as JSON values. Raises `ValueError` for an invalid one."""
    try:
        value = json.loads(text)
        settings = value.get("config") or {}
        labels = settings.get("Labels") or {}
        texts = [*labels.values(), *(settings.get("Env") or ())]
        is_whole = all(DIGEST.fullmatch(one) for one in diff_ids(value)) and {*map(type, texts)} <= {str}
        is_whole &= isinstance(settings.get("Env") or [], list)
        json.dumps(value, ensure_ascii=False).encode()  # fails for half of a UTF-16 pair
    except (AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"no configuration of an image: {error}") from error
    if not is_whole:
        raise ValueError("the image configuration names no layers, or labels or an environment that are not text")
    return cast("dict[str, Any]", value)


def diff_ids(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the layers that a configuration names, lowest first."""
    return tuple((config.get("rootfs") or {}).get("diff_ids") or ())


def manifest_text(dialect: Dialect, config: Blob, layers: Sequence[Layer]) -> bytes:
    """Return the manifest of an image of those layers, lowest first."""
    value = {
        "schemaVersion": 2,
        "mediaType": dialect.manifest,
        "config": _descriptor(dialect.config, config),
        "layers": [_descriptor(dialect.layer, layer) for layer in layers],
    }
    return json.dumps(value, indent=1).encode()


def _descriptor(media_type: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": blob.digest, "size": blob.size}


def layout_index(before: Iterable[Mapping[str, Any]], manifest: Blob, arch: str, tag: str) -> bytes:
    """Return the index.json of a layout that holds `before` and, under `tag`, the image of `manifest`."""
    platform = {"architecture": arch, "os": "linux"}
    new = {**_descriptor(OCI.manifest, manifest), "platform": platform, "annotations": {REF_NAME: tag}}
    kept = [one for one in before if (one.get("annotations") or {}).get(REF_NAME) != tag]
    return json.dumps({"schemaVersion": 2, "manifests": [*kept, new]}, indent=1).encode()
