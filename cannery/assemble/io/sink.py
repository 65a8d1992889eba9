"""Writes the tar of a layer to a stream, as it is or as gzip. Files of a wheel are not compressed a second time.

A file in a wheel is a deflate stream with a CRC (PKZIP's application note, 4.3), and so is a member of a gzip file (RFC
1952). The deflate stream gets a gzip header and trailer, and the image store does not write it again. Tar headers and
small files between two such members are compressed here.
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
    from collections.abc import Callable, Iterable, Iterator
    from zipfile import ZipFile

    from cannery.assemble.io.wheel_files import File
    from cannery.store.io.pieces import PiecesPart

# Bytes that are hashed and written at once, and bytes that are inflated at once, which can grow a thousandfold.
BLOCK, STEP = 1 << 18, 1 << 16
# A file with fewer compressed bytes is compressed again with its neighbours: a gzip member of its own would cost more.
SMALL = 1 << 12
# A gzip header without name and time, of an unknown system.
_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
# The fixed part of the header ahead of a file in a zip archive: it ends with the lengths of its name and extra field.
_LENGTHS = struct.Struct("<26x2H")


class Member:
    """The bytes of a file in a wheel, in blocks. `zipfile` takes twice the time for a small file."""

    def __init__(self, file: File, archive: ZipFile) -> None:
        self._file, self._archive = file, archive

    def __iter__(self) -> Iterator[bytes]:
        return self.blocks(None)

    @property
    def packed(self) -> ZipInfo | None:
        """Its entry in the archive's directory if it is deflated there, else None."""
        info = self._file.content
        return info if isinstance(info, ZipInfo) and info.compress_type == ZIP_DEFLATED else None

    def blocks(self, also: Callable[[IO[bytes], int, bytes], None] | None) -> Iterator[bytes]:
        """Yield its bytes. Raises `WheelError` if they are damaged.

        `also` gets the deflate stream in blocks: the open wheel, the block's first byte in the wheel, and the block.
        """
        info = self.packed
        if info is None:
            yield from self._file.blocks(self._archive)
            return
        worker, count, crc = deflate.decompressobj(-deflate.MAX_WBITS), 0, 0
        for start, block in self.stream(info):
            if also:
                also(self._stream, start, block)
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

    def stream(self, info: ZipInfo) -> Iterator[tuple[int, bytes]]:
        """Yield the deflate stream of a deflated file in blocks, each with its first byte in the wheel."""
        stream, left = self._stream, info.compress_size
        stream.seek(info.header_offset)
        name, extra = _LENGTHS.unpack(stream.read(_LENGTHS.size))
        at = stream.seek(name + extra, os.SEEK_CUR)
        while left and (block := stream.read(min(STEP, left))):
            yield at, block
            at, left = at + len(block), left - len(block)

    @property
    def _stream(self) -> IO[bytes]:
        return cast("IO[bytes]", self._archive.fp)

    def _damaged(self, info: ZipInfo) -> WheelError:
        return WheelError(f"{posixpath.basename(self._archive.filename or '')}: {info.filename} is damaged")


class TarSink:
    """Writes the tar of a layer to a stream as it is."""

    def __init__(self, stream: Writer) -> None:
        self.stream = stream
        self.digest, self.size, self._pending = hashlib.sha256(), 0, bytearray()

    def add(self, data: bytes) -> None:
        """Write bytes that are in no wheel."""
        self._pending += data
        if len(self._pending) >= BLOCK:
            self.flush()

    def take(self, blocks: Iterable[bytes]) -> None:
        """Write the bytes of a file. Raises `WheelError` if it is in a wheel and damaged."""
        for block in blocks:
            self.add(block)

    def flush(self) -> None:
        """Hash the pending bytes and pass them on."""
        if not self._pending:
            return
        self.digest.update(self._pending)
        self.size += len(self._pending)
        self.put(bytes(self._pending))
        self._pending.clear()

    def put(self, data: bytes) -> None:
        """Write a part of the tar."""
        self.stream.write(data)

    def end(self) -> Made:
        """Write the rest; return DiffID and size of the tar."""
        self.flush()
        self.stream.flush()
        return Made(f"sha256:{self.digest.hexdigest()}", self.size)


class GzipSink(TarSink):
    """Writes the tar of a layer as gzip with several members."""

    def __init__(self, stream: PiecesPart) -> None:
        super().__init__(stream)
        self._part = stream
        self._squeeze = deflate.compressobj(LEVEL, wbits=WBITS)

    def take(self, blocks: Iterable[bytes]) -> None:
        """Write the bytes of a file. Large files of a wheel are copied as deflated there. Raises as `TarSink.take`."""
        info = blocks.packed if isinstance(blocks, Member) else None
        if not isinstance(blocks, Member) or info is None or info.compress_size < SMALL:
            super().take(blocks)
            return
        self.flush()
        self._close()
        self.stream.write(_HEAD)
        for data in blocks.blocks(self._part.copy):
            self.digest.update(data)
        self.size += info.file_size
        self.stream.write(struct.pack("<II", info.CRC, info.file_size & 0xFFFFFFFF))

    def put(self, data: bytes) -> None:
        """Compress a part of the tar, and write it."""
        self.stream.write(self._squeeze.compress(data))

    def _close(self) -> None:
        """End the gzip member of the bytes that are compressed here."""
        self.stream.write(self._squeeze.flush())
        self._squeeze = deflate.compressobj(LEVEL, wbits=WBITS)

    def end(self) -> Made:
        """Write the rest; return DiffID and size of the tar."""
        self.flush()
        self._close()
        return super().end()
