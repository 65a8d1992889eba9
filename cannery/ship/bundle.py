"""The layers of a bundle, and its documents: `cannery.json`, its index and its sums. Pure.

A bundle is a tar: the loader script, blobs by digest as in an OCI layout, and these documents. A complete one is an OCI
layout and a Docker archive too, so that other tools can read it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cannery import __version__
from cannery.util.image_reference import split_tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.ship.archive import Held

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
LOADER = "load.py"
# The loader, which needs no Cannery, has its own copy of these two.
ABOUT = "cannery.json"
SCHEMA = 1


@dataclass(frozen=True)
class PackedLayer:
    """A layer in a bundle: its diff id, the member that holds it as gzip, that one's bytes and hex SHA-256."""

    diff_id: str
    member: str
    bytes: int
    sha256: str


def new_layers(image: Sequence[str], base: Sequence[str]) -> tuple[str, ...]:
    """Return the diff ids of `image` that are not in `base`, each once, lowest first.

    The loader takes the others out of the older image: an engine knows a layer by everything below it too.
    """
    known = set(base)
    return tuple(dict.fromkeys(layer for layer in image if layer not in known))


def blob(sha256: str) -> str:
    """Return the member's name of a content by its hex SHA-256."""
    return f"blobs/sha256/{sha256}"


def documents(
    image: Held, base: Held | None, config: bytes, layers: Sequence[PackedLayer], sums: Mapping[str, str]
) -> tuple[tuple[str, bytes], ...]:
    """Return (member, content) of what comes after the layers, in order; `sums` are {member: hex SHA-256} so far."""
    config_sum = hashlib.sha256(config).hexdigest()
    about = {
        "schema": SCHEMA,
        "cannery": __version__,
        "image": asdict(image),
        "base": asdict(base) if base else None,
        "config": {"member": blob(config_sum), "bytes": len(config), "sha256": config_sum},
        "layers": [asdict(layer) for layer in layers],
    }
    found = [
        (blob(config_sum), config),
        *(_layout(image, config, layers) if base is None else ()),
        (ABOUT, _json(about)),
    ]
    lines = {**sums, **{name: hashlib.sha256(content).hexdigest() for name, content in found}}
    text = "".join(f"{digest}  {name}\n" for name, digest in lines.items())
    return (*found, ("SHA256SUMS", text.encode()))


def _layout(image: Held, config: bytes, layers: Sequence[PackedLayer]) -> tuple[tuple[str, bytes], ...]:
    """Return what makes a complete bundle an OCI layout and a Docker archive."""
    packed = {layer.diff_id: layer for layer in layers}
    in_order = [packed[diff_id] for diff_id in image.layers]
    config_sum = hashlib.sha256(config).hexdigest()
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": f"sha256:{config_sum}", "size": len(config)},
            "layers": [
                {"mediaType": LAYER_TYPE, "digest": f"sha256:{layer.sha256}", "size": layer.bytes} for layer in in_order
            ],
        }
    )
    manifest_sum = hashlib.sha256(manifest).hexdigest()
    system, _, arch = image.platform.partition("/")
    described = {
        "mediaType": MANIFEST_TYPE,
        "digest": f"sha256:{manifest_sum}",
        "size": len(manifest),
        "platform": {"os": system, "architecture": arch},
    }
    named = [{**described, "annotations": _names(reference)} for reference in image.references]
    members = [layer.member for layer in in_order]
    archive = [{"Config": blob(config_sum), "RepoTags": list(image.references), "Layers": members}]
    return (
        (blob(manifest_sum), manifest),
        ("index.json", _json({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": named or [described]})),
        ("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
        ("manifest.json", _json(archive)),
    )


def _names(reference: str) -> dict[str, str]:
    """Return the annotations that name an image: containerd's full name, and OCI's tag."""
    full = reference if "/" in reference else f"docker.io/library/{reference}"
    return {"io.containerd.image.name": full, "org.opencontainers.image.ref.name": split_tag(reference)[1]}


def _json(value: Any) -> bytes:  # noqa: ANN401 - JSON
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
