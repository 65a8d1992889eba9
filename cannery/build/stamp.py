"""When nothing has changed since an image was made: what a run depended on, and what it left, as digests.

Pure: `cannery.build.io.stamp` reads both. It is imported before the catalog's libraries, and imports none.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Variables that differ from shell to shell, or with the size of a window, and change no image.
NOT_OF_IMAGES = {"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "WINDOWID", "CANNERY_PROGRAM"}


@dataclass(frozen=True)
class Places:
    """Where the outputs of a run are.

    `socket` is the engine's, `references` are the image's tags there. `folders` are compared by names, sizes and times,
    `files` by what is in them (folders too), `host` are paths of this host by what they are.
    """

    socket: str
    references: tuple[str, ...]
    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    host: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stamp:
    """One run that ended well: digests of what it read and of what it left, and the lines that a next run prints."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    places: Places
    lines: tuple[str, ...]


def stamp_name(words: Sequence[str], folder: str) -> str:
    """Return the name of the file that has the stamp of a command line, called in a working folder."""
    return hashlib.sha256(repr((tuple(words[1:]), folder)).encode(errors="surrogateescape")).hexdigest()[:24]


def of_environment(env: Mapping[str, str]) -> str:
    """Return the digest of the variables that may change an image."""
    kept = sorted(item for item in env.items() if item[0] not in NOT_OF_IMAGES)
    return hashlib.sha256(repr(kept).encode(errors="surrogateescape")).hexdigest()


def as_text(stamp: Stamp) -> str:
    """Return what is written of a stamp."""
    return json.dumps(asdict(stamp), indent=1)


def parse_stamp(text: str) -> Stamp | None:
    """Return the stamp in a file's text; None for any other text."""
    try:
        value = json.loads(text)
        where = value["places"]
        lists = {name: tuple(where[name]) for name in ("references", "folders", "files", "host")}
        places = Places(where["socket"], **lists)
        return Stamp(dict(value["inputs"]), dict(value["outputs"]), places, tuple(value["lines"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
