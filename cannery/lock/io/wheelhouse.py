"""Downloads the files of a lock into the wheel store (`cannery.lock.io.wheels`), with resume, retries and checks.

Received bytes are in `<name>.part`. The file gets its final name only after size and sha256 were checked, so a part
from another run or mirror does no harm. Two runs may share a store: each download holds a lock file.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import requests
import urllib3

from cannery.errors import FindingsError, NetworkError
from cannery.lock.io.indexes import ask, places_of, url_path
from cannery.lock.io.wheels import is_in_store, store_path
from cannery.lock.lock import public_mirrors
from cannery.util.addresses import shown
from cannery.util.io.files import sha256_file, unwritable
from cannery.util.io.http import CertificateError, HostSession, PassingError, retrying, status_trouble, trouble
from cannery.util.io.locks import StoppedError, held
from cannery.util.io.waiting import begin
from cannery.util.trouble import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.addresses import Index
    from cannery.lock.io.indexes import Listed
    from cannery.lock.lock import LockedPackage
    from cannery.util.io.pip_settings import Downloads, PipSettings

    # Called by several threads with the number of bytes of a file received so far.
    Progress = Callable[[LockedPackage, int], None]

# Parallel downloads.
WORKERS = 8
# Seconds that a page of an index may take.
PAGE = 20.0
# Seconds without data from a server. A short limit costs little, since downloads are resumed.
SILENCE = 20.0
# Seconds to connect.
CONNECT = 10.0
BLOCK = 1 << 18
# Status codes that may be temporary: too many requests, bad gateway, unavailable …
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class WrongFileError(Exception):
    """The URL has another file. The message is its hash or size."""


@dataclass
class Download:
    """One file to download to `path`: its sha256 (hex), its size in bytes, the session, and an event that stops it.

    `progress` gets the number of bytes received so far.
    """

    path: Path
    sha256: str
    size: int
    session: HostSession
    stop: threading.Event
    progress: Callable[[int], None]

    @property
    def part(self) -> Path:
        """The file with the received bytes."""
        return self.path.with_name(self.path.name + ".part")

    def fetch(self, url: str) -> None:
        """Download the file, and retry temporary errors.

        Raises `WrongFileError`, `NetworkError`, `PassingError`, `StoppedError` if `stop` is set, and `OSError` if the
        file cannot be written.
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
        if resumed:  # the part may be from another file: try again from the start
            raise PassingError("the part of an earlier download does not fit the rest")
        raise WrongFileError(found)

    def _receive(self, url: str) -> str:
        """Append the missing bytes to the part. Return the sha256 of the file, or what is wrong with its size."""
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
        return f"sha256:{sha256_file(self.part)}" if have == self.size else f"{have} bytes instead of {self.size}"

    def _blocks(self, url: str, start: int) -> Iterator[bytes]:
        """Yield the blocks of the file from byte `start`. Deletes the part if the server cannot resume it."""
        if url.startswith("file:"):
            yield from _file_blocks(url_path(url), start)
            return
        # Without compression, so that the bytes can be counted.
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
        waits = (min(SILENCE, CONNECT), SILENCE)
        try:
            with self.session.get(url, headers=headers, stream=True, timeout=waits) as response:
                if response.status_code == 416:
                    self.part.unlink()
                    raise PassingError("the server's file is shorter than the part")
                if response.status_code not in (200, 206):
                    state, detail = status_trouble(response, self.session.proxy_words(url))
                    is_known = state in {State.BUSY, State.PROXY}
                    what = f"{state} ({detail})" if is_known else f"HTTP {response.status_code}"
                    raise (PassingError if response.status_code in PASSING else NetworkError)(what)
                if response.headers.get("Content-Type", "").startswith("text/html"):
                    raise NetworkError("it sent a web page instead of the file: a login, or a notice of a proxy")
                if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                    self.part.unlink()
                    raise PassingError("the server starts from the first byte again")
                yield from response.raw.stream(BLOCK, decode_content=False)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            state, detail = trouble(error, self.session, url)
            reason = f"{state}{f' ({detail})' if detail else ''}" if state is not State.OTHER else detail
            raise PassingError(reason) from error


def _file_blocks(path: Path, start: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            stream.seek(start)
            while block := stream.read(BLOCK):
                yield block
    except OSError as error:
        raise NetworkError(error.strerror or type(error).__name__) from error


def remote_size(url: str, session: requests.Session, timeout: float) -> int:
    """Return the size of a file if its index does not list it. Raises `NetworkError` if the server does not send it."""
    try:
        if url.startswith("file:"):
            return url_path(url).stat().st_size
        response = session.head(url, timeout=timeout, allow_redirects=True, headers={"Accept-Encoding": "identity"})
        response.raise_for_status()
        return int(response.headers["Content-Length"])
    except (OSError, KeyError, ValueError) as error:  # the errors of requests are OSErrors
        reason = str(error) if isinstance(error, CertificateError) else type(error).__name__
        raise NetworkError(f"{shown(url)}: its size is not known ({reason})") from error


@dataclass(frozen=True)
class _Fetcher:
    indexes: Mapping[str, Index]
    settings: PipSettings
    cache: Path
    session: HostSession
    stop: threading.Event
    say: Callable[[str], None]

    def fetch(self, package: LockedPackage, progress: Progress) -> None:
        """Download one file into the store, while holding the lock file of its hash."""
        path = self.cache / "wheels" / ".locks" / f"{package.sha256}.lock"
        with held(path, lambda: None, self.stop):
            if not is_in_store(package, self.cache):
                self._fetch_locked(package, progress)

    def _fetch_locked(self, package: LockedPackage, progress: Progress) -> None:
        """Download the file from the first place that has it. If the size is unknown, the server is asked."""
        wrong: list[str] = []
        reasons: list[str] = []
        what = f"{package.name} {package.version}: {package.file}"
        path, session = store_path(package, self.cache), self.session
        for one in self._candidates(package, reasons):
            try:
                if one.sha256 and one.sha256 != package.sha256:
                    raise WrongFileError(f"sha256:{one.sha256}")
                size = package.size or one.size or remote_size(one.url, session, self.settings.timeout)
                report = partial(progress, package)
                Download(path, package.sha256, size, session, self.stop, report).fetch(one.url)
            except WrongFileError as error:
                wrong.append(f"{one.place} has {error}")
            except NetworkError as error:
                reasons.append(f"{one.place}: {error.what}")
            except PassingError as error:
                reasons.append(f"{one.place}: {error}")
            else:
                if wrong or reasons:
                    came = f"{package.file} comes from {one.place}; {'; '.join((*wrong, *reasons))}"
                    self.say(self.settings.redact(came))
                return
        if wrong:
            raise FindingsError(
                f"{what} is not the file of the lock, which has sha256:{package.sha256}; {'; '.join(wrong)}",
                hint="the lock or the index was changed; compare the hash with the lock's history",
            )
        mirrors = public_mirrors({package.index}, self.indexes)
        raise NetworkError(
            f"{what} cannot be downloaded: {self.settings.redact('; '.join(reasons))}",
            hint=f"{mirrors}{', or ' if mirrors else ''}put this file into a folder, and set WHEELHOUSE to that folder",
        )

    def _candidates(self, package: LockedPackage, reasons: list[str]) -> Iterator[Listed]:
        """Yield files of that name, local ones first. A place is only queried if the places before it have no match."""
        folders: list[str] = []  # folders without the file: reported only if no other place has it
        places = places_of(package.index, self.indexes, self.settings)
        for place in sorted(places, key=lambda place: place.folder is None):
            answer = ask(place, package.name, self.session, PAGE)
            files = [file for file in answer.files if file.file == package.file]
            if not files:
                number, remote = len(answer.files), place.folder is None
                listed = f"{place} has {number} other file{'s' * (number != 1)} of it"
                listed += ": a mirror may lag behind" * remote
                (reasons if remote else folders).append(listed if answer.files else str(answer))
            yield from files
        reasons += folders


def fetch(
    packages: Sequence[LockedPackage],
    indexes: Mapping[str, Index],
    downloads: Downloads,
    progress: Progress,
) -> dict[str, Path]:
    """Return {name: file} of every package. Files that are not in the store are downloaded, the largest first.

    A line is printed for a file that does not come from the first place. An interrupted run leaves `.part` files, and
    the next run resumes them. Raises `FindingsError` for an incomplete package or a file with another hash than in the
    lock, `NetworkError` if no index has a file or none answers, and `UnableError` if the store cannot be written. The
    message names the package, the file and every place that was queried.
    """
    incomplete = [f"{p.name} {p.version} (index {p.index})" for p in packages if not p.complete]
    if incomplete:
        raise FindingsError(
            f"the lock is incomplete: {', '.join(incomplete)}", hint="run `build.py lock` where that index is reached"
        )
    cache = downloads.cache
    files = {package.name: store_path(package, cache) for package in packages}
    todo = deque(sorted((p for p in packages if not is_in_store(p, cache)), key=lambda p: -p.size))
    if not todo:
        return files
    settings = downloads.settings()
    fetcher = _Fetcher(indexes, settings, cache, HostSession(settings), threading.Event(), downloads.say)

    def work() -> None:
        while todo and not fetcher.stop.is_set():
            try:
                package = todo.popleft()
            except IndexError:  # another thread took the last one
                return
            fetcher.fetch(package, progress)

    # The first error or an interrupt stops all downloads. An executor would wait for reads from a silent server, so
    # plain threads are used.
    threads = [begin(work) for _ in range(min(WORKERS, len(todo)))]
    try:
        for thread in as_completed(threads):
            thread.result()
    except OSError as error:
        raise unwritable(error, error.filename or cache / "wheels") from error
    finally:
        fetcher.stop.set()
    return files
