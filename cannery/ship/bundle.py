"""The layers of a bundle, and its documents: `cannery.json` and its table of contents. Pure.

A bundle is a tar: the loader script, blobs by digest as in an OCI layout, and these documents. A complete one is a
Docker archive too, which other tools read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cannery import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.ship.archive import Held

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
    image: Held, base: Held | None, config: bytes, layers: Sequence[PackedLayer]
) -> tuple[tuple[str, bytes], ...]:
    """Return (member, content) of what comes after the layers, in order."""
    config_sum = hashlib.sha256(config).hexdigest()
    about = {
        "schema": SCHEMA,
        "cannery": __version__,
        "image": asdict(image),
        "base": asdict(base) if base else None,
        "config": {"member": blob(config_sum), "bytes": len(config), "sha256": config_sum},
        "layers": [asdict(layer) for layer in layers],
    }
    return (
        (blob(config_sum), config),
        *((("manifest.json", _archive(image, blob(config_sum), layers)),) if base is None else ()),
        (ABOUT, _json(about)),
    )


def _archive(image: Held, config: str, layers: Sequence[PackedLayer]) -> bytes:
    """Return the table of contents that makes a complete bundle a Docker archive; `config` is its member."""
    members = {layer.diff_id: layer.member for layer in layers}
    layers_in_order = [members[diff_id] for diff_id in image.layers]
    return _json([{"Config": config, "RepoTags": list(image.references), "Layers": layers_in_order}])


def _json(value: Any) -> bytes:  # noqa: ANN401 - JSON
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
