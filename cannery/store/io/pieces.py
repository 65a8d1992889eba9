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
        self._numbers: dict[str, int] = {}
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

    def copy(self, path: str, start: int, data: bytes) -> None:
        """Add bytes that the file `path` has from byte `start` on.

        They are written if the file cannot be linked, for example because it is on another disk.
        """
        if path not in self._numbers:
            self._numbers[path] = self._linked(Path(path))
        if number := self._numbers[path]:
            self._add(number, start, len(data))
            self.count(data)
        else:
            self.write(data)

    def _linked(self, path: Path) -> int:
        """Link a file into the folder; return its number, 0 if it cannot be linked."""
        link = self.folder / str(len(self.files))
        try:
            os.link(path.resolve(), link)
        except OSError:
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
        (self.folder / PIECES).write_text(json.dumps(self._pieces, separators=(",", ":")), encoding="utf-8")
        return self.folder


class Pieces(io.RawIOBase):
    """The blob in a folder of pieces, as a file. Raises `ValueError` for a damaged list of pieces, and `OSError`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._pieces: list[list[int]] = json.loads((folder / PIECES).read_bytes())
        self._ends = list(accumulate(piece[2] for piece in self._pieces))
        self._at = 0
        with ExitStack() as stack:
            numbers = range(1 + max(piece[0] for piece in self._pieces))
            self._files = [stack.enter_context((folder / str(n)).open("rb", buffering=0)) for n in numbers]
            self._stack = stack.pop_all()

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
        """Read."""
        index = bisect_right(self._ends, self._at)
        if index == len(self._pieces):
            return 0
        number, start, size = self._pieces[index]
        left = self._ends[index] - self._at
        data = os.pread(self._files[number].fileno(), min(len(buffer), left), start + size - left)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        """Close the files."""
        if not self.closed:
            self._stack.close()
        super().close()
