"""One file from a URL to a path: resumed, retried, and checked by size and sha256 before it gets its name.

The bytes that have arrived are in `<name>.part` beside it. The sum over the whole file decides, so a part from another
run, another mirror or a dropped connection does no harm.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import requests
import urllib3

from cannery.lock.io.places import url_path
from cannery.util.io.files import sha256_file
from cannery.util.io.http import HostSession
from cannery.util.io.parallel import StoppedError
from cannery.util.io.retry import PassingError, retrying
from cannery.util.io.trouble import status_trouble, trouble
from cannery.util.trouble import State

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

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


@dataclass(frozen=True)
class Wanted:
    """A file to download: its final path, sha256 (hex) and size in bytes."""

    path: Path
    sha256: str
    size: int

    @property
    def part(self) -> Path:
        """The file of the bytes that have arrived."""
        return self.path.with_name(self.path.name + ".part")


@dataclass(frozen=True)
class Transfer:
    """How files are downloaded: the session, and the event that ends it early."""

    session: requests.Session
    stop: threading.Event


@dataclass
class Troubles:
    """Why no place gave a file: those that have another one (`wrong`), and those that gave none (`reasons`)."""

    wrong: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def download_first(
    transfer: Transfer,
    wanted: Wanted,
    places: Iterable[tuple[str, str]],
    progress: Callable[[int], None],
    troubles: Troubles,
) -> bool:
    """Download the file from the first of `places` (name, URL) that has it; return whether one did.

    `progress` gets the number of bytes that have arrived. What is wrong with the other places is added to `troubles`.
    Raises `StoppedError` when `transfer.stop` is set.
    """
    wanted.path.parent.mkdir(parents=True, exist_ok=True)

    def sleep(seconds: float) -> None:
        if transfer.stop.wait(seconds):
            raise StoppedError

    for place, url in places:
        try:
            retrying(sleep)(_download, transfer, wanted, url, progress)
        except WrongFileError as error:
            troubles.wrong.append(f"{place} has {error}")
        except (UnreachableError, PassingError) as error:
            troubles.reasons.append(f"{place}: {error}")
        else:
            return True
    return False


def _download(transfer: Transfer, wanted: Wanted, url: str, progress: Callable[[int], None]) -> None:
    if transfer.stop.is_set():
        raise StoppedError
    resumed = wanted.part.exists()
    found = _receive(transfer, wanted, url, progress)
    if found == f"sha256:{wanted.sha256}":
        wanted.part.replace(wanted.path)
        return
    wanted.part.unlink(missing_ok=True)
    if resumed:  # the part may have been of another file: once more, from the start
        raise PassingError("the part of an earlier download does not fit the rest")
    raise WrongFileError(found)


def _receive(transfer: Transfer, wanted: Wanted, url: str, progress: Callable[[int], None]) -> str:
    """Append what is missing to the part; return the sha256 of the whole file, or what is wrong with its size."""
    with wanted.part.open("ab") as part:
        if part.tell() > wanted.size:
            part.truncate(0)
        for block in _blocks(transfer, url, part.tell()) if part.tell() < wanted.size else ():
            if block is None:  # the server starts from the first byte again
                part.truncate(0)
                continue
            part.write(block)
            progress(part.tell())
            if transfer.stop.is_set():
                raise StoppedError
            if part.tell() > wanted.size:
                return f"more than {wanted.size} bytes"
        have = part.tell()
        if have < wanted.size and not url.startswith("file:"):
            raise PassingError(f"connection lost after {have} of {wanted.size} bytes")
        part.flush()
        os.fsync(part.fileno())
    if have != wanted.size:
        return f"{have} bytes in place of {wanted.size}"
    return f"sha256:{sha256_file(wanted.part)}"


def _blocks(transfer: Transfer, url: str, start: int) -> Iterator[bytes | None]:
    if url.startswith("file:"):
        return _file_blocks(url_path(url), start)
    return _http_blocks(url, start, transfer)


def _file_blocks(path: Path, start: int) -> Iterator[bytes | None]:
    try:
        with path.open("rb") as stream:
            stream.seek(start)
            while block := stream.read(BLOCK):
                yield block
    except OSError as error:
        raise UnreachableError(error.strerror or type(error).__name__) from error


def _http_blocks(url: str, start: int, transfer: Transfer) -> Iterator[bytes | None]:
    """Blocks of the file from byte `start` on; a None first when the server sends it all instead."""
    # Bytes as they are: a gzip on the way would be undone by some clients and counted by none.
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    waits = (min(SILENCE, CONNECT), SILENCE)
    try:
        with transfer.session.get(url, headers=headers, stream=True, timeout=waits) as response:
            if response.status_code == 416:
                yield None
                raise PassingError("the server has less than the part")
            if response.status_code in PASSING:
                raise PassingError(_answered(response, url, transfer))
            if response.status_code not in (200, 206):
                raise UnreachableError(_answered(response, url, transfer))
            if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                yield None
            yield from response.raw.stream(BLOCK, decode_content=False)
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        state, detail = trouble(error, transfer.session, url)
        reason = f"{state}{f' ({detail})' if detail else ''}" if state is not State.OTHER else detail
        raise PassingError(reason) from error


def _answered(response: requests.Response, url: str, transfer: Transfer) -> str:
    """Return the reason that a status of trouble gives."""
    session = transfer.session
    state, detail = status_trouble(response, session.proxy_words(url) if isinstance(session, HostSession) else "")
    return f"{state} ({detail})" if state in {State.BUSY, State.PROXY} else f"HTTP {response.status_code}"
