"""What Cannery keeps on this host, in parts that are removed one by one: cached files, images, BuildKit's records."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from cannery.plan import TAG
from cannery.render.render import DOCKERFILE
from cannery.util.io.files import Use, disk_use, remove_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import docker

    from cannery.store.io.store import Store

# Kind → its parts in the cache.
FOLDERS = {
    "wheels": ("wheels/*/*", "archives/*"),  # tarballs that 0.1.0 kept
    "layers": ("layers/*",),
    "rootfs": ("rootfs/*",),
    "sources": ("git/*/*", "sources/*", "apt/*"),
    "locks": ("locks/*", "uv", "catalog/*", "pip/*"),
    "verified": ("verified/*", "log/*"),
}
IN_ENGINE = frozenset({"trials", "images", "buildkit"})
PLAN_LABEL = "org.cannery.plan"


@dataclass(frozen=True)
class Part:
    """A part that can be removed alone: its files (parts share them), since when it is there, how to remove it.

    `image` is the id of an image of the store. What only this image has goes when the store is pruned.
    """

    uses: Mapping[str, Use]
    made: float
    remove: Callable[[], object]
    image: str = ""


def chosen(parts: Iterable[Part], older: float, keep: int) -> list[Part]:
    """Return the parts that are older than so many seconds, but for the newest `keep`."""
    before = time.time() - older
    return [part for part in sorted(parts, key=lambda one: -one.made)[keep:] if part.made <= before]


def total(parts: Iterable[Part], counted: set[str]) -> int:
    """Return the bytes of those files of parts that are not in `counted`, and add these files to it."""
    uses = {name: use for part in parts for name, use in part.uses.items() if name not in counted}
    counted.update(uses)
    return sum(use.bytes for use in uses.values())


def freed(gone: Iterable[Part]) -> int:
    """Return the bytes that removing parts frees: those of files that have no other link."""
    uses: dict[str, Use] = {}
    for part in gone:
        for name, use in part.uses.items():
            uses[name] = use._replace(found=use.found + (uses[name].found if name in uses else 0))
    return sum(use.bytes for use in uses.values() if use.found >= use.links)


def pruned(store: Store, gone: Sequence[Part]) -> list[Part]:
    """Return the parts that go with `gone`: instead of the images of the store, what is pruned after them."""
    images = {part.image for part in gone} - {""}
    others = [part for part in gone if not part.image]
    return [*others, *_path_parts(store.leftovers(0.0, images))] if images else others


def local_parts(kind: str, cache: Path, out: Path, store: Store) -> list[Part]:
    """Return the parts of a kind that are not in an engine."""
    if kind in FOLDERS:
        return _folder_parts(cache, *FOLDERS[kind])
    if kind == "out":  # their wheels are links to those of the cache
        return _path_parts(file.parent for file in out.glob(f"*/{DOCKERFILE}"))
    if kind == "builds":
        return _path_parts(store.leftovers())
    if kind == "unpacked":
        left = store.leftovers()
        return _path_parts(path for path in store.folder.glob("unpacked*/*") if path.is_dir() and path not in left)
    return _image_parts(store, kind) if kind in {"trials", "images"} else []


def _folder_parts(folder: Path, *patterns: str) -> list[Part]:
    """Return the files and folders of a folder, by patterns. The targets of links in it are not its parts."""
    found = []
    for pattern in patterns:
        first, slash, _ = pattern.partition("/")
        top = (folder / first if slash else folder).resolve()  # may be on another disk
        found += [path for path in folder.glob(pattern) if path.parent.resolve().is_relative_to(top)]
    return _path_parts(found)


def _path_parts(paths: Iterable[Path]) -> list[Part]:
    found = []
    for path in paths:
        with suppress(FileNotFoundError):  # another run has removed it
            found.append(Part(disk_use(path), path.lstat().st_mtime, partial(remove_path, path)))
    return found


def _image_parts(store: Store, kind: str) -> list[Part]:
    """Return the images of the store that are trials or of earlier plans (`trials`), or all others (`images`)."""
    found = []
    named: dict[str, list[str]] = {}
    for name, image in store.names().items():
        named.setdefault(image, []).append(name)
    for image, names in named.items():
        if is_superseded(names) is (kind == "trials"):
            about = store.find(image)
            layers = [layer for one in (about.layers if about else ()) if (layer := store.layer(one))]
            config = store.blob_path(image)
            made = config.stat().st_mtime if config.exists() else 0.0
            used = [disk_use(store.blob_path(one.digest)) for one in layers if not one.is_remote]
            uses = {file: use for one in used for file, use in one.items()}
            found.append(Part(uses, made, partial(_remove_each, store.remove, names), image))
    return found


def _remove_each(remove: Callable[[str], object], names: Iterable[str]) -> None:
    for name in names:
        remove(name)


def is_superseded(names: Sequence[str]) -> bool:
    """Whether an image is a trial or of an earlier plan: all of its names are full tags, and none is a moving one."""
    tags = [TAG.fullmatch(name.rpartition(":")[2]) for name in names]
    return bool(tags) and all(tag and tag["plan"] for tag in tags)


def engine_parts(client: docker.DockerClient) -> dict[str, list[Part]]:
    """Return our images of an engine, with the bytes that no other image shares, and the records of its BuildKit."""
    api: Any = client.api
    found: dict[str, list[Part]] = {kind: [] for kind in IN_ENGINE}
    use = api.df()
    for image in use.get("Images") or ():
        names = image.get("RepoTags") or []
        if PLAN_LABEL not in (image.get("Labels") or {}) or image.get("Containers", 0) > 0:
            continue
        own = image["Size"] - max(image.get("SharedSize", 0), 0)
        tagged = (api.inspect_image(image["Id"]).get("Metadata") or {}).get("LastTagTime") or ""
        part = Part(
            {image["Id"]: Use(own)}, _seconds(tagged), partial(_remove_each, api.remove_image, names or [image["Id"]])
        )
        found["trials" if is_superseded(names) else "images"].append(part)
    for record in use.get("BuildCache") or ():
        if not record.get("InUse"):
            used = _seconds(record.get("LastUsedAt") or record.get("CreatedAt") or "")
            remove = partial(api.prune_builds, {"id": [record["ID"]]}, all=True)
            found["buildkit"].append(Part({record["ID"]: Use(record["Size"])}, used, remove))
    return found


def _seconds(text: str) -> float:
    """Return a time of Docker's as seconds since 1970; if it is unknown, the present, so that nothing seems old."""
    try:
        found = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return time.time()
    return found if found > 0 else time.time()
