"""The image store: blobs by digest, layers by DiffID, images by name, and unpacked layers.

    blobs/sha256/HEX    layers as gzip, and configurations. A layer of wheels is a folder of pieces (pieces.py)
    layers/HEX.json     the note of a layer, by DiffID: its blob, and the registries that have it
    names/HEX.json      a name and the id of its image. It is written last
    unpacked/HEX/       the files of a layer, unpacked when they are needed
    new/                downloads in progress
    writing/            layers that are being written

The store has an image if it has its name, its configuration and the notes of all its layers. If a run is killed, the
name is missing. The blob of a layer may still be in a registry. It is fetched when it is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from cannery.engine.oci import engine_image
from cannery.errors import FindingsError, UnableError, UsageError
from cannery.store.describe import Blob, Layer, attributes, diff_ids, full_name, parse_config
from cannery.store.io.packed import inflated, pack, read_blocks
from cannery.store.io.pieces import PIECES, Pieces, PiecesPart
from cannery.store.io.unpack import unpack
from cannery.util.addresses import DIGEST, digest_of, split_digest
from cannery.util.io.files import remove_path, sha256_bytes, write_atomic, writing
from cannery.util.io.locks import held, own_folder
from cannery.util.io.namespace import is_in_namespace

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from cannery.assemble.content import Made
    from cannery.engine.oci import EngineImage

# `prune` keeps younger files (seconds), because another run may be about to name an image that has them.
MIN_AGE = 3600.0
# A line is printed before more bytes than this are unpacked.
TAKES_LONG = 500_000_000


class Store:
    """The image store in `folder`. Several runs may use it at once. Every method raises `UnableError` for a full disk.

    `fetch` fetches layers that are still in a registry.
    """

    def __init__(self, folder: Path, fetch: Callable[[Store, Sequence[Layer]], None] | None = None) -> None:
        self.folder = folder
        self._fetch = fetch

    # Layers

    def layer(self, diff_id: str) -> Layer | None:
        """Return a layer, here or in a registry; None if the store does not know it, or its files are not complete."""
        note = _json(self._note(diff_id))
        try:
            lists = {"origins": tuple(note["origins"]), "files": tuple(note.get("files", ()))} if note else {}
            found = Layer(**{**note, **lists}) if note else None
            return found if found and self._is_whole(found) else None
        except (OSError, TypeError, KeyError):
            return None

    def _is_whole(self, layer: Layer) -> bool:
        """Whether the files of a layer have the sizes that they were written with."""
        files = self._files(layer).items()
        return all(path.is_file() and size in {None, path.stat().st_size} for path, size in files)

    def knows(self, diff_id: str) -> bool:
        """Whether the store knows a layer, here or in a registry."""
        return self.layer(diff_id) is not None

    def is_on_disk(self, diff_id: str) -> bool:
        """Whether the blob of a layer is on this disk."""
        layer = self.layer(diff_id)
        return layer is not None and not layer.is_remote

    def bring(self, diff_ids: Iterable[str]) -> None:
        """Fetch those of the layers that are only in a registry. Raises `NetworkError`, and like `needed_layer`."""
        remote = [layer for layer in map(self.needed_layer, diff_ids) if layer.is_remote]
        if remote and self._fetch:
            self._fetch(self, remote)

    def write(self, write: Callable[[PiecesPart], Made]) -> Layer:
        """Add a layer. `write` writes it as gzip, and returns the facts about its tar. Raises what `write` raises."""
        with self._disk():
            self.folder.mkdir(parents=True, exist_ok=True)
            with own_folder(self.folder / "writing") as folder, PiecesPart(folder / "blob") as part:
                tar = write(part)
                path, blob = part.end(), part.blob
                files = tuple(file.stat().st_size for file in part.files) if path.is_dir() else ()
                return self._keep(path, Layer(blob.digest, blob.size, tar.diff_id, tar.size, files=files))

    def keep_file(self, path: Path, blob: Blob, tar: Made, *origins: str) -> Layer:
        """Move a file into the store as the blob of a layer. `origins` as in `Layer`.

        If the layer is already on this disk, its blob stays, because a registry may have it. `prune` sees it as new.
        """
        return self._keep(path, Layer(blob.digest, blob.size, tar.diff_id, tar.size, origins))

    def _keep(self, path: Path, new: Layer) -> Layer:
        """Move a file or a folder of pieces into the store, as `keep_file` does."""
        with self._locked():
            known = self.layer(new.diff_id) if self.is_on_disk(new.diff_id) else None
            layer = known or new
            target = self.blob_path(layer.digest)
            if known:
                target.touch()
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                path.chmod(0o755 if path.is_dir() else 0o644)
                remove_path(target)  # a damaged one; a folder replaces no file
                path.replace(target)
            self.note(layer)
        return layer

    def note(self, layer: Layer) -> None:
        """Write the note of a layer."""
        write_atomic(self._note(layer.diff_id), json.dumps(asdict(layer)))

    def add(self, stream: IO[bytes], diff_id: str = "") -> Layer:
        """Add a layer from a stream, as a tar or as gzip. Raises `FindingsError` if it is damaged or not `diff_id`."""

        def write(part: PiecesPart) -> Made:
            tar = pack(stream, part)
            if diff_id not in {"", tar.diff_id}:
                raise FindingsError("its content is not the layer that it should be", where=diff_id)
            return tar

        return self.write(write)

    def unpacked(self, diff_id: str) -> Path:
        """Return the folder with the files of a layer. If it is missing, the layer is unpacked.

        Raises like `unpack`, and `UnableError` if the layer is missing or damaged. A damaged layer is removed.
        """
        folder = self._folder(diff_id)
        if folder.is_dir():
            return folder
        layer = self.needed_layer(diff_id)
        with held(folder.with_suffix(".lock"), lambda: None), self._disk():
            part = folder.with_suffix(".part")
            remove_path(part)  # of a run that was killed; the lock is ours
            if not folder.is_dir():
                part.mkdir()
                part.chmod(0o755)  # the root of an image, whatever the umask
                try:
                    self._unpack(layer, part)
                    part.replace(folder)
                except BaseException:
                    remove_path(part)
                    raise
        return folder

    def _unpack(self, layer: Layer, folder: Path) -> None:
        with self.open(layer) as stream:
            try:
                found = unpack(inflated(read_blocks(stream)), folder)
            except FindingsError:
                self.check(layer)  # a damaged one is removed; else it is what it was made as
                raise
        if found != layer.diff_id:
            self._note(layer.diff_id).unlink(missing_ok=True)
            raise self._damaged(layer.diff_id)

    def check(self, blob: Blob) -> None:
        """Check a blob against its digest. Raises `UnableError` for a damaged one, which is removed."""
        for _ in self.blocks(blob):
            pass

    def open(self, blob: Blob, start: int = 0) -> io.RawIOBase:
        """Open a blob to read it from byte `start` on. Raises `OSError`, and `UnableError` for a damaged one."""
        path = self.blob_path(blob.digest)
        try:
            stream = Pieces(path, blob.size) if path.is_dir() else path.open("rb", buffering=0)
        except (ValueError, FileNotFoundError) as error:
            remove_path(path)
            raise self._damaged(blob.digest) from error
        stream.seek(start)
        return stream

    def blocks(self, blob: Blob) -> Iterator[bytes]:
        """Yield a blob in blocks. Raises `UnableError` at the end of a damaged one, which is removed."""
        digest = hashlib.sha256()
        with self._disk(), self.open(blob) as stream:
            for block in read_blocks(stream):
                digest.update(block)
                yield block
            if f"sha256:{digest.hexdigest()}" == blob.digest:
                return
            remove_path(self.blob_path(blob.digest))
        raise self._damaged(blob.digest)

    def _damaged(self, digest: str) -> UnableError:
        hint = "make or pull the image again: what is missing is made or fetched anew"
        return UnableError("the disk has damaged a part of this image; it was removed", where=digest, hint=hint)

    def needed_layer(self, diff_id: str) -> Layer:
        """Return a layer. Raises `UnableError` if the store does not know it."""
        layer = self.layer(diff_id)
        if layer is None:
            raise UnableError("the image store does not have this layer", where=diff_id, hint="make the image again")
        return layer

    # Images

    def put(self, config: bytes, *references: str) -> str:
        """Add an image by its configuration, with names; return its id. Raises `UnableError` if a layer is missing."""
        image = digest_of(config)
        with self._locked():
            for diff_id in diff_ids(json.loads(config)):
                self.needed_layer(diff_id)
            write_atomic(self.blob_path(image), config)
            for reference in references:
                self._name(image, reference)
        return image

    def tag(self, image: str, reference: str) -> None:
        """Yield an image, by its id or a name, one more name. Raises `UsageError` where it is not there."""
        with self._locked():
            self._name(self.needed(image).id, reference)

    def _name(self, image: str, reference: str) -> None:
        full = full_name(reference)
        named = split_digest(reference)[0]
        if "@" not in reference and ":" not in named.rpartition("/")[2]:
            reference += ":latest"
        write_atomic(self._name_path(full), json.dumps({"name": reference, "id": image}))

    def remove(self, reference: str) -> bool:
        """Remove a name; return whether it existed. `prune` removes images without names."""
        with self._locked():
            path = self._name_path(full_name(reference))
            was_there = path.is_file()
            path.unlink(missing_ok=True)
        return was_there

    def names(self) -> dict[str, str]:
        """Return {name: id of its image}."""
        found = [self._named(path) for path in sorted((self.folder / "names").glob("*.json"))]
        return dict(one for one in found if one)

    def _named(self, path: Path) -> tuple[str, str] | None:
        """Return a name and the id of its image from the file of the name; None if it is missing or damaged."""
        note = _json(path) or {}
        name, image = note.get("name"), note.get("id")
        is_good = isinstance(name, str) and isinstance(image, str) and DIGEST.fullmatch(image)
        return (str(name), str(image)) if is_good else None

    def find(self, name: str) -> EngineImage | None:
        """Return an image by a name or its id (`sha256:…`); None if it is missing or not complete."""
        found = self.attributes(name)
        return engine_image(found) if found else None

    def needed(self, name: str) -> EngineImage:
        """Return an image like `find`. Raises `UsageError` if it is missing."""
        found = self.find(name)
        if found is None:
            raise UsageError("the image store does not have this image", where=name)
        return found

    def attributes(self, name: str) -> dict[str, Any] | None:
        """Return what `docker inspect` would print about an image; None if it is missing or not complete."""
        named = (name, name) if DIGEST.fullmatch(name) else self._named(self._name_path(full_name(name)))
        image = named[1] if named else ""
        whole = self._whole(image) if image else None
        if whole is None:
            return None
        config, layers = whole
        names = [other for other, owner in self.names().items() if owner == image]
        return attributes(image, config, names, sum(layer.raw for layer in layers))

    def _whole(self, image: str) -> tuple[dict[str, Any], list[Layer]] | None:
        """Return the configuration and layers of an image by its id; None if any of them is missing."""
        config = self._parsed(image)
        if config is None:
            return None
        found = [self.layer(diff_id) for diff_id in diff_ids(config)]
        layers = [layer for layer in found if layer]
        return (config, layers) if len(layers) == len(found) else None

    def _parsed(self, image: str) -> dict[str, Any] | None:
        text = self.config(image)
        with suppress(ValueError):
            return parse_config(text) if text is not None else None
        return None

    def config(self, image: str) -> bytes | None:
        """Return the bytes of an image's configuration by its id; None if they are missing or damaged."""
        try:
            text = self.blob_path(image).read_bytes()
        except OSError:
            return None
        return text if digest_of(text) == image else None

    def files_of(self, image: str, references: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the files with the names of an image and the notes of its layers, and the files of its blobs."""
        whole = self._whole(image)
        layers = whole[1] if whole else []
        names = [str(self._name_path(full_name(reference))) for reference in references]
        names += [str(self._note(layer.diff_id)) for layer in layers]
        return names, [str(self.blob_path(image)), *(str(path) for layer in layers for path in self._files(layer))]

    def _files(self, layer: Layer) -> dict[Path, int | None]:
        """Return {file: size} of the files on this disk that make up a layer. The list of pieces may have any size."""
        path = self.blob_path(layer.digest)
        if layer.is_remote:
            return {}
        if not layer.files:
            return {path: layer.size}
        return {path / PIECES: None} | {path / str(number): size for number, size in enumerate(layer.files)}

    def chains(self) -> list[list[str]]:
        """Return the layers of each image that has a name, lowest first."""
        found = map(self._whole, sorted(set(self.names().values())))
        return [list(diff_ids(whole[0])) for whole in found if whole]

    def lowers(self, name: str) -> tuple[Path, ...]:
        """Return the folders with the files of an image's layers, lowest first.

        Raises like `bring`, `unpacked` and `check_room`; `UsageError` if the image is missing.
        """
        found = self.needed(name)
        self.bring(layer for layer in found.layers if not self._folder(layer).is_dir())
        missing = [layer for layer in found.layers if not self._folder(layer).is_dir()]
        size = sum(self.needed_layer(layer).raw for layer in missing)
        self.check_room(size, "unpacked")
        if size > TAKES_LONG:
            print(f"unpacking {len(missing)} layers: {size / 1e9:.1f} GB", file=sys.stderr, flush=True)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return tuple(pool.map(self.unpacked, found.layers))

    def leftovers(self, min_age: float = MIN_AGE, without: Collection[str] = ()) -> list[Path]:
        """Return the files and folders that no named image has, except those younger than `min_age` seconds.

        Images whose id is in `without` do not count.
        """
        images = set(self.names().values()).difference(without)
        wanted = {layer for image in images for layer in diff_ids(self._parsed(image) or {})}
        kept = images | {layer.digest for layer in map(self.layer, wanted) if layer} | wanted
        found = [path for pattern in ("blobs/sha256/*", "layers/*.json") for path in self.folder.glob(pattern)]
        # Another run may wait for a lock.
        found += [path for path in self.folder.glob("unpacked*/*") if path.suffix != ".lock"]
        unkept = [path for path in found if f"sha256:{path.name.partition('.')[0]}" not in kept]
        before = time.time() - min_age
        return [path for path in (*unkept, *self.folder.glob("new/*.part")) if _made(path) < before]

    def check_room(self, size: int, done: str) -> None:
        """Raise `UnableError` if the disk has no room for `size` bytes. `done` is a participle, such as "unpacked"."""
        if not size:
            return
        with self._disk():
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
        if size > free:
            what = f"{size / 1e9:.1f} GB are to be {done}, and {free / 1e9:.1f} GB are free"
            raise UnableError(what, where=str(self.folder), hint="free some disk space, or set CANNERY_CACHE")

    def prune(self, min_age: float = MIN_AGE) -> list[Path]:
        """Remove files that no named image has and that are at least `min_age` seconds old; return what was removed."""
        if not self.folder.is_dir():
            return []
        with self._locked(), self._disk():
            found = self.leftovers(min_age)
            for path in found:
                remove_path(path)
        return found

    # Files

    def blob_path(self, digest: str) -> Path:
        """Return the path of a blob."""
        return self.folder / "blobs" / "sha256" / _hex(digest)

    def _folder(self, diff_id: str) -> Path:
        # Files that a user unpacks in a namespace have other owners for root, and the reverse.
        return self.folder / ("unpacked-user" if is_in_namespace() else "unpacked") / _hex(diff_id)

    def _note(self, diff_id: str) -> Path:
        return self.folder / "layers" / f"{_hex(diff_id)}.json"

    def _name_path(self, full: str) -> Path:
        return self.folder / "names" / f"{sha256_bytes(full.encode())}.json"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with held(self.folder / "lock", lambda: None), self._disk():
            yield

    def _disk(self) -> AbstractContextManager[None]:
        """Raise errors of the disk as `UnableError`."""
        return writing(self.folder)


def _hex(digest: str) -> str:
    """Return the part of a digest that is a file's name. Raises `UsageError` for any other text."""
    if not DIGEST.fullmatch(digest):
        raise UsageError(f"{digest[:100]!r} is no digest", hint="a digest is sha256: and 64 hex digits")
    return digest.partition(":")[2]


def _made(path: Path) -> float:
    """Return since when a file is there; never, if another run has removed it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
