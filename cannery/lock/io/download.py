"""One file from a URL to a path: resumed, retried, and checked by size and sha256 before it gets its name.

The bytes that have arrived are in `<name>.part` beside it. The sum over the whole file decides, so a part from another
run, another mirror or a dropped connection does no harm.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import requests
import urllib3

from cannery.errors import NetworkError
from cannery.lock.io.indexes import url_path
from cannery.util.addresses import shown
from cannery.util.io.files import sha256_file
from cannery.util.io.http import CertificateError, PassingError, retrying, status_trouble, trouble
from cannery.util.io.locks import StoppedError
from cannery.util.trouble import State

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cannery.util.io.http import HostSession

# Longest silence of a server in seconds; a part is resumed, so a short one costs little.
SILENCE = 20.0
# Seconds to connect.
CONNECT = 10.0
BLOCK = 1 << 18
# Answers that may pass: too many requests, bad gateway, unavailable …
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class WrongFileError(Exception):
    """The file at the URL is not the wanted one; the message is what the URL has."""


class UnreachableError(Exception):
    """The URL cannot be read; the message is the reason."""


@dataclass
class Download:
    """One file to bring to `path`: its sha256 (hex) and size in bytes, the session, and the event that ends it early.

    `progress` gets the number of bytes that have arrived.
    """

    path: Path
    sha256: str
    size: int
    session: HostSession
    stop: threading.Event
    progress: Callable[[int], None]

    @property
    def part(self) -> Path:
        """The file of the bytes that have arrived."""
        return self.path.with_name(self.path.name + ".part")

    def fetch(self, url: str) -> None:
        """Download the file; what may pass is tried again.

        Raises `WrongFileError`, `UnreachableError`, `PassingError`; `StoppedError` when `stop` is set, `OSError` when
        the file cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        retrying(self._sleep)(self._try, url)

    def _sleep(self, seconds: float) -> None:
        if self.stop.wait(seconds):
            raise StoppedError

    def _try(self, url: str) -> None:
        self._sleep(0)
        resumed = self.part.exists()
        found = self._receive(url)
        if found == f"sha256:{self.sha256}":
            self.part.replace(self.path)
            return
        self.part.unlink(missing_ok=True)
        if resumed:  # the part may have been of another file: once more, from the start
            raise PassingError("the part of an earlier download does not fit the rest")
        raise WrongFileError(found)

    def _receive(self, url: str) -> str:
        """Append what is missing to the part; return the sha256 of the whole file, or what is wrong with its size."""
        with self.part.open("ab") as part:
            if part.tell() > self.size:
                part.truncate(0)
            have = part.tell()
            for block in self._blocks(url, have) if have < self.size else ():
                part.write(block)
                have += len(block)
                self.progress(have)
                self._sleep(0)
                if have > self.size:
                    return f"more than {self.size} bytes"
            if have < self.size and not url.startswith("file:"):
                raise PassingError(f"connection lost after {have} of {self.size} bytes")
            part.flush()
            os.fsync(part.fileno())
        return f"sha256:{sha256_file(self.part)}" if have == self.size else f"{have} bytes in place of {self.size}"

    def _blocks(self, url: str, start: int) -> Iterator[bytes]:
        """Give the blocks of the file from byte `start` on. The part goes where the server cannot go on with it."""
        if url.startswith("file:"):
            yield from _file_blocks(url_path(url), start)
            return
        # Bytes as they are: a gzip on the way would be undone by some clients and counted by none.
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
        waits = (min(SILENCE, CONNECT), SILENCE)
        try:
            with self.session.get(url, headers=headers, stream=True, timeout=waits) as response:
                if response.status_code == 416:
                    self.part.unlink()
                    raise PassingError("the server has less than the part")
                if response.status_code not in (200, 206):
                    passing = response.status_code in PASSING
                    raise (PassingError if passing else UnreachableError)(self._answered(response, url))
                if response.headers.get("Content-Type", "").startswith("text/html"):
                    raise UnreachableError("a web page came in place of the file: a login, or a notice of a proxy")
                if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                    self.part.unlink()
                    raise PassingError("the server starts from the first byte again")
                yield from response.raw.stream(BLOCK, decode_content=False)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            state, detail = trouble(error, self.session, url)
            reason = f"{state}{f' ({detail})' if detail else ''}" if state is not State.OTHER else detail
            raise PassingError(reason) from error

    def _answered(self, response: requests.Response, url: str) -> str:
        """Return the reason that a status of trouble gives."""
        state, detail = status_trouble(response, self.session.proxy_words(url))
        return f"{state} ({detail})" if state in {State.BUSY, State.PROXY} else f"HTTP {response.status_code}"


def _file_blocks(path: Path, start: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            stream.seek(start)
            while block := stream.read(BLOCK):
                yield block
    except OSError as error:
        raise UnreachableError(error.strerror or type(error).__name__) from error


def remote_size(url: str, session: requests.Session, timeout: float) -> int:
    """Return the bytes of a file whose index gives no size. Raises `NetworkError` when nothing does."""
    try:
        if url.startswith("file:"):
            return url_path(url).stat().st_size
        response = session.head(url, timeout=timeout, allow_redirects=True, headers={"Accept-Encoding": "identity"})
        response.raise_for_status()
        return int(response.headers["Content-Length"])
    except (OSError, KeyError, ValueError) as error:  # requests' own are OSErrors
        reason = str(error) if isinstance(error, CertificateError) else type(error).__name__
        raise NetworkError(f"{shown(url)}: its size is not known ({reason})") from error
