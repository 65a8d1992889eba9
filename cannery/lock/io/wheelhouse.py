"""The wheelhouse: every file of a lock, on the host, stored by hash: `<cache>/wheels/<sha[:2]>/<sha>/<file name>`.

A file gets that name only after its size and sha256 were checked, so a file of the right size there is used as it is
and nothing is asked of any network. Two runs may share a store: each file is fetched under a lock of its own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from filelock import FileLock, Timeout

from cannery.errors import FindingsError, NetworkError
from cannery.lock.io.download import SILENCE, StoppedError, Transfer, Troubles, Wanted, download_first
from cannery.lock.io.indexes import ask
from cannery.lock.io.places import bound_places, default_place, extra_places
from cannery.lock.io.wheel_store import is_there, store_path
from cannery.util.io.http import HostSession
from cannery.util.io.write_errors import unwritable
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.catalog import Index
    from cannery.lock.io.listing import Listed
    from cannery.lock.io.places import Place
    from cannery.lock.lock import LockedPackage
    from cannery.util.io.pip_settings import PipSettings

# Downloads at once.
WORKERS = 8
# Seconds that a page of an index may take.
PAGE = 20.0
# Seconds between two looks at whether the run was stopped, while another run holds a file's lock.
LOOK = 0.2


class Progress(Protocol):
    """Called, one call at a time, whenever bytes of a file have arrived: `received` of `size`; once at its end."""

    def __call__(self, package: LockedPackage, received: int, size: int) -> None:
        """Show it."""


@dataclass(frozen=True)
class _Fetcher:
    indexes: Mapping[str, Index]
    settings: PipSettings
    cache: Path
    transfer: Transfer

    def fetch(self, package: LockedPackage, progress: Progress) -> None:
        """Bring one file into the store, under the lock of its hash."""
        wanted = Wanted(store_path(package, self.cache), package.sha256, package.size)
        locks = self.cache / "wheels" / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{package.sha256}.lock")
        while True:
            try:
                lock.acquire(timeout=LOOK)
                break
            except Timeout:
                if self.transfer.stop.is_set():
                    raise StoppedError from None
        try:
            if not is_there(package, self.cache):
                self._fetch_locked(package, wanted, progress)
        finally:
            lock.release()

    def _fetch_locked(self, package: LockedPackage, wanted: Wanted, progress: Progress) -> None:
        troubles = Troubles()

        def count(received: int) -> None:
            progress(package, received, package.size)

        if download_first(self.transfer, wanted, self._right(package, troubles), count, troubles):
            return
        what = f"{package.name} {package.version}: {package.file}"
        if troubles.wrong:
            listed = "; ".join(troubles.wrong)
            raise FindingsError(
                f"{what} is not the file of the lock, which has sha256:{package.sha256}; {listed}",
                hint="the lock or the index was changed; compare the hash with the lock's history",
            )
        raise NetworkError(f"{what} cannot be had: {self.settings.redact('; '.join(troubles.reasons))}")

    def _right(self, package: LockedPackage, troubles: Troubles) -> Iterator[tuple[str, str]]:
        """Give (place, URL) of the candidates that an index does not itself say another hash of."""
        for candidate in self._candidates(package, troubles.reasons):
            if candidate.sha256 and candidate.sha256 != package.sha256:
                troubles.wrong.append(f"{candidate.place} has sha256:{candidate.sha256}")
            else:
                yield str(candidate.place), candidate.url

    def _candidates(self, package: LockedPackage, reasons: list[str]) -> Iterator[Listed]:
        """Files of that name, local ones first; a place is asked only when those before it had none that is right."""
        for place in self._places(package):
            answer = ask(place, package.name, self.transfer.session, PAGE)
            files = [file for file in answer.files if file.file == package.file]
            if not files:
                listed = f"lists {len(answer.files)} files of it, not this one"
                reasons.append(f"{place} {listed}" if answer.files else str(answer))
            yield from files

    def _places(self, package: LockedPackage) -> tuple[Place, ...]:
        extras = extra_places(self.settings)
        if package.index == DEFAULT_INDEX:
            mine: tuple[Place, ...] = (default_place(self.settings),)
        elif package.index in self.indexes:
            mine = bound_places(package.index, self.indexes)
        else:
            raise FindingsError(
                f"{package.name} {package.version}: its index {package.index!r} is not in the catalog",
                where="images/indexes.yaml",
            )
        local = tuple(place for place in (*extras, *mine) if place.folder is not None)
        return (*local, *(place for place in (*mine, *extras) if place.folder is None))


def fetch(  # noqa: PLR0913 - what a fetch depends on
    packages: Sequence[LockedPackage],
    indexes: Mapping[str, Index],
    settings: PipSettings,
    cache: Path,
    progress: Progress,
    *,
    workers: int = WORKERS,
    silence: float = SILENCE,
) -> dict[str, Path]:
    """Return name → file of every package, after fetching those that are not in the store.

    `workers` files are fetched at once; a server may be silent for `silence` seconds.

    Raises `FindingsError` for an incomplete package or a file with another hash than the lock's, `NetworkError` when no
    index has a file any more or none answers, `UnableError` when the store cannot be written; the message names
    package, file and every place that was asked. Interrupted, it leaves `.part` files, which the next run goes on with.
    """
    incomplete = [f"{p.name} {p.version} (index {p.index})" for p in packages if not p.complete]
    if incomplete:
        raise FindingsError(
            f"the lock is incomplete: {', '.join(incomplete)}", hint="run `build.py lock` where that index is reached"
        )
    todo = sorted((p for p in packages if not is_there(p, cache)), key=lambda p: -p.size)
    if todo:
        transfer = Transfer(HostSession(settings), threading.Event(), silence)
        _Crew(_Fetcher(indexes, settings, cache, transfer), todo, progress).run(min(workers, len(todo)))
    return {package.name: store_path(package, cache) for package in packages}


class _Crew:
    """Threads that fetch all of `todo`, the largest first; the first error or an interrupt stops the rest."""

    def __init__(self, fetcher: _Fetcher, todo: Sequence[LockedPackage], progress: Progress) -> None:
        self.fetcher = fetcher
        self.progress = progress
        self.one_at_a_time = threading.Lock()
        self.ended: SimpleQueue[BaseException | None] = SimpleQueue()
        self.queue: SimpleQueue[LockedPackage] = SimpleQueue()
        for package in todo:
            self.queue.put(package)

    def run(self, workers: int) -> None:
        """Work until the queue is empty; raise the first error."""
        # Daemons, since a read that waits for a silent server cannot be ended, and must not hold up Ctrl-C.
        for _ in range(workers):
            threading.Thread(target=self._work, daemon=True).start()
        try:
            for _ in range(workers):
                error = self.ended.get()
                if error is not None:
                    raise error
        except OSError as error:
            raise unwritable(error, error.filename or self.fetcher.cache / "wheels") from error
        finally:
            self.fetcher.transfer.stop.set()

    def _show(self, package: LockedPackage, received: int, size: int) -> None:
        with self.one_at_a_time:
            self.progress(package, received, size)

    def _work(self) -> None:
        try:
            while not self.fetcher.transfer.stop.is_set():
                self.fetcher.fetch(self.queue.get_nowait(), self._show)
        except (Empty, StoppedError):
            self.ended.put(None)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            self.ended.put(error)
        else:
            self.ended.put(None)
