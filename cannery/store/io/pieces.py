"""Layers whose bytes are mostly in other files of this host, such as wheels. These bytes are not written again.

Such a layer is a folder of the store:

    0                a file with the bytes that are in no other file
    1, 2, …          hard links to the other files, which are wheels and byte code
    pieces.json      the layer as pieces: [number of the file, first byte there, bytes]
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from bisect import bisect_right
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Self

from cannery.store.describe import Blob
from cannery.util.io.files import write_atomic

PIECES = "pieces.json"


class Part:
    """A blob that is being written to a stream; it is hashed on the way."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> int:
        """Write."""
        self.count(data)
        return self.stream.write(data)

    def count(self, data: bytes) -> None:
        """Add bytes to the digest and the size, without writing them."""
        self._digest.update(data)
        self._size += len(data)

    def flush(self) -> None:
        """Flush."""
        self.stream.flush()

    @property
    def blob(self) -> Blob:
        """Digest and size of the bytes so far."""
        return Blob(f"sha256:{self._digest.hexdigest()}", self._size)


class PiecesPart(Part):
    """A blob that is being written into a new folder, as pieces. `files` are the files of the folder by number."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.files = folder, [folder / "0"]
        self._numbers: dict[IO[bytes], int] = {}
        self._pieces: list[list[int]] = []
        super().__init__(self.files[0].open("wb"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stream.close()

    def write(self, data: bytes) -> int:
        """Write bytes that are in no other file."""
        self._add(0, self.stream.tell(), len(data))
        return super().write(data)

    def copy(self, file: IO[bytes], start: int, data: bytes) -> None:
        """Add bytes that an open file has from byte `start` on.

        They are written if the file cannot be linked, for example because it is on another disk.
        """
        if file not in self._numbers:
            self._numbers[file] = self._linked(file)
        if number := self._numbers[file]:
            self._add(number, start, len(data))
            self.count(data)
        else:
            self.write(data)

    def _linked(self, file: IO[bytes]) -> int:
        """Link a file into the folder; return its number, 0 if it cannot be linked."""
        link = self.folder / str(len(self.files))
        try:
            os.link(Path(file.name).resolve(), link)
        except OSError:
            return 0
        if not os.path.samestat(link.stat(), os.fstat(file.fileno())):  # another run has replaced it
            link.unlink()
            return 0
        self.files.append(link)
        return len(self.files) - 1

    def _add(self, number: int, start: int, size: int) -> None:
        last = self._pieces[-1] if self._pieces else None
        if last and last[0] == number and last[1] + last[2] == start:
            last[2] += size
        else:
            self._pieces.append([number, start, size])

    def end(self) -> Path:
        """Write the rest; return the folder, or its only file if nothing was copied. Raises `OSError`."""
        self.flush()
        os.fsync(self.stream.fileno())
        if len(self.files) == 1:
            return self.files[0]
        write_atomic(self.folder / PIECES, json.dumps(self._pieces, separators=(",", ":")))
        return self.folder


class Pieces(io.RawIOBase):
    """The blob in a folder of pieces, as a file. Raises `ValueError` for a damaged list of pieces, and `OSError`.

    `size` is the size of the blob.
    """

    def __init__(self, folder: Path, size: int) -> None:
        super().__init__()
        self._at, self._stack = 0, ExitStack()
        self._pieces = _pieces((folder / PIECES).read_bytes())
        self._ends = list(accumulate(length for _, _, length in self._pieces))
        numbers = range(1 + max(number for number, _, _ in self._pieces))  # opening ends at the first that is missing
        self._files = [self._stack.enter_context((folder / str(n)).open("rb", buffering=0)) for n in numbers]
        sizes = [os.fstat(file.fileno()).st_size for file in self._files]
        is_inside = all(start + length <= sizes[number] for number, start, length in self._pieces)
        if not is_inside or self._ends[-1] != size:
            raise ValueError("a list of pieces does not fit its files")

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._ends[-1]}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        """Fill a buffer, from as many pieces as that takes."""
        rest = memoryview(buffer)
        while rest and (index := bisect_right(self._ends, self._at)) < len(self._pieces):
            number, start, size = self._pieces[index]
            left = self._ends[index] - self._at
            count = os.preadv(self._files[number].fileno(), [rest[:left]], start + size - left)
            if not count:  # the file was cut off since it was opened
                break
            self._at += count
            rest = rest[count:]
        return len(buffer) - len(rest)

    def close(self) -> None:
        """Close the files."""
        self._stack.close()
        super().close()


def _pieces(text: bytes) -> list[tuple[int, int, int]]:
    """Parse a list of pieces. Raises `ValueError` for a damaged one."""
    try:
        found = [(number, start, size) for number, start, size in json.loads(text)]
    except (TypeError, RecursionError) as error:
        raise ValueError("no list of pieces") from error
    if {type(value) for piece in found for value in piece} != {int} or min(map(min, found)) < 0:
        raise ValueError("no list of pieces")
    return found
