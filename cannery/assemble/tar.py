"""Writes tar headers with the same bytes as Docker (Go's archive/tar), so that layers have the same digests.

Python's `TarInfo.tobuf` writes different device fields, PAX header names, and bytes for non-ASCII names.
"""

from __future__ import annotations

import os
import posixpath
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK = 512
END = bytes(2 * BLOCK)
# Bytes of the name and link fields, and of the prefix field that holds the folder of a long name.
_NAME, _PREFIX = 100, 155
# The largest numbers of eleven and of seven octal digits.
_MOST = 8**11 - 1
_MOST_ID = 8**7 - 1


class Kind(Enum):
    """The type flag of an entry."""

    FILE = b"0"
    HARD_LINK = b"1"
    LINK = b"2"
    FOLDER = b"5"
    EXTENDED = b"x"


class Entry(NamedTuple):
    """A file, folder or link of a layer: path in the image, permissions, size, and target of a link.

    `owner` is (uid, gid). `mtime` is in seconds; None means the layer's default. `capability` has the bytes of the
    extended attribute security.capability.
    """

    path: str
    kind: Kind
    mode: int
    size: int = 0
    link: str = ""
    owner: tuple[int, int] = (0, 0)
    mtime: int | None = None
    capability: bytes = b""


def with_folders(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries and their parent folders, in the order of `order`."""
    given = {entry.path: entry for entry in entries}
    made: dict[str, Entry] = {}
    for path in given:
        folder = path.rpartition("/")[0]
        while folder and folder not in made:
            made[folder] = Entry(folder, Kind.FOLDER, 0o755)
            folder = folder.rpartition("/")[0]
    return sorted({**made, **given}.values(), key=lambda entry: order(entry.path))


def order(path: str) -> list[bytes]:
    """Return the key that sorts paths in a layer: the parts of the path as bytes."""
    return os.fsencode(path).split(b"/")


def above(path: str) -> list[str]:
    """Return the parent folders of an absolute path, the highest first."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts))]


def head(entry: Entry, epoch: int) -> bytes:
    """Return the header of an entry; `epoch` (seconds) is its default mtime. The content and `padding` follow it.

    A long name is split at a folder if both parts fit. Otherwise, and for a non-ASCII name, a PAX header comes first,
    and the plain header has only the ASCII characters.
    """
    if entry.size > _MOST or max(entry.owner) > _MOST_ID:
        raise ValueError(f"{entry.path}: {entry.size} bytes of {entry.owner} are too many for a layer")
    name = os.fsencode(entry.path.lstrip("/") + ("/" if entry.kind is Kind.FOLDER else ""))
    link = os.fsencode(entry.link)
    numbers = (entry.mode, *entry.owner, entry.size, epoch if entry.mtime is None else entry.mtime)
    fits = len(link) <= _NAME and link.isascii() and name.isascii() and not entry.capability
    prefix, rest = _cut(name) if fits else (b"", name)
    if fits and len(rest) <= _NAME:
        return _header(rest, entry.kind, numbers, link, prefix)
    records = _records(name, link, entry.capability)
    ahead = _header(_pax_name(name), Kind.EXTENDED, (0, 0, 0, len(records), 0))
    plain = _header(_plain(name), entry.kind, numbers, _plain(link))
    return ahead + records + padding(len(records)) + plain


def padding(size: int) -> bytes:
    """Return the zero bytes that fill the last block after `size` bytes of content."""
    return bytes(-size % BLOCK)


def _cut(name: bytes) -> tuple[bytes, bytes]:
    """Return a prefix and the rest of a name (archive/tar, splitUSTARPath); (b"", name) if it cannot be split."""
    if len(name) <= _NAME:
        return b"", name
    last = min(len(name) - name.endswith(b"/"), _PREFIX + 1)
    at = name.rfind(b"/", 0, last)
    rest = name[at + 1 :]
    return (name[:at], rest) if at > 0 and 0 < len(rest) <= _NAME else (b"", name)


def _header(name: bytes, kind: Kind, numbers: tuple[int, ...], link: bytes = b"", prefix: bytes = b"") -> bytes:
    """Return a header block; `numbers` are mode, uid, gid, size and mtime."""
    mode, uid, gid, size, mtime = numbers
    # A PAX header has zero bytes here, other headers have octal zeros.
    devices = bytes(16) if kind is Kind.EXTENDED else b"0000000\0" * 2
    block = b"%b%07o\0%07o\0%07o\0%011o\0%011o\0        %b%bustar\x0000%b%b%b%b" % (
        name.ljust(_NAME, b"\0"), mode, uid, gid, size, mtime, kind.value, link.ljust(_NAME, b"\0"),
        bytes(64), devices, prefix.ljust(_PREFIX, b"\0"), bytes(12),
    )  # fmt: skip
    return b"%b%06o\0 %b" % (block[:148], sum(block.translate(None, b"\0")), block[156:])


def _records(name: bytes, link: bytes, capability: bytes) -> bytes:
    """Return the PAX records of the values that do not fit a header."""
    wanted = {b"linkpath": link, b"path": name}
    records = b"".join(_record(k, v) for k, v in wanted.items() if len(v) > _NAME or not v.isascii())
    return (_record(b"SCHILY.xattr.security.capability", capability) if capability else b"") + records


def _record(key: bytes, value: bytes) -> bytes:
    """Return a PAX record. It begins with its own length."""
    rest = len(key) + len(value) + len(" =\n")
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, key, value)


def _pax_name(name: bytes) -> bytes:
    folder, file = posixpath.split(name)
    return _ascii(posixpath.join(folder, b"PaxHeaders.0", file))[:_NAME].rstrip(b"/")


def _plain(name: bytes) -> bytes:
    """Return the part of a name that fits a header. A name that is cut after a slash loses that slash."""
    plain = _ascii(name)
    return plain[:_NAME].rstrip(b"/") if len(plain) > _NAME else plain


def _ascii(name: bytes) -> bytes:
    return bytes(byte for byte in name if byte < 128)
