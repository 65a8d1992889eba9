"""The documents of a bundle, and its side file `FILE.json`. Pure.

A bundle is a tar with the loader script, blobs by digest as in an OCI layout, and `cannery.json`, which describes them.
A complete bundle is also a Docker archive, which other tools read. The side file (docs/archive.schema.json) is written
last: without one that fits, an archive was cut off or changed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from cannery import __version__
from cannery.errors import FindingsError
from cannery.util.addresses import DIGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

LOADER = "load.py"
# The loader, which does not import Cannery, has a copy of these two.
ABOUT = "cannery.json"
SCHEMA = 1
SIDE_SCHEMA = 1
Kind = Literal["image", "bundle"]  # 0.1.0 wrote the first
Digest = Annotated[str, Field(pattern=rf"^{DIGEST.pattern}$")]
Count = Annotated[int, Field(ge=0, strict=True)]


@dataclass(frozen=True)
class Held:
    """An image in an archive: id, platform (`linux/amd64`), names, and the DiffIDs of its layers, lowest first.

    `digest` is that of its manifest in a registry, "" if it came from none.
    """

    id: Digest
    platform: str
    references: tuple[str, ...]
    layers: tuple[Digest, ...]
    digest: str = ""


@dataclass(frozen=True)
class SideFile:
    """A side file: name, bytes and hex SHA-256 of the archive, and the image in it.

    `base` is the image that must be on the engine before the bundle is loaded; None for a complete one.
    """

    kind: Kind
    file: str
    bytes: Count
    sha256: str
    image: Held
    base: Held | None = None


def side_text(side: SideFile) -> str:
    """Return the text of a side file."""
    value = {"schema": SIDE_SCHEMA, "cannery": __version__, **asdict(side)}
    return json.dumps(value, indent=1) + "\n"


def read_side(text: str, where: str) -> SideFile:
    """Read a side file. Raises `FindingsError`."""
    try:
        schema = json.loads(text)["schema"]
        if schema != SIDE_SCHEMA:
            raise FindingsError(f"schema {schema!r} is not known", where=where, hint="take a newer Cannery")
        return TypeAdapter(SideFile).validate_json(text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        hint = "copy it again with its archive, or make both again"
        raise FindingsError("it is not the side file of a Cannery archive", where=where, hint=hint) from error


def file_faults(side: SideFile, size: int, sha256: str) -> tuple[str, ...]:
    """Return the faults of a file with `size` bytes and this hex SHA-256, compared with its side file."""
    if size != side.bytes:
        words = "cut off" if size < side.bytes else "another file"
        return (f"it has {size} bytes instead of {side.bytes}: {words}",)
    return () if sha256 == side.sha256 else (f"its sha256 is {sha256}, and should be {side.sha256}: it was changed",)


@dataclass(frozen=True)
class PackedLayer:
    """A layer in a bundle: its DiffID, and the name, bytes and hex SHA-256 of the gzip file with it."""

    diff_id: str
    member: str
    bytes: int
    sha256: str


def new_layers(image: Sequence[str], base: Sequence[str]) -> tuple[str, ...]:
    """Return the DiffIDs of `image` that are not in `base`, each once, lowest first.

    The loader takes the others from the older image.
    """
    known = set(base)
    return tuple(dict.fromkeys(layer for layer in image if layer not in known))


def blob(sha256: str) -> str:
    """Return the name of the file whose content has this hex SHA-256."""
    return f"blobs/sha256/{sha256}"


def documents(
    image: Held, base: Held | None, config: bytes, layers: Sequence[PackedLayer]
) -> tuple[tuple[str, bytes], ...]:
    """Return the (name, content) of the files after the layers, in order."""
    config_sum = hashlib.sha256(config).hexdigest()
    found = [(blob(config_sum), config)]
    if base is None:  # with this table of contents it is a Docker archive too
        members = {layer.diff_id: layer.member for layer in layers}
        in_order = [members[diff_id] for diff_id in image.layers]
        contents = {"Config": blob(config_sum), "RepoTags": list(image.references), "Layers": in_order}
        found.append(("manifest.json", _json([contents])))
    about = {
        "schema": SCHEMA,
        "cannery": __version__,
        "image": asdict(image),
        "base": asdict(base) if base else None,
        "config": {"member": blob(config_sum), "bytes": len(config), "sha256": config_sum},
        "layers": [asdict(layer) for layer in layers],
    }
    return (*found, (ABOUT, _json(about)))


def _json(value: Any) -> bytes:  # noqa: ANN401 - JSON
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
