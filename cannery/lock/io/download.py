"""One file from a URL to a path: resumable, retried, checked by size and sha256 before it gets its name.

What is there of it so far lies beside it as `<name>.part`; the sum over the whole decides, so a part from another run,
another mirror or a broken connection can do no harm.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import requests
import urllib3

from cannery.lock.io.places import url_path
from cannery.util.io.http import HostSession
from cannery.util.io.trouble import State, status_trouble, trouble

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

# Waits in seconds before the second, third and fourth try.
BACKOFF = (0.5, 1.5, 4.0)
# Longest silence of a server in seconds; a part is resumed, so a short one costs little.
SILENCE = 20.0
# Seconds to connect.
CONNECT = 10.0
BLOCK = 1 << 18
# Answers that may pass: too many requests, bad gateway, unavailable …
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class StoppedError(Exception):
    """The run was interrupted: leave the part as it is."""


class WrongFileError(Exception):
    """The file at the URL is not the one of the lock; `found` is its sha256, or what is wrong with its size."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    @property
    def words(self) -> str:
        """What the place has: a sha256, or what is wrong with its size."""
        return f"has {self.found if ' ' in self.found else f'sha256:{self.found}'}"


class UnreachableError(Exception):
    """The URL cannot be read; the message says why."""


class _AgainError(Exception):
    """A try that failed in a way that may pass."""


@dataclass(frozen=True)
class Wanted:
    """A file to be had: its final path, sha256 (hex) and size in bytes."""

    path: Path
    sha256: str
    size: int

    @property
    def part(self) -> Path:
        """Where the bytes that are there so far lie."""
        return self.path.with_name(self.path.name + ".part")


@dataclass(frozen=True)
class Transfer:
    """How files are fetched: the session, the event that ends it early, the longest silence of a server in seconds."""

    session: requests.Session
    stop: threading.Event
    silence: float = SILENCE


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
    """Bring the file from the first of `places` (name, URL) that has it, and return whether one did.

    What is wrong with the others comes to `troubles`. Raises `StoppedError` as `download`.
    """
    for place, url in places:
        try:
            download(transfer, wanted, url, progress)
        except WrongFileError as error:
            troubles.wrong.append(f"{place} {error.words}")
        except UnreachableError as error:
            troubles.reasons.append(f"{place}: {error}")
        else:
            return True
    return False


def download(transfer: Transfer, wanted: Wanted, url: str, progress: Callable[[int], None]) -> None:
    """Bring `url` to `wanted.path`; `progress` gets the bytes that are there so far.

    Raises `WrongFileError`, `UnreachableError` after the last try, `StoppedError` when `transfer.stop` is set.
    """
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    reason = ""
    for wait in (0.0, *BACKOFF):
        if transfer.stop.wait(wait):
            raise StoppedError
        resumed = wanted.part.exists()
        try:
            found = _receive(transfer, wanted, url, progress)
        except _AgainError as error:
            reason = str(error)
            continue
        if found == wanted.sha256:
            wanted.part.replace(wanted.path)
            return
        wanted.part.unlink(missing_ok=True)
        if not resumed:
            raise WrongFileError(found)
        # The part may have been of another file: once more, from the start.
        reason = "the rest of a part did not fit"
    raise UnreachableError(reason)


def _receive(transfer: Transfer, wanted: Wanted, url: str, progress: Callable[[int], None]) -> str:
    """Append what is missing to the part and return the sha256 of the whole, or what is wrong with its size."""
    digest = hashlib.sha256()
    with wanted.part.open("a+b") as part:
        have = _digest_part(part.fileno(), wanted.part, wanted.size, digest)
        for block in _blocks(transfer, url, have) if have < wanted.size else ():
            if block is None:  # the server starts from the first byte again
                part.truncate(0)
                digest, have = hashlib.sha256(), 0
                continue
            part.write(block)
            digest.update(block)
            have += len(block)
            progress(have)
            if transfer.stop.is_set():
                raise StoppedError
            if have > wanted.size:
                return f"more than {wanted.size} bytes"
        if have < wanted.size and not url.startswith("file:"):
            raise _AgainError(f"connection lost after {have} of {wanted.size} bytes")
        part.flush()
        os.fsync(part.fileno())
    return digest.hexdigest() if have == wanted.size else f"{have} bytes in place of {wanted.size}"


def _digest_part(fd: int, path: Path, size: int, digest: hashlib._Hash) -> int:
    """Feed what is already there to `digest` and return its length; a part that is too long is emptied."""
    have = path.stat().st_size
    if have > size:
        os.ftruncate(fd, 0)
        return 0
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return have


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
    waits = (min(transfer.silence, CONNECT), transfer.silence)
    try:
        with transfer.session.get(url, headers=headers, stream=True, timeout=waits) as response:
            if response.status_code == 416:
                yield None
                raise _AgainError("the server has less than the part")
            if response.status_code in PASSING:
                raise _AgainError(_answered(response, url, transfer))
            if response.status_code not in (200, 206):
                raise UnreachableError(_answered(response, url, transfer))
            if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                yield None
            yield from response.raw.stream(BLOCK, decode_content=False)
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        state, detail = trouble(error, transfer.session, url)
        reason = f"{state}{f' ({detail})' if detail else ''}" if state is not State.OTHER else detail
        raise _AgainError(reason) from error


def _answered(response: requests.Response, url: str, transfer: Transfer) -> str:
    """Return what a status of trouble says."""
    session = transfer.session
    state, detail = status_trouble(response, session.proxy_words(url) if isinstance(session, HostSession) else "")
    return f"{state} ({detail})" if state in {State.BUSY, State.PROXY} else f"HTTP {response.status_code}"
