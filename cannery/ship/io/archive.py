"""Write and read bundles. A file is written under another name and renamed when it is complete, its side file last."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from cannery.engine.io.client import counted
from cannery.errors import FindingsError, UnableError, UsageError
from cannery.ship.bundle import LOADER, Held, PackedLayer, SideFile, blob, documents, file_faults, read_side, side_text
from cannery.ship.standalone import load as load_bundle
from cannery.store.describe import diff_ids
from cannery.store.io.packed import pack
from cannery.store.io.packed import read_blocks as stream_blocks
from cannery.store.io.pieces import Part
from cannery.util.addresses import digest_of
from cannery.util.io.files import BY_OUTPUT, as_file, check_folder_of, sha256_bytes, write_atomic, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cannery.engine.io.transfer_view import TransferView
    from cannery.store.describe import Blob as StoredBlob
    from cannery.store.io.store import Store


class Archive(Part):
    """`FILE.part` while it is written. Set `image` to the image that it holds before the end."""

    image: Held


def side_path(path: Path) -> Path:
    """Return the path of an archive's side file."""
    return path.with_name(f"{path.name}.json")


def check_place(path: Path) -> None:
    """Raise `UsageError` if `path` is a folder, link or pipe, or in a folder that does not exist.

    The final rename would replace a link or pipe.
    """
    with writing(path, BY_OUTPUT):
        if path.is_dir():
            raise UsageError("it is a folder", where=str(path), hint="OUTPUT is a file: name one in it")
        if path.is_symlink():
            hint = f"name the file that it leads to: {path.readlink()}"
            raise UsageError("it is a symbolic link, which the file would replace", where=str(path), hint=hint)
        if path.exists() and not path.is_file():
            raise UsageError("it is not a regular file", where=str(path), hint="OUTPUT is a file: name another")
        check_folder_of(path)


@contextmanager
def whole_file(path: Path, base: Held | None = None) -> Iterator[Archive]:
    """Yield the archive that becomes `path` when the block ends, and write its side file then.

    The old side file is removed first. So after a kill there is the old pair, a file without a side file, or the new
    pair. Raises `UnableError` for a full disk, and `UsageError` while another run writes the same file.
    """
    part = path.with_name(f"{path.name}.part")
    with writing(path, BY_OUTPUT):
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("a+b") as stream:
            _hold(stream, part)
            try:
                stream.truncate(0)
                found = Archive(stream)
                yield found
                stream.flush()
                os.fsync(stream.fileno())
                side_path(path).unlink(missing_ok=True)
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        blob = found.blob
        side = SideFile("bundle", path.name, blob.size, blob.digest.partition(":")[2], found.image, base)
        write_atomic(side_path(path), side_text(side))


def _hold(stream: IO[bytes], part: Path) -> None:
    """Lock `part`. Raise `UsageError` if another run has locked it, or has renamed it since it was opened."""
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_mine = os.path.samestat(os.fstat(stream.fileno()), part.stat())
    except (BlockingIOError, FileNotFoundError):
        is_mine = False
    if not is_mine:
        raise UsageError("another run writes this file", where=str(part), hint="wait for it, or name another")


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file."""
    with path.open("rb") as stream:
        yield from stream_blocks(stream)


def read_side_of(path: Path) -> SideFile | None:
    """Return the side file of an archive, or None. Raises `FindingsError` for a broken one."""
    beside = side_path(path)
    if beside.exists() and not beside.is_file():
        raise FindingsError("it is not a regular file", where=str(beside), hint="move it away")
    try:
        return read_side(beside.read_text(encoding="utf-8"), str(beside))
    except FileNotFoundError:
        return None
    except ValueError as error:  # not UTF-8
        raise FindingsError("it is not the side file of a Cannery archive", where=str(beside)) from error


def check_file(path: Path, side: SideFile, view: TransferView) -> None:
    """Read a file, and raise `FindingsError` if it is not the one that its side file describes."""
    size = path.stat().st_size
    digest = hashlib.sha256()
    if size == side.bytes:
        for block in counted(read_blocks(path), view):
            digest.update(block)
    if faults := file_faults(side, size, digest.hexdigest()):
        raise FindingsError(
            "; ".join(faults), where=str(path), hint="copy it again, with its side file, or make it again"
        )


def check_members(path: Path) -> None:
    """Raise `FindingsError` for an archive with a pipe or device in it: an engine would open it and wait for ever.

    All other faults are reported by the engine. A header may name any size.
    """
    broken = (OSError, tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError, MemoryError)
    with suppress(*broken), tarfile.open(path) as tar:
        while (member := tar.next()) is not None:
            is_known = member.isfile() or member.isdir() or member.issym() or member.islnk()
            if not is_known or member.size < 0:
                hint = "it is not from `docker save` or `build.py bundle`: make it again"
                raise FindingsError(f"{member.name} in it is not a file or a folder", where=str(path), hint=hint)


# Layers as gzip. Each must be read before the next one is taken.
Packed: TypeAlias = "Iterator[tuple[PackedLayer, IO[bytes]]]"


def write_bundle(part: Archive, image: Held, base: Held | None, layers: Packed, config: Callable[[], bytes]) -> Held:
    """Write the bundle of `image` with the `layers` that `base` does not have (`saved_layers` or `stored_layers`).

    `config` is called after the layers, and returns the image's configuration. Return the image with the id that the
    bundle has for it, the digest of that configuration. Raises like `saved_layers` and `stored_layers`.
    """
    loader = Path(load_bundle.__file__).read_bytes()
    written: list[PackedLayer] = []
    # tarfile calls only `write`.
    with tarfile.open(fileobj=part, mode="w|", format=tarfile.GNU_FORMAT) as tar:  # type: ignore[call-overload]
        _member(tar, LOADER, io.BytesIO(loader), len(loader))
        for layer, content in layers:
            _member(tar, layer.member, content, layer.bytes)
            written.append(layer)
        text = config()
        held = replace(image, id=digest_of(text))
        for name, document in documents(held, base, text, written):
            _member(tar, name, io.BytesIO(document), len(document))
    return held


def saved_layers(blocks: Iterator[bytes], wanted: Sequence[str], small: dict[str, bytes], folder: Path) -> Packed:
    """Yield the `wanted` layers of an archive that an engine saves, each as gzip; `small` gets its documents.

    A layer is packed in `folder`, since the temporary folder is often too small. Raises `UnableError` if the engine
    does not give all layers.
    """
    left = set(wanted)
    try:
        for diff_id, content, _size in load_bundle.layers_of(as_file(blocks), wanted, small, str(folder)):
            with tempfile.TemporaryFile(dir=folder) as file:
                packed = Part(file)
                if pack(content, packed).diff_id != diff_id:
                    raise ValueError(f"layer {diff_id} came with another content")
                file.seek(0)
                yield _layer(diff_id, packed.blob), file
            left.discard(diff_id)
    except (tarfile.TarError, ValueError) as error:
        raise UnableError(f"the engine stopped sending: {error}", hint="run the same command again") from error
    if left:
        hint = "layers in zstd cannot be read here: use an engine with the classic image store"
        raise UnableError(f"the engine did not send {', '.join(sorted(left))}", hint=hint)


def saved_config(small: Mapping[str, bytes]) -> bytes:
    """Return the configuration of an image that an engine saved. Raises `UnableError` if it is missing."""
    try:
        return small[json.loads(small["manifest.json"])[0]["Config"]]
    except (KeyError, ValueError, IndexError) as error:
        raise UnableError("the engine stopped sending", hint="run the same command again") from error


def stored_layers(store: Store, wanted: Sequence[str], view: TransferView) -> Packed:
    """Yield layers of the image store, where they are gzip. Raises like `Store.blocks`."""
    moved = 0
    for layer in map(store.needed_layer, wanted):
        blocks = store.blocks(layer)
        yield _layer(layer.diff_id, layer), as_file(blocks)
        next(blocks, None)  # raises at the end of a damaged one
        moved += layer.size
        view.moved(moved)


def _layer(diff_id: str, found: StoredBlob) -> PackedLayer:
    sha256 = found.digest.partition(":")[2]
    return PackedLayer(diff_id, blob(sha256), found.size, sha256)


def _member(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    """Add a file, without an owner or time of this machine."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    tar.addfile(entry, content)


def check_stored_base(store: Store, bundle: load_bundle.Bundle) -> None:
    """Raise `FindingsError` if a layer of the image is neither in the bundle nor in the image store."""
    if any(diff_id not in bundle.held and not store.knows(diff_id) for diff_id in bundle.layers):
        names = " ".join((bundle.about["base"] or {}).get("references") or ())
        hint = f"load the image or the bundle of {names or 'its base'} first"
        raise FindingsError("the base of this bundle is missing or different", where=str(bundle.path), hint=hint)


def load_stored(store: Store, bundle: load_bundle.Bundle) -> None:
    """Add the image of a bundle to the image store.

    Raises `FindingsError` for a layer or configuration that is not as the bundle describes it.
    """
    for diff_id, layer in bundle.held.items():
        with bundle.open(layer["member"]) as content:
            store.add(content, diff_id)
    about = bundle.about["config"]
    with bundle.open(about["member"]) as content:
        config = content.read()
    if sha256_bytes(config) != about["sha256"] or list(diff_ids(json.loads(config))) != bundle.layers:
        hint = "it was changed on its way: copy the bundle again"
        raise FindingsError("its configuration does not have the expected digest", where=str(bundle.path), hint=hint)
    store.put(config, *bundle.about["image"]["references"])


def held_in(path: Path) -> Held | None:
    """Return the image of a side file, an archive with a side file, or a bundle; None if there is no such file."""
    if not path.is_file():
        return None
    side = read_side_of(path.with_name(path.name.removesuffix(".json")) if path.name.endswith(".json") else path)
    if side is not None:
        return side.image
    try:
        with load_bundle.Bundle(str(path)) as bundle:
            value = bundle.about["image"]
        return Held(value["id"], value["platform"], tuple(value["references"]), tuple(value["layers"]))
    except load_bundle.LoadError as error:
        hint = "SINCE is a bundle or its side file, an archive of `save` or its side file, or an image on this host"
        what = "cut off, or no bundle, and no side file is beside it"
        raise FindingsError(what, where=str(path), hint=hint) from error
