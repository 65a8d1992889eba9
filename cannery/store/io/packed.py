"""Layers as gzip. A file may have several members, of which Python's `zlib` objects read only the first."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from contextlib import suppress
from itertools import chain
from typing import IO, TYPE_CHECKING, Protocol

from cannery.assemble.content import Made
from cannery.errors import FindingsError

if TYPE_CHECKING:
    import io
    from collections.abc import Iterable, Iterator

# The library and level that compress layers. zlib's level 1 makes layers 8 % larger than its default, in a fraction of
# the time. Intel's library is several times as fast as that, and its level 2 makes them 1 % smaller than zlib's 1.
deflate, LEVEL = zlib, 1
if not TYPE_CHECKING:
    with suppress(ImportError):  # some platforms have no wheel of it
        from isal import isal_zlib

        deflate, LEVEL = isal_zlib, 2
BLOCK = 1 << 16
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# zlib's window with a gzip header and sum.
WBITS = 31
# Larger than any file of a layer.
MOST_BYTES = 1 << 42


class Writer(Protocol):
    """A stream that can be written."""

    def write(self, data: bytes, /) -> int:
        """Write."""

    def flush(self) -> None:
        """Flush."""


def read_blocks(stream: IO[bytes] | io.RawIOBase) -> Iterator[bytes]:
    """Yield what is left of a stream."""
    while block := stream.read(BLOCK):
        yield block


def inflated(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress gzip blocks, all members. Raises `FindingsError` if they are damaged or end too early."""
    worker = deflate.decompressobj(WBITS)
    try:
        for block in blocks:
            while block:
                if worker.eof:
                    worker = deflate.decompressobj(WBITS)
                yield worker.decompress(block)
                block = worker.unused_data  # noqa: PLW2901 - what follows the member that has ended
    except deflate.error as error:
        raise FindingsError(f"a layer is damaged: {error}") from error
    if not worker.eof:
        raise FindingsError("a layer is cut off")


def check_size(member: tarfile.TarInfo) -> None:
    """Raise `tarfile.ReadError` for a member of a tar with a negative size, or one larger than any disk."""
    if not 0 <= member.size <= MOST_BYTES:
        raise tarfile.ReadError(f"{member.name[:100]!r} claims to have {member.size:.0e} bytes")


def pack(stream: IO[bytes], into: Writer) -> Made:
    """Copy a layer, and return DiffID and size of its tar. A plain tar is compressed; gzip is copied unchanged.

    Raises `FindingsError` for a damaged one, and for zstd, which Python 3.11 does not read.
    """
    first = stream.read(BLOCK)
    if first.startswith(ZSTD):
        raise FindingsError("a layer is packed by zstd", hint="make the image again with layers as gzip")
    blocks = chain((first,), read_blocks(stream))
    return tar_of(inflated(_copied(blocks, into)) if first.startswith(GZIP) else _compressed(blocks, into))


def _copied(blocks: Iterable[bytes], into: Writer) -> Iterator[bytes]:
    for block in blocks:
        into.write(block)
        yield block


def _compressed(blocks: Iterable[bytes], into: Writer) -> Iterator[bytes]:
    squeeze = deflate.compressobj(LEVEL, wbits=WBITS)
    for block in blocks:
        into.write(squeeze.compress(block))
        yield block
    into.write(squeeze.flush())


def tar_of(blocks: Iterable[bytes]) -> Made:
    """Return DiffID and size of a tar, given in blocks."""
    digest, size = hashlib.sha256(), 0
    for block in blocks:
        digest.update(block)
        size += len(block)
    return Made(f"sha256:{digest.hexdigest()}", size)
