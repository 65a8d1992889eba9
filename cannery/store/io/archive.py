"""Images of the store as files: the archive that `docker load` takes and `docker save` writes, and OCI's layout."""

from __future__ import annotations

import json
import posixpath
import tarfile
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, cast

from cannery.errors import FindingsError, UsageError
from cannery.store.describe import OCI, Blob, Layer, diff_ids, layout_index, manifest_text, parse_config
from cannery.store.io.packed import GZIP, check_size, inflated
from cannery.util.addresses import digest_of, parse_reference
from cannery.util.io.files import BY_OUTPUT, as_file, write_atomic, writing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

    from cannery.store.io.store import Store

BLOCK = 1 << 20
# A configuration or a manifest is no larger.
SMALL = 4 << 20
LAYOUT = '{"imageLayoutVersion": "1.0.0"}\n'


def parts(store: Store, name: str) -> tuple[Blob, list[Layer]]:
    """Return the blob of an image's configuration and its layers, lowest first.

    Raises `UsageError` where the store does not have the image.
    """
    found = store.needed(name)
    layers = [store.needed_layer(diff_id) for diff_id in found.layers]
    return Blob(found.id, store.blob_path(found.id).stat().st_size), layers


def _member(blob: Blob) -> str:
    return f"blobs/sha256/{blob.digest.partition(':')[2]}"


def write_oci(store: Store, name: str, folder: Path, tag: str = "") -> str:
    """Write an image into a folder in OCI's layout, under a tag; return the digest of its manifest.

    A layout that is there keeps its other tags. The index is written last and at once: until then the folder has the
    image as it was before, or is no layout. Raises `UsageError` for a folder that is something else, and as `parts`
    and `Store.bring`; `UnableError` where it cannot be written.
    """
    store.bring(store.needed(name).layers)
    config, layers = parts(store, name)
    arch = store.needed(name).arch
    manifest = manifest_text(OCI, config, layers)
    blob = Blob(digest_of(manifest), len(manifest))
    with writing(folder, BY_OUTPUT):
        before = _layout(folder)
        for one in (*layers, config):
            _copy(store, one, folder / _member(one))
        write_atomic(folder / _member(blob), manifest)
        write_atomic(folder / "oci-layout", LAYOUT)
        write_atomic(folder / "index.json", layout_index(before, blob, arch, tag or parse_reference(name).tag))
    return blob.digest


def check_layout(folder: Path) -> None:
    """Raise `UsageError` for a folder that `write_oci` does not write to."""
    try:
        _layout(folder)
    except OSError as error:
        raise UsageError(
            f"it cannot be read: {error.strerror}", where=str(folder), hint="name another folder"
        ) from error


def _layout(folder: Path) -> list[dict[str, Any]]:
    """Return the manifests of a layout, none where the folder is new. Raises `UsageError` for another folder."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return []
    try:
        index = json.loads((folder / "index.json").read_bytes()) if (folder / "index.json").exists() else {}
        listed = index.get("manifests", [])
        is_layout = isinstance(listed, list) and (folder / "oci-layout").is_file() | ((folder / "blobs").is_dir())
    except (ValueError, AttributeError, NotADirectoryError):
        is_layout = False
    if not is_layout:
        raise UsageError("it is no image layout", where=str(folder), hint="name a new folder, or one that is empty")
    return [one for one in listed if isinstance(one, dict)]


def _copy(store: Store, blob: Blob, target: Path) -> None:
    """Copy a blob of the store, unless it is there. It gets its name last, so a half copy is never taken for whole."""
    if target.is_file() and target.stat().st_size == blob.size:
        store.check(blob)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as stream:
            stream.writelines(store.blocks(blob))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def load_archive(store: Store, blocks: Iterator[bytes], where: str) -> tuple[str, ...]:
    """Load the images of an archive of `docker save` or `bundle`, plain or gzip; return their names.

    An image without a name is listed by its id. Raises `FindingsError` for an archive that is broken.
    """
    small: dict[str, bytes] = {}
    layers: dict[str, str] = {}
    hint = "copy or make it again"
    try:
        with tarfile.open(fileobj=_plain(blocks), mode="r|", bufsize=BLOCK) as tar:
            for member in tar:
                check_size(member)
                if member.issym() or member.islnk():  # a layer that is there under another name
                    folder = posixpath.dirname(member.name) if member.issym() else ""
                    target = posixpath.normpath(posixpath.join(folder, member.linkname))
                    layers |= {member.name: layers[target]} if target in layers else {}
                elif (content := tar.extractfile(member)) is not None:
                    _take(store, member, cast("Any", content), small, layers)
        names: list[str] = []
        for image in json.loads(small["manifest.json"]):
            config, tags = small[image["Config"]], list(map(str, image.get("RepoTags") or ()))
            if [layers[name] for name in image["Layers"]] != list(diff_ids(parse_config(config))):
                raise FindingsError("its layers are not those of the image", where=where, hint=hint)
            image_id = store.put(config, *tags)
            names += tags or [image_id]
    except (FindingsError, UsageError) as error:  # a layer that is cut off, a name that no image can have
        raise FindingsError(error.what, where=error.where or where, hint=error.hint or hint) from error
    except (tarfile.TarError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FindingsError(f"the archive is broken: {error}", where=where, hint=hint) from error
    return tuple(names)


def _take(
    store: Store, member: tarfile.TarInfo, content: BufferedReader, small: dict[str, bytes], layers: dict[str, str]
) -> None:
    """Read a member of an archive: a JSON document, or a layer, which is added to the store."""
    start = content.peek(len(GZIP))
    if start[:1] in (b"{", b"[") and member.size <= SMALL:
        small[member.name] = content.read()
    elif start.startswith(GZIP) or member.name.startswith("blobs/") or member.name.endswith(".tar"):
        layers[member.name] = store.add(content).diff_id


def _plain(blocks: Iterator[bytes]) -> IO[bytes]:
    """Return blocks, of gzip or not, as a file."""
    first = next(blocks, b"")
    whole = chain((first,), blocks)
    return as_file(inflated(whole) if first.startswith(GZIP) else whole)
