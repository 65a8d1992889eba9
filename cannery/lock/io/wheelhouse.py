"""Download the files of a lock into the wheel store (`cannery.lock.io.wheels`).

Two runs may share a store: each file is downloaded under a lock of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, NetworkError
from cannery.lock.files import public_mirrors
from cannery.lock.io.download import Download, UnreachableError, WrongFileError, remote_size
from cannery.lock.io.indexes import ask, places_of
from cannery.lock.io.wheels import is_there, store_path
from cannery.util.io.files import unwritable
from cannery.util.io.http import HostSession, PassingError
from cannery.util.io.locks import held
from cannery.util.io.waiting import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.addresses import Index
    from cannery.lock.io.indexes import Listed
    from cannery.lock.lock import LockedPackage
    from cannery.util.io.pip_settings import Downloads, PipSettings

    # Called, one call at a time, whenever bytes of a file have arrived: how many there are now.
    Progress = Callable[[LockedPackage, int], None]

# Downloads at once.
WORKERS = 8
# Seconds that a page of an index may take.
PAGE = 20.0


@dataclass(frozen=True)
class _Fetcher:
    indexes: Mapping[str, Index]
    settings: PipSettings
    cache: Path
    session: HostSession
    stop: threading.Event
    say: Callable[[str], None]

    def fetch(self, package: LockedPackage, progress: Progress) -> None:
        """Bring one file into the store, under the lock of its hash."""
        path = self.cache / "wheels" / ".locks" / f"{package.sha256}.lock"
        with held(path, lambda: None, self.stop):
            if not is_there(package, self.cache):
                self._fetch_locked(package, progress)

    def _fetch_locked(self, package: LockedPackage, progress: Progress) -> None:
        """Take the file from the first place that has it. An unknown size is asked for."""
        wrong: list[str] = []
        reasons: list[str] = []
        what = f"{package.name} {package.version}: {package.file}"
        for one in self._candidates(package, reasons):
            try:
                self._take(package, one, progress)
            except WrongFileError as error:
                wrong.append(f"{one.place} has {error}")
            except NetworkError as error:
                reasons.append(f"{one.place}: {error.what}")
            except (UnreachableError, PassingError) as error:
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
            hint=f"{mirrors}{', or ' if mirrors else ''}put this file into a folder, and name that by WHEELHOUSE",
        )

    def _take(self, package: LockedPackage, one: Listed, progress: Progress) -> None:
        if one.sha256 and one.sha256 != package.sha256:
            raise WrongFileError(f"sha256:{one.sha256}")
        size = package.size or one.size or remote_size(one.url, self.session, self.settings.timeout)
        path, session = store_path(package, self.cache), self.session
        Download(path, package.sha256, size, session, self.stop, partial(progress, package)).fetch(one.url)

    def _candidates(self, package: LockedPackage, reasons: list[str]) -> Iterator[Listed]:
        """Give files of that name, local ones first; a place is asked only when those before it have no right one."""
        folders: list[str] = []  # the usual case is no reason to report where the file came from
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
    """Return {name: file} of every package, after downloading those that are not in the store, the largest first.

    A line is printed for a file that comes from another place than the first.
    Raises `FindingsError` for an incomplete package or a file with another hash than the lock's, `NetworkError` when no
    index has a file any more or none answers, `UnableError` when the store cannot be written; the message names the
    package, the file and every place that was asked. An interrupted run leaves `.part` files, which the next one
    resumes.
    """
    incomplete = [f"{p.name} {p.version} (index {p.index})" for p in packages if not p.complete]
    if incomplete:
        raise FindingsError(
            f"the lock is incomplete: {', '.join(incomplete)}", hint="run `build.py lock` where that index is reached"
        )
    cache = downloads.cache
    todo = deque(sorted((p for p in packages if not is_there(p, cache)), key=lambda p: -p.size))
    if todo:
        settings = downloads.settings()
        fetcher = _Fetcher(indexes, settings, cache, HostSession(settings), threading.Event(), downloads.say)
        _fetch_all(fetcher, todo, progress)
    return {package.name: store_path(package, cache) for package in packages}


def _fetch_all(fetcher: _Fetcher, todo: deque[LockedPackage], progress: Progress) -> None:
    """Download all of `todo` in a few threads; the first error, or an interrupt, stops the rest."""
    one_at_a_time = threading.Lock()

    def show(package: LockedPackage, received: int) -> None:
        with one_at_a_time:
            progress(package, received)

    def work() -> None:
        while todo and not fetcher.stop.is_set():
            try:
                package = todo.popleft()
            except IndexError:  # another thread took the last one
                return
            fetcher.fetch(package, show)

    # An interrupt must not wait for a read from a silent server, so the threads are not an executor's.
    threads = [begin(work) for _ in range(min(WORKERS, len(todo)))]
    try:
        for thread in as_completed(threads):
            thread.result()
    except OSError as error:
        raise unwritable(error, error.filename or fetcher.cache / "wheels") from error
    finally:
        fetcher.stop.set()
