"""Write a bundle from what an engine saves: the layers that are wanted, each as gzip, then the documents."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cannery.errors import FindingsError, UnableError
from cannery.ship.archive import Held
from cannery.ship.bundle import LOADER, PackedLayer, blob, documents, new_layers
from cannery.ship.io.archive import LEVEL, read_side_of
from cannery.ship.standalone import load as load_bundle
from cannery.store.describe import diff_ids
from cannery.util.image_reference import digest_of
from cannery.util.io.files import sha256_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.ship.io.archive import Part
    from cannery.store.io.store import Store

BLOCK = 1 << 20


class _Blocks(io.RawIOBase):
    """Blocks as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__()
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        self._rest = self._rest or memoryview(next(self._blocks, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def write_bundle(part: Part, image: Held, base: Held | None, blocks: Iterator[bytes]) -> Held:
    """Write the bundle of `image`, whose archive comes in `blocks`, without the layers that `base` has.

    A layer that is being packed is beside it: the temporary folder is often too small. Return the image as the bundle
    names it: by the digest of its configuration. Raises `UnableError` where the engine does not give all of it.
    """
    wanted = new_layers(image.layers, base.layers if base else ())
    small: dict[str, bytes] = {}
    loader = Path(load_bundle.__file__).read_bytes()
    sums = {LOADER: hashlib.sha256(loader).hexdigest()}
    layers: list[PackedLayer] = []
    # What tarfile calls of a file is `write`.
    with tarfile.open(fileobj=part, mode="w|", format=tarfile.GNU_FORMAT) as tar:  # type: ignore[call-overload]
        _member(tar, LOADER, io.BytesIO(loader), len(loader))
        try:
            stream = io.BufferedReader(_Blocks(blocks), BLOCK)
            for diff_id, content, size in load_bundle.layers_of(stream, wanted, small, str(part.folder)):
                with tempfile.TemporaryFile(dir=part.folder) as packed:
                    layers.append(_packed(diff_id, content, size, packed))
                    packed.seek(0)
                    _member(tar, layers[-1].member, packed, layers[-1].bytes)
                sums[layers[-1].member] = layers[-1].sha256
            config = _config(small)
        except (tarfile.TarError, KeyError, ValueError, IndexError) as error:
            raise UnableError(f"the engine broke off: {error}", hint="run the same command again") from error
        if missing := set(wanted) - {layer.diff_id for layer in layers}:
            hint = "layers in zstd cannot be read here: use an engine with the classic image store"
            raise UnableError(f"the engine gave no {', '.join(sorted(missing))}", hint=hint)
        held = replace(image, id=digest_of(config))
        for name, text in documents(held, base, config, layers, sums):
            _member(tar, name, io.BytesIO(text), len(text))
    return held


def _packed(diff_id: str, content: IO[bytes], size: int, packed: IO[bytes]) -> PackedLayer:
    """Write a layer as gzip to `packed`; raise `ValueError` where its content does not have its diff id."""
    squeeze = zlib.compressobj(LEVEL, wbits=31)
    plain, digest, count, read = hashlib.sha256(), hashlib.sha256(), 0, 0
    while True:
        block = content.read(BLOCK)
        read += len(block)
        plain.update(block)
        data = squeeze.compress(block) if block else squeeze.flush()
        digest.update(data)
        count += len(data)
        packed.write(data)
        if not block:
            break
    if read != size or f"sha256:{plain.hexdigest()}" != diff_id:
        raise ValueError(f"layer {diff_id} came with another content")
    return PackedLayer(diff_id, blob(digest.hexdigest()), count, digest.hexdigest())


def _config(small: dict[str, bytes]) -> bytes:
    """Return the image's configuration, which the archive's table of contents names."""
    return small[json.loads(small["manifest.json"])[0]["Config"]]


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
