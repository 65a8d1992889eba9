"""Pushes and fetches images between the store and a registry: missing blobs first, then manifest and name.

A layer of the store may still be in a registry. A push then mounts it there, or sends what it reads from there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING

from cannery.engine.io.blobs import (
    BULK,
    Content,
    begin_upload,
    fetch_blob,
    has_blob,
    remote_content,
    send_blob,
)
from cannery.engine.io.registry import Repository
from cannery.engine.oci import DeniedError, MalformedError, PassingError, RefusedError
from cannery.errors import FindingsError, UnableError
from cannery.store.describe import DOCKER, Blob, Layer, diff_ids, manifest_text, parse_config
from cannery.store.io.archive import parts
from cannery.store.io.packed import GZIP, inflated, read_blocks, tar_of
from cannery.util.addresses import parse_reference
from cannery.util.io.files import sha256_file, writing
from cannery.util.io.locks import held
from cannery.util.io.waiting import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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

    def done(self, blob: Blob, *, was_there: bool = False) -> None:
        """Report that a blob is complete; one that was there before this transfer counts as no bytes."""
        with self._lock:
            if was_there and blob.digest not in self._done:
                self._sizes[blob.digest] = 0
            self._moved[blob.digest] = self._sizes[blob.digest]
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

    def at(self, repository: str) -> Route:
        """Return the route to read from another repository, as `host/name`."""
        return replace(self, reference=f"{repository}:latest", access=replace(self.access, actions=""))

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
    known = {repository for layer in layers for repository in layer.repositories(place.registry)}

    def send(progress: Progress, sources: Sequence[str]) -> None:
        with ExitStack() as stack:
            connections = [stack.enter_context(route.open(sources)) for _ in range(UPLOADS)]
            progress.expect((*layers, config))
            _Push(store, route, progress).all(connections, (*layers, config))
            with suppress(OSError):  # it only saves a later push some bytes; another user's store cannot be written
                for layer in filter(None, (store.layer(layer.diff_id) for layer in layers)):
                    store.note(layer.also_in(place.name))
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


class _EndedError(Exception):
    """Another upload has failed."""


@dataclass(frozen=True)
class _Push:
    """A push on its way: where it reads, where it goes, its progress, and whether an upload of it has failed."""

    store: Store
    route: Route
    progress: Progress
    ended: Event = field(default_factory=Event)

    def all(self, connections: Sequence[Repository], blobs: Sequence[Blob]) -> None:
        """Bring blobs into a repository, as many at once as there are connections to it.

        Raises what ended one of them. After trouble that may pass the others go on to their ends: what has arrived
        stays. Any other ends them too.
        """
        left = iter(blobs)

        def bring(repository: Repository) -> None:
            try:
                for blob in left:
                    self.progress.done(blob, was_there=not self._sent(repository, blob))
            except PassingError:
                raise
            except BaseException:
                self.ended.set()
                raise

        with ThreadPoolExecutor(len(connections)) as pool:
            sent = [pool.submit(bring, repository) for repository in connections]
            try:
                wait(sent)
            except BaseException:  # Ctrl-C
                self.ended.set()
                raise
        errors = [error for error in (one.exception() for one in sent) if error and not isinstance(error, _EndedError)]
        if errors:
            raise next((error for error in errors if not isinstance(error, PassingError)), errors[0])

    def _sent(self, repository: Repository, blob: Blob) -> bool:
        """Push a blob to a repository; return False if the registry had it. Ends if another push has failed."""
        if self.ended.is_set():
            raise _EndedError
        if has_blob(repository, blob.digest):
            return False
        there = blob.repositories(repository.reference.registry) if isinstance(blob, Layer) else []
        others = [source for source in there if source != repository.reference.repository]
        location = begin_upload(repository, blob.digest, others)
        if not location:
            return False  # it was mounted from there
        report = self.progress.moved(blob)

        def moved(count: int) -> None:
            if self.ended.is_set():
                raise _EndedError
            report(count)

        with self._content(blob) as content:
            send_blob(repository, location, content, moved)
        return True

    def _source(self, layer: Layer) -> Repository:
        """Return the first repository that has a layer now, or the last one that should have it."""
        for name in layer.origins[:-1]:
            source = self.route.at(name).open()
            with suppress(RefusedError):
                if has_blob(source, layer.digest):
                    return source
            source.close()
        return self.route.at(layer.origins[-1]).open()

    @contextmanager
    def _content(self, blob: Blob) -> Iterator[Content]:
        if isinstance(blob, Layer) and blob.is_remote:
            with self._source(blob) as source:
                yield remote_content(source, blob.digest, blob.size)
        else:
            self.store.check(blob)
            yield Content(blob.digest, blob.size, partial(self.store.open, blob))


def fetch(store: Store, route: Route, arch: str, *, lazily: bool = False) -> EngineImage:
    """Bring an image from its registry into the store, with the layers that are missing there; return it.

    It gets the reference as a name, and one with the digest of what the registry has under it. If `lazily`, layers stay
    in the registry until they are read. Raises `RefusedError`; `UnableError` if there is no room; `FindingsError` for a
    layer that cannot be read.
    """
    found: list[str] = []

    def job(progress: Progress) -> None:
        with route.open() as repository:
            config, digest, layers = _described(repository, arch)
            if lazily:
                _note_layers(store, layers)
            else:
                _fetch_layers(store, repository, layers, progress, route.say)
            place = repository.reference
            names = [f"{place.name}@{digest}", *([] if place.digest else [f"{place.name}:{place.tag}"])]
            found.append(store.put(config, *names))

    route.patiently(job, keeps=True)
    image = store.find(found[-1])
    if image is None:
        raise UnableError("the image store has lost a part of it", where=route.reference, hint="run it again")
    return image


def bring(store: Store, route: Route, layers: Sequence[Layer]) -> None:
    """Fetch layers of the store that are still in the repository of a route. Raises as `fetch`."""

    def job(progress: Progress) -> None:
        with route.open() as repository:
            _fetch_layers(store, repository, layers, progress, route.say)

    route.patiently(job, keeps=True)


def _described(repository: Repository, arch: str) -> tuple[bytes, str, list[Layer]]:
    """Return an image's configuration, the digest of what the registry has under its reference, and its layers."""
    place = repository.reference
    there = repository.published(place.wanted, place.digest or "", arch)
    entry = there.needed(arch)
    config = repository.config_text(entry.config)
    blobs, wanted = repository.manifest(entry.manifest).layers, _layers_of(config)
    if len(blobs) != len(wanted):
        raise MalformedError(f"its manifest has {len(blobs)} layers, and its configuration {len(wanted)}")
    pairs = zip(wanted, blobs, strict=True)
    layers = [Layer(digest, size, one, size, (place.name,), is_remote=True) for one, (digest, size) in pairs]
    return config, there.digest, layers


def _note_layers(store: Store, layers: Sequence[Layer]) -> None:
    """Note layers that stay in their registry, unless they are here; one that is known gets a further registry."""
    for layer in layers:
        known = store.layer(layer.diff_id)
        if known is None or (known.is_remote and known.digest != layer.digest):
            store.note(layer)
        elif known.is_remote:
            store.note(known.also_in(layer.origins[0]))


def _fetch_layers(
    store: Store, repository: Repository, layers: Sequence[Layer], progress: Progress, say: Callable[[str], None]
) -> None:
    missing = [layer for layer in layers if not store.is_on_disk(layer.diff_id)]
    size = sum(layer.size for layer in missing)
    store.check_room(size, "fetched")
    say(f"fetching {len(missing)} of {len(layers)} layers of {repository.reference.name}, {size / 1e9:.2f} GB")
    progress.expect(missing)
    for layer in missing:
        _fetch_layer(store, repository, layer, progress)
        progress.done(layer)


def _layers_of(config: bytes) -> tuple[str, ...]:
    try:
        return diff_ids(parse_config(config))
    except ValueError as error:
        raise MalformedError("its image configuration is none") from error


def _fetch_layer(store: Store, repository: Repository, layer: Layer, progress: Progress) -> None:
    """Fetch a layer. Two runs at once fetch it once."""
    part = store.folder / "new" / f"{layer.digest.partition(':')[2]}.part"
    with held(part.with_suffix(".lock"), lambda: None):
        if store.is_on_disk(layer.diff_id):
            return
        with writing(store.folder):
            is_resumed = part.exists()
            fetch_blob(repository, layer.digest, layer.size, part, progress.moved(layer))
            if f"sha256:{sha256_file(part)}" != layer.digest:
                part.unlink()
                what = f"the layer {layer.digest[:19]}… does not have the expected digest"
                # What an earlier run has left may not fit the rest.
                raise PassingError(what) if is_resumed else MalformedError(what)
            _keep(store, part, layer)


def _keep(store: Store, part: Path, layer: Layer) -> None:
    """Keep a file as a layer, with its own digest. Raises `FindingsError` for another one, and for a broken one."""
    try:
        with part.open("rb") as stream:
            if stream.read(len(GZIP)) != GZIP:  # a plain tar, which becomes gzip here
                stream.seek(0)
                store.add(stream, layer.diff_id)
                return
            stream.seek(0)
            tar = tar_of(inflated(read_blocks(stream)))
        if tar.diff_id != layer.diff_id:
            raise FindingsError("a layer is not the one that the image's configuration names", where=layer.diff_id)
        store.keep_file(part, layer, tar, *layer.origins)
    except FindingsError as error:
        error.where = error.where or f"{layer.origins[0]}, layer {layer.digest}"
        raise
    finally:
        part.unlink(missing_ok=True)
