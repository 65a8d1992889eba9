"""Write a bundle: the layers that are wanted, each as gzip, then the documents. Take one into the image store."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from cannery.errors import FindingsError, UnableError
from cannery.ship.bundle import LOADER, Held, PackedLayer, blob, documents
from cannery.ship.io.archive import read_side_of
from cannery.ship.standalone import load as load_bundle
from cannery.store.describe import diff_ids
from cannery.store.io.packed import as_file, pack
from cannery.store.io.store import Part as Blob
from cannery.util.addresses import digest_of
from cannery.util.io.files import sha256_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cannery.engine.io.client import TransferView
    from cannery.ship.io.archive import Part
    from cannery.store.describe import Blob as StoredBlob
    from cannery.store.io.store import Store

# Layers as gzip, each to be read before the next.
Packed: TypeAlias = "Iterator[tuple[PackedLayer, IO[bytes]]]"


def write_bundle(part: Part, image: Held, base: Held | None, layers: Packed, config: Callable[[], bytes]) -> Held:
    """Write the bundle of `image`: `layers` that `base` does not have, as `saved_layers` or `stored_layers` gives them.

    `config` returns the image's configuration once the layers are written. Return the image as the bundle names it: by
    the digest of its configuration. Raises as those two.
    """
    loader = Path(load_bundle.__file__).read_bytes()
    written: list[PackedLayer] = []
    # What tarfile calls of a file is `write`.
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
    """Give the `wanted` layers of what an engine saves, each as gzip; `small` gets the documents beside them.

    A layer that is being packed is in `folder`: the temporary one is often too small. Raises `UnableError` where the
    engine does not give all of them.
    """
    left = set(wanted)
    try:
        for diff_id, content, _size in load_bundle.layers_of(as_file(blocks), wanted, small, str(folder)):
            with tempfile.TemporaryFile(dir=folder) as file:
                packed = Blob(file)
                if pack(content, packed).diff_id != diff_id:
                    raise ValueError(f"layer {diff_id} came with another content")
                file.seek(0)
                yield _layer(diff_id, packed.blob), file
            left.discard(diff_id)
    except (tarfile.TarError, ValueError) as error:
        raise UnableError(f"the engine broke off: {error}", hint="run the same command again") from error
    if left:
        hint = "layers in zstd cannot be read here: use an engine with the classic image store"
        raise UnableError(f"the engine gave no {', '.join(sorted(left))}", hint=hint)


def saved_config(small: Mapping[str, bytes]) -> bytes:
    """Return the configuration of an image that an engine saved. Raises `UnableError` where it is missing."""
    try:
        return small[json.loads(small["manifest.json"])[0]["Config"]]
    except (KeyError, ValueError, IndexError) as error:
        raise UnableError("the engine broke off", hint="run the same command again") from error


def stored_layers(store: Store, wanted: Sequence[str], view: TransferView) -> Packed:
    """Give layers of the image store, which are gzip there. Raises as `Store.blocks`."""
    moved = 0
    for layer in map(store.needed_layer, wanted):
        blocks = store.blocks(layer)
        yield _layer(layer.diff_id, layer), as_file(blocks)
        next(blocks, None)  # the end of a damaged one
        moved += layer.size
        view.moved(moved)


def _layer(diff_id: str, found: StoredBlob) -> PackedLayer:
    sha256 = found.digest.partition(":")[2]
    return PackedLayer(diff_id, blob(sha256), found.size, sha256)


def _member(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    """Add a member without any trace of this machine or time."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    tar.addfile(entry, content)


def check_stored_base(store: Store, bundle: load_bundle.Bundle) -> None:
    """Raise `FindingsError` where neither a bundle nor the image store has a layer of the bundle's image."""
    if any(diff_id not in bundle.held and not store.has(diff_id) for diff_id in bundle.layers):
        names = " ".join((bundle.about["base"] or {}).get("references") or ())
        hint = f"load the image or the bundle of {names or 'its base'} first"
        raise FindingsError("the base of this bundle is missing or another", where=str(bundle.path), hint=hint)


def load_stored(store: Store, bundle: load_bundle.Bundle) -> None:
    """Take a bundle's image into the image store.

    Raises `FindingsError` for a layer or configuration that is not the one that the bundle describes.
    """
    for diff_id, layer in bundle.held.items():
        with bundle.open(layer["member"]) as content:
            store.add(content, diff_id)
    about = bundle.about["config"]
    with bundle.open(about["member"]) as content:
        config = content.read()
    if sha256_bytes(config) != about["sha256"] or list(diff_ids(json.loads(config))) != bundle.layers:
        hint = "it was changed on its way: copy the bundle again"
        raise FindingsError("its configuration is not the one that it should be", where=str(bundle.path), hint=hint)
    store.put(config, *bundle.about["image"]["references"])


def held_in(path: Path) -> Held | None:
    """Return the image of a side file, an archive that has one, or a bundle; None where there is no such file."""
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
