"""A bundle: the image that it holds, its layers and documents, and the side file beside it, `FILE.json`. Pure.

A bundle is a tar: the loader script, blobs by digest as in an OCI layout, and documents (`cannery.json`, a table of
contents). A complete one is a Docker archive too, which other tools read. The side file (docs/archive.schema.json) is
written last: an archive without one, or with one that does not fit, was cut off, changed or left behind.
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
# The loader, which needs no Cannery, has its own copy of these two.
ABOUT = "cannery.json"
SCHEMA = 1
SIDE_SCHEMA = 1
Kind = Literal["image", "bundle"]  # 0.1.0 wrote the first
Digest = Annotated[str, Field(pattern=rf"^{DIGEST.pattern}$")]
Count = Annotated[int, Field(ge=0, strict=True)]


@dataclass(frozen=True)
class Held:
    """An image as an archive holds it: id, platform (`linux/amd64`), names, and its layers' diff ids, lowest first.

    `digest` is that of its manifest in a registry, "" where it is from none.
    """

    id: Digest
    platform: str
    references: tuple[str, ...]
    layers: tuple[Digest, ...]
    digest: str = ""


@dataclass(frozen=True)
class SideFile:
    """A side file: the archive's name, bytes and hex SHA-256, and the image in it.

    `base` is the image that a bundle's loader needs on the engine, None for a complete archive.
    """

    kind: Kind
    file: str
    bytes: Count
    sha256: str
    image: Held
    base: Held | None = None


def side_text(side: SideFile) -> str:
    """Return a side file's text."""
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
        raise FindingsError("it is no side file of a Cannery archive", where=where, hint=hint) from error


def file_faults(side: SideFile, size: int, sha256: str) -> tuple[str, ...]:
    """Return how a file of `size` bytes and that hex SHA-256 differs from the one that the side file describes."""
    if size != side.bytes:
        words = "cut off" if size < side.bytes else "another file"
        return (f"it has {size} bytes in place of {side.bytes}: {words}",)
    return () if sha256 == side.sha256 else (f"its sha256 is {sha256}, and should be {side.sha256}: it was changed",)


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
