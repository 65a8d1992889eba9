"""Pushes and fetches images between the store and a registry: missing blobs first, then manifest and name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from threading import Event, Lock
from typing import TYPE_CHECKING

from cannery.engine.io.blobs import BULK, begin_upload, fetch_blob, has_blob, send_blob
from cannery.engine.io.registry import Repository
from cannery.engine.oci import DeniedError, MalformedError, PassingError
from cannery.errors import FindingsError, UnableError
from cannery.store.describe import DOCKER, Blob, Layer, diff_ids, manifest_text, parse_config
from cannery.store.io.archive import parts
from cannery.store.io.packed import GZIP, inflated, read_blocks, tar_of
from cannery.util.addresses import parse_reference
from cannery.util.io.files import is_of_files, sha256_file, unwritable
from cannery.util.io.locks import held
from cannery.util.io.waiting import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cannery.engine.io.registry import Access
    from cannery.engine.io.transfer_view import TransferView
    from cannery.engine.oci import EngineImage
    from cannery.store.io.store import Store

# Blobs that are on their way to a registry at once.
UPLOADS = 4
# Bytes between two reports of a blob.
_STEP = 1 << 20


class Progress:
    """Progress of a transfer, for a view: bytes of blobs by digest. Several threads may report to it.

    With `keeps`, the bytes of an interrupted blob are kept (a fetch); a registry may lose those of a push.
    """

    def __init__(self, view: TransferView, *, keeps: bool) -> None:
        self._view, self._keeps, self._lock = view, keeps, Lock()
        self._sizes, self._moved, self._done = dict[str, int](), dict[str, int](), set[str]()

    def expect(self, blobs: Sequence[Blob]) -> None:
        """Set the blobs to transfer."""
        self._sizes = {blob.digest: blob.size for blob in blobs} | self._sizes

    def done(self, blob: Blob) -> None:
        """Report that a blob is complete."""
        with self._lock:
            self._moved[blob.digest] = blob.size
            self._done.add(blob.digest)
            self._show()

    def moved(self, blob: Blob) -> Callable[[int], None]:
        """Return a function that reports how many bytes of a blob are transferred."""

        def report(count: int) -> None:
            with self._lock:
                is_seen = count // _STEP == self._moved.get(blob.digest, 0) // _STEP
                self._moved[blob.digest] = count
                if not is_seen:
                    self._show()

        return report

    def _show(self) -> None:
        self._view.layers(len(self._done), len(self._sizes), sum(self._moved.values()), sum(self._sizes.values()))

    @property
    def far(self) -> tuple[int, int]:
        """Number of complete blobs, and the bytes that an interruption does not lose."""
        stay = [count for digest, count in self._moved.items() if self._keeps or digest in self._done]
        return len(self._done), sum(stay)


@dataclass(frozen=True)
class Route:
    """A reference in a registry, how it is reached, the view that shows a transfer, and what prints a line."""

    reference: str
    access: Access
    view: TransferView
    say: Callable[[str], None]

    def open(self, sources: Sequence[str] = ()) -> Repository:
        """Return the repository, for a transfer that may take hours; `sources` as of `Repository`."""
        return Repository(self.reference, replace(self.access, limits=BULK), sources)

    def patiently(self, job: Callable[[Progress], None], *, keeps: bool) -> None:
        """Run a transfer, and retry it after errors that may pass. Raises what `job` raises.

        `keeps` as of `Progress`.
        """
        progress = Progress(self.view, keeps=keeps)

        def passing(error: Exception) -> str:
            return str(error) if isinstance(error, PassingError) else ""

        patiently(lambda: job(progress), lambda: progress.far, passing, self.say)


def push(store: Store, name: str, route: Route) -> None:
    """Push an image of the store under a tag: blobs that are missing there, some at once, then the manifest.

    Raises `RefusedError`, and `UsageError` where the store does not have the image.
    """
    config, layers = parts(store, name)
    place = parse_reference(route.reference)
    home = f"{place.registry}/"
    known = {origin.removeprefix(home) for layer in layers for origin in layer.origins if origin.startswith(home)}

    def send(progress: Progress, sources: Sequence[str]) -> None:
        with ExitStack() as stack:
            connections = [stack.enter_context(route.open(sources)) for _ in range(UPLOADS)]
            progress.expect((*layers, config))
            _push_all(store, connections, (*layers, config), progress)
            with suppress(OSError):  # it only saves a later push some bytes; another user's store cannot be written
                for layer in layers:
                    store.note(layer.also_in(f"{home}{place.repository}"))
            connections[0].put_manifest(place.tag, DOCKER.manifest, manifest_text(DOCKER, config, layers))

    def job(progress: Progress) -> None:
        sources = sorted(known - {place.repository})
        try:
            send(progress, sources)
        except DeniedError:
            if not sources:
                raise
            send(progress, ())  # a token service may refuse all where one repository may not be read

    route.patiently(job, keeps=False)


def _push_all(store: Store, connections: Sequence[Repository], blobs: Sequence[Blob], progress: Progress) -> None:
    """Bring blobs into a repository, as many at once as there are connections to it. Raises what ended one of them.

    After trouble that may pass the others go on to their ends: what has arrived stays. Any other ends them too.
    """
    left, ended = iter(blobs), Event()

    def bring(repository: Repository) -> None:
        try:
            for blob in left:
                _push_blob(store, repository, blob, progress, ended)
                progress.done(blob)
        except PassingError:
            raise
        except BaseException:
            ended.set()
            raise

    with ThreadPoolExecutor(len(connections)) as pool:
        sent = [pool.submit(bring, repository) for repository in connections]
        try:
            wait(sent)
        except BaseException:  # Ctrl-C
            ended.set()
            raise
    errors = [error for error in (one.exception() for one in sent) if error and not isinstance(error, _EndedError)]
    if errors:
        raise next((error for error in errors if not isinstance(error, PassingError)), errors[0])


class _EndedError(Exception):
    """Another upload has failed."""


def _push_blob(store: Store, repository: Repository, blob: Blob, progress: Progress, ended: Event) -> None:
    """Push a blob to a repository, unless it is there or another push has failed."""
    if ended.is_set():
        raise _EndedError
    if has_blob(repository, blob.digest):
        return
    home, own = f"{repository.reference.registry}/", repository.reference.repository
    origins = blob.origins if isinstance(blob, Layer) else ()
    sources = [origin.removeprefix(home) for origin in origins if origin.startswith(home) and origin != f"{home}{own}"]
    location = begin_upload(repository, blob.digest, sources)
    if not location:
        return  # it was mounted from there
    store.check(blob)
    report = progress.moved(blob)

    def moved(count: int) -> None:
        if ended.is_set():
            raise _EndedError
        report(count)

    send_blob(repository, location, blob.digest, store.blob_path(blob.digest), moved)


def fetch(store: Store, route: Route, arch: str) -> EngineImage:
    """Bring an image from its registry into the store, the layers that are missing there; return it.

    It gets the reference as a name, and one with the digest of what the registry has under it. Raises `RefusedError`;
    `UnableError` where there is no room; `FindingsError` for a layer that cannot be read.
    """
    found: list[str] = []

    def job(progress: Progress) -> None:
        with route.open() as repository:
            found.append(_fetched(store, repository, arch, progress, route.say))

    route.patiently(job, keeps=True)
    image = store.find(found[-1])
    if image is None:
        raise UnableError("the image store has lost a part of it", where=route.reference, hint="run it again")
    return image


def _fetched(store: Store, repository: Repository, arch: str, progress: Progress, say: Callable[[str], None]) -> str:
    place = repository.reference
    there = repository.published(place.wanted, place.digest or "", arch)
    entry = there.needed(arch)
    config = repository.config_text(entry.config)
    blobs = [Blob(*pair) for pair in repository.manifest(entry.manifest).layers]
    wanted = _layers_of(config)
    if len(blobs) != len(wanted):
        raise MalformedError(f"its manifest has {len(blobs)} layers, and its configuration {len(wanted)}")
    missing = [(diff_id, blob) for diff_id, blob in zip(wanted, blobs, strict=True) if not store.has(diff_id)]
    size = sum(blob.size for _, blob in missing)
    store.check_room(size, "fetched")
    origin = f"{place.registry}/{place.repository}"
    say(f"fetching {len(missing)} of {len(blobs)} layers of {origin}:{place.tag}, {size / 1e9:.2f} GB")
    progress.expect([blob for _, blob in missing])
    for diff_id, blob in missing:
        _fetch_layer(store, repository, diff_id, blob, progress)
        progress.done(blob)
    names = [f"{origin}@{there.digest}", *([] if place.digest else [f"{origin}:{place.tag}"])]
    return store.put(config, *names)


def _layers_of(config: bytes) -> tuple[str, ...]:
    try:
        return diff_ids(parse_config(config))
    except ValueError as error:
        raise MalformedError("its image configuration is none") from error


def _fetch_layer(store: Store, repository: Repository, diff_id: str, blob: Blob, progress: Progress) -> None:
    """Fetch a layer. Two runs at once fetch it once."""
    part = store.folder / "new" / f"{blob.digest.partition(':')[2]}.part"
    with held(part.with_suffix(".lock"), lambda: None):
        if store.has(diff_id):
            return
        try:
            is_resumed = part.exists()
            fetch_blob(repository, blob.digest, blob.size, part, progress.moved(blob))
            if f"sha256:{sha256_file(part)}" != blob.digest:
                part.unlink()
                what = f"the layer {blob.digest[:19]}… does not have the expected digest"
                # What an earlier run has left may not fit the rest.
                raise PassingError(what) if is_resumed else MalformedError(what)
            _keep(store, part, diff_id, blob, f"{repository.reference.registry}/{repository.reference.repository}")
        except OSError as error:
            if not is_of_files(error):
                raise
            raise unwritable(error, store.folder) from error


def _keep(store: Store, part: Path, diff_id: str, blob: Blob, origin: str) -> None:
    """Keep a file as a layer, with its own digest. Raises `FindingsError` for another one, and for a broken one."""
    try:
        with part.open("rb") as stream:
            if stream.read(len(GZIP)) != GZIP:  # a plain tar, which becomes gzip here
                stream.seek(0)
                store.add(stream, diff_id)
                return
            stream.seek(0)
            tar = tar_of(inflated(read_blocks(stream)))
        if tar.diff_id != diff_id:
            raise FindingsError("a layer is not the one that the image's configuration names", where=diff_id)
        store.keep_file(part, blob, tar, origin)
    except FindingsError as error:
        error.where = error.where or f"{origin}, layer {blob.digest}".removeprefix(", ")
        raise
    finally:
        part.unlink(missing_ok=True)
