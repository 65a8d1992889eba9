"""The side file of an archive, `FILE.json` (docs/archive.schema.json): what the archive is. Pure.

It is written last: an archive without one, or with one that does not fit, was cut off, changed or left behind.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from cannery import __version__
from cannery.errors import FindingsError
from cannery.util.image_reference import DIGEST

SCHEMA = 1
Kind = Literal["image", "bundle"]
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
    value = {"schema": SCHEMA, "cannery": __version__, **asdict(side)}
    return json.dumps(value, indent=1) + "\n"


def read_side(text: str, where: str) -> SideFile:
    """Read a side file. Raises `FindingsError`."""
    try:
        schema = json.loads(text)["schema"]
        if schema != SCHEMA:
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
