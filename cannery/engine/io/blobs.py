"""Send and fetch blobs as streams (OCI distribution specification, "Pulling blobs", "Pushing blobs")."""

from __future__ import annotations

import io
import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from cannery.engine.io.registry import Limits, named_url
from cannery.engine.oci import AbsentError, DeniedError, MalformedError, PassingError, RefusedError
from cannery.util.addresses import digest_of
from cannery.util.io.files import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from cannery.engine.io.registry import Reply, Repository

# A registry may look through all of a large blob before it answers.
BULK = Limits(connect=30.0, read=300.0, total=math.inf)
_BYTES = {"Content-Type": "application/octet-stream"}


def has_blob(repository: Repository, digest: str) -> bool:
    """Whether a repository has a blob. Raises `RefusedError`."""
    try:
        repository.call("HEAD", f"blobs/{digest}", {})
    except AbsentError:
        return False
    return True


def begin_upload(repository: Repository, digest: str, sources: Iterable[str]) -> str:
    """Return the URL to send a blob to; "" if the registry has mounted it from one of the repositories `sources`.

    Only status 201 means that it is mounted. If the registry refuses all mounts, a plain upload begins. Raises
    `RefusedError`.
    """
    for source in sources:
        query = urlencode({"mount": digest, "from": source})
        try:
            reply = repository.call("POST", f"blobs/uploads/?{query}", {}, b"")
        except PassingError:
            raise
        except RefusedError:
            continue
        return "" if reply.status == 201 else _location(reply)
    return _location(repository.call("POST", "blobs/uploads/", {}, b""))


@dataclass(frozen=True)
class Content:
    """The content of a blob: its digest, its bytes, and what opens it from a byte on."""

    digest: str
    size: int
    open: Callable[[int], io.RawIOBase]


def remote_content(repository: Repository, digest: str, size: int) -> Content:
    """Return the content of a blob of a repository. It is fetched while it is read.

    A read raises `RefusedError`, which names the repository, also for a blob of another size: more bytes than the
    length of an upload would be a request of their own to the registry that gets them.
    """

    def blocks(start: int) -> Iterator[bytes]:
        skipped, left = 0, size - start
        for block in repository.blob(digest, start):
            if block is None:  # the registry sends it from the first byte
                skipped = start
                continue
            wanted = block[skipped:]
            skipped, left = max(0, skipped - len(block)), left - len(wanted)
            if left < 0:
                raise MalformedError(f"a layer has more than the {size} bytes that its manifest names")
            yield wanted
        if left:
            raise PassingError(f"connection lost {left} bytes before the end of a layer")

    def named(start: int) -> Iterator[bytes]:
        try:
            yield from blocks(start)
        except RefusedError as error:
            # A login that is refused there is not one to the registry that gets the blob.
            kind = RefusedError if isinstance(error, DeniedError) else type(error)
            raise kind(f"{repository.reference.name}, which has a layer: {error}") from error

    return Content(digest, size, lambda start: Blocks(named(start)))


def send_blob(repository: Repository, location: str, content: Content, moved: Callable[[int], None]) -> None:
    """Send a blob to the URL that `begin_upload` returned; `moved` gets the bytes sent so far.

    A lost connection is retried from the last byte that the registry has. The retries start anew whenever that byte
    has moved on. Raises `RefusedError`; `PassingError` if the upload has to begin again.
    """
    size, start, waits = content.size, 0, list(repository.waits)
    while True:
        part = {"Content-Range": f"{start}-{size - 1}"} if start else {}

        def body(at: int = start) -> _Body:
            return _Body(content, at, moved)

        try:
            reply = repository.call_once("PATCH", location, {**_BYTES, **part}, body)
            break
        except PassingError as error:
            if not waits:
                raise
            time.sleep(waits.pop(0))
            location, there = _resumed(repository, location, error)
            waits = list(repository.waits) if there > start else waits
            start = there
    try:
        repository.call("PUT", _ending(_location(reply), content.digest), _BYTES, b"")
    except AbsentError as error:  # or an earlier try has ended it, and the response was lost
        raise PassingError("the registry has lost the upload") from error


def put_blob(repository: Repository, data: bytes) -> None:
    """Send a small blob, unless the repository has it. Raises `RefusedError`."""
    digest = digest_of(data)
    if not has_blob(repository, digest):
        repository.call("PUT", _ending(begin_upload(repository, digest, ()), digest), _BYTES, data)


def _ending(location: str, digest: str) -> str:
    """Return the URL that ends an upload."""
    return f"{location}{'&' if urlsplit(location).query else '?'}digest={quote(digest)}"


def _resumed(repository: Repository, location: str, error: PassingError) -> tuple[str, int]:
    """Return the URL and the byte at which an upload continues. Raises `error` if the registry has lost it."""
    try:
        reply = repository.call("GET", location, {})
    except PassingError:
        raise
    except RefusedError:
        raise error from None
    last = reply.headers.get("Range", "").rpartition("-")[2]
    # Registries answer `0-0` when they have no byte.
    return _location(reply, location), int(last) + 1 if last.isdecimal() and last != "0" else 0


def _location(reply: Reply, known: str = "") -> str:
    """Return the Location of a response, as a whole URL."""
    named = reply.headers.get("Location", known)
    if not named:
        raise MalformedError("it returned no URL for an upload")
    return named_url(reply, named)


class _Body(io.BufferedReader):
    """A blob from a byte on, as `requests` sends it: it has a length and a position, which each read reports."""

    def __init__(self, content: Content, start: int, moved: Callable[[int], None]) -> None:
        super().__init__(content.open(start))
        self._size, self._at, self._moved = content.size, start, moved

    def __len__(self) -> int:
        return self._size

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position: `requests` sends a body again if the registry redirects it."""
        self._at = super().seek(offset, whence)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Read."""
        data = super().read(size)
        self._at += len(data)
        self._moved(self._at)
        return data


def fetch_blob(repository: Repository, digest: str, size: int, part: Path, moved: Callable[[int], None]) -> None:
    """Fetch a blob into the file `part`, or the rest of it if an earlier try has begun. The caller checks the digest.

    Raises `RefusedError`, and `OSError` if the file cannot be written.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as stream:
        if stream.tell() > size:
            stream.truncate(0)
        have = stream.tell()
        for block in repository.blob(digest, have) if have < size else ():
            if block is None:  # the registry sends it from the first byte
                stream.truncate(0)
                have = 0
                continue
            stream.write(block)
            have += len(block)
            moved(have)
            if have > size:
                raise MalformedError(f"a layer has more than the {size} bytes that its manifest names")
        stream.flush()
        os.fsync(stream.fileno())
    if have < size:
        raise PassingError(f"connection lost after {have} of {size} bytes")
