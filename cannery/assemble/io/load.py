"""The archive from which an engine loads an image. It has only the layers that the engine is missing."""

from __future__ import annotations

import hashlib
import io
import json
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from cannery.assemble.image import config_text
from cannery.assemble.tar import END, Entry, Kind, head, padding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BLOCK = 1 << 20


def archive(layers: Mapping[str, IO[bytes]], config: Mapping[str, Any], reference: str) -> Iterator[bytes]:
    """Yield an archive for `docker load`, in blocks. `layers` are the layers to send, by DiffID.

    Only an engine with the classic image store accepts it. The engine must have all other layers of `config`.
    """
    text = config_text(config)
    name = f"blobs/sha256/{hashlib.sha256(text).hexdigest()}"
    all_layers = [_blob(diff_id) for diff_id in config["rootfs"]["diff_ids"]]
    contents = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": all_layers}]).encode()
    members = {_blob(diff_id): stream for diff_id, stream in layers.items()}
    for path, stream in {**members, name: io.BytesIO(text), "manifest.json": io.BytesIO(contents)}.items():
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        yield head(Entry(path, Kind.FILE, 0o644, size), 0)
        yield from iter(partial(stream.read, BLOCK), b"")
        yield padding(size)
    yield END


def _blob(diff_id: str) -> str:
    return f"blobs/sha256/{diff_id.partition(':')[2]}"
