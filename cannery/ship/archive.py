"""The side file of an archive, `FILE.json` (docs/archive.schema.json): what the archive is. Pure.

It is written last: an archive without one, or with one that does not fit, was cut off, changed or left behind.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cannery import __version__
from cannery.errors import FindingsError
from cannery.util.image_reference import DIGEST

SCHEMA = 1
Kind = Literal["image", "bundle"]


@dataclass(frozen=True)
class Held:
    """An image as an archive holds it: id, platform (`linux/amd64`), names, and its layers' diff ids, lowest first.

    `digest` is that of its manifest in a registry, "" where it is from none.
    """

    id: str
    platform: str
    references: tuple[str, ...]
    layers: tuple[str, ...]
    digest: str = ""


@dataclass(frozen=True)
class SideFile:
    """A side file: the archive's name, bytes and hex SHA-256, and the image in it.

    `base` is the image that a bundle's loader needs on the engine, None for a complete archive.
    """

    kind: Kind
    file: str
    bytes: int
    sha256: str
    image: Held
    base: Held | None = None


def side_text(side: SideFile) -> str:
    """Return a side file's text."""
    value = {"schema": SCHEMA, "cannery": __version__, **asdict(side)}
    return json.dumps(value, indent=1) + "\n"


def read_side(text: str, where: str) -> SideFile:
    """Read a side file. Raises `FindingsError`."""
    try:
        value = json.loads(text)
        if value["schema"] != SCHEMA:
            raise FindingsError(f"schema {value['schema']!r} is not known", where=where, hint="take a newer Cannery")
        kind: Kind = {"image": "image", "bundle": "bundle"}[value["kind"]]  # type: ignore[assignment] # of a literal
        base = _held(value["base"]) if value["base"] else None
        size, sha256 = value["bytes"], str(value["sha256"])
        if not isinstance(size, int) or size < 0:
            raise ValueError("no count")
        return SideFile(kind, str(value["file"]), size, sha256, _held(value["image"]), base)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        hint = "copy it again with its archive, or make both again"
        raise FindingsError("it is no side file of a Cannery archive", where=where, hint=hint) from error


def _held(value: dict[str, Any]) -> Held:
    if not isinstance(value["layers"], list) or not isinstance(value["references"], list):
        raise TypeError("no lists")
    layers = tuple(map(str, value["layers"]))
    if not all(map(DIGEST.fullmatch, (str(value["id"]), *layers))):
        raise ValueError("no digests")
    references = tuple(map(str, value["references"]))
    return Held(str(value["id"]), str(value["platform"]), references, layers, str(value.get("digest") or ""))


def file_faults(side: SideFile, size: int, sha256: str) -> tuple[str, ...]:
    """Return how a file of `size` bytes and that hex SHA-256 differs from the one that the side file describes."""
    if size != side.bytes:
        words = "cut off" if size < side.bytes else "another file"
        return (f"it has {size} bytes in place of {side.bytes}: {words}",)
    return () if sha256 == side.sha256 else (f"its sha256 is {sha256}, and should be {side.sha256}: it was changed",)
