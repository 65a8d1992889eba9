"""Where a layer's tar goes: to a stream as it is, or as gzip for which nothing is compressed that a wheel has packed.

A wheel's file is a deflate stream with a sum (PKZIP's application note, 4.3), and so is a member of a gzip file (RFC
1952): its bytes are copied between another head and end. What is between them, headers and small files, is compressed.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import struct
from typing import IO, TYPE_CHECKING, cast
from zipfile import ZIP_DEFLATED, ZipInfo

from cannery.assemble.content import Made
from cannery.assemble.io.wheel_files import WheelError
from cannery.store.io.packed import LEVEL, WBITS, Writer, deflate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from zipfile import ZipFile

    from cannery.assemble.io.wheel_files import File

# Bytes that are hashed and written at once, and that are inflated at once: those become a thousand times more, at most.
BLOCK, STEP = 1 << 18, 1 << 16
# A file of fewer packed bytes is compressed with its neighbours: a member has an end and a head of its own.
SMALL = 1 << 12
# No name, no time, of an unknown system.
_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
# The fixed part of the header ahead of a file in a zip archive: it ends with the lengths of its name and extra field.
_LENGTHS = struct.Struct("<26x2H")


class Member:
    """A file of a wheel, as its bytes in blocks. `zipfile` would take twice the time for a small one."""

    def __init__(self, file: File, archive: ZipFile) -> None:
        self._file, self._archive = file, archive

    def __iter__(self) -> Iterator[bytes]:
        return self.blocks(None)

    @property
    def packed(self) -> ZipInfo | None:
        """What the archive's directory has of it, where it is a deflate stream there; else None."""
        info = self._file.content
        return info if isinstance(info, ZipInfo) and info.compress_type == ZIP_DEFLATED else None

    def blocks(self, also: Writer | None) -> Iterator[bytes]:
        """Give its bytes; `also` gets the deflate stream on the way. Raises `WheelError` where they are damaged."""
        info = self.packed
        if info is None:
            yield from self._file.blocks(self._archive)
            return
        worker, count, crc = deflate.decompressobj(-deflate.MAX_WBITS), 0, 0
        for block in self.stream(info):
            if also:
                also.write(block)
            try:
                data = worker.decompress(block)
            except deflate.error as error:
                raise self._damaged(info) from error
            count, crc = count + len(data), deflate.crc32(data, crc)
            if count > info.file_size:
                break
            yield data
        if not worker.eof or worker.unused_data or (count, crc) != (info.file_size, info.CRC):
            raise self._damaged(info)

    def stream(self, info: ZipInfo) -> Iterator[bytes]:
        """Give the deflate stream of what is packed, in blocks."""
        stream, left = cast("IO[bytes]", self._archive.fp), info.compress_size
        stream.seek(info.header_offset)
        name, extra = _LENGTHS.unpack(stream.read(_LENGTHS.size))
        stream.seek(name + extra, os.SEEK_CUR)
        while left and (block := stream.read(min(STEP, left))):
            yield block
            left -= len(block)

    def _damaged(self, info: ZipInfo) -> WheelError:
        return WheelError(f"{posixpath.basename(self._archive.filename or '')}: {info.filename} is damaged")


class TarSink:
    """Writes a layer's tar to a stream as it is."""

    def __init__(self, stream: Writer) -> None:
        self.stream = stream
        self.digest, self.size, self._pending = hashlib.sha256(), 0, bytearray()

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._pending += data
        if len(self._pending) >= BLOCK:
            self.flush()

    def take(self, blocks: Iterable[bytes]) -> None:
        """Take the bytes of a file. Raises `WheelError` where it is in a wheel and damaged."""
        for block in blocks:
            self.add(block)

    def flush(self) -> None:
        """Pass on what was taken."""
        if not self._pending:
            return
        self.digest.update(self._pending)
        self.size += len(self._pending)
        self.put(bytes(self._pending))
        self._pending.clear()

    def put(self, data: bytes) -> None:
        """Write some of the tar."""
        self.stream.write(data)

    def end(self) -> Made:
        """Write what is left; return what the tar came to."""
        self.flush()
        self.stream.flush()
        return Made(f"sha256:{self.digest.hexdigest()}", self.size)


class GzipSink(TarSink):
    """Writes a layer's tar as gzip, of several members."""

    def __init__(self, stream: Writer) -> None:
        super().__init__(stream)
        self._squeeze = deflate.compressobj(LEVEL, wbits=WBITS)

    def take(self, blocks: Iterable[bytes]) -> None:
        """Take the next bytes; a large file of a wheel comes as it is packed there. Raises as `TarSink.take`."""
        info = blocks.packed if isinstance(blocks, Member) else None
        if not isinstance(blocks, Member) or info is None or info.compress_size < SMALL:
            super().take(blocks)
            return
        self.flush()
        self._close()
        self.stream.write(_HEAD)
        for data in blocks.blocks(self.stream):
            self.digest.update(data)
        self.size += info.file_size
        self.stream.write(struct.pack("<II", info.CRC, info.file_size & 0xFFFFFFFF))

    def put(self, data: bytes) -> None:
        """Compress some of the tar, and write it."""
        self.stream.write(self._squeeze.compress(data))

    def _close(self) -> None:
        """End the member of what is compressed."""
        self.stream.write(self._squeeze.flush())
        self._squeeze = deflate.compressobj(LEVEL, wbits=WBITS)

    def end(self) -> Made:
        """Write what is left; return what the tar came to."""
        self.flush()
        self._close()
        return super().end()
