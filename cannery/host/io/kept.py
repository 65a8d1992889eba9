"""What Cannery keeps on this host, in parts that are removed one by one: cached files, images, BuildKit's records."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from cannery.plan import TAG
from cannery.render.render import DOCKERFILE
from cannery.util.io.files import disk_use, remove_path

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
IN_STORE = frozenset({"trials", "images", "builds", "unpacked"})
# Kinds that share files by hard links: the wheels and the byte code that layers of the store have.
LINKED = frozenset({"wheels", "layers", "out", "trials", "images", "builds"})
IN_ENGINE = frozenset({"trials", "images", "buildkit"})
PLAN_LABEL = "org.cannery.plan"


@dataclass(frozen=True)
class Part:
    """A part that can be removed alone: bytes by file or layer (parts share them), since when, how to remove it."""

    sizes: Mapping[str, int]
    made: float
    remove: Callable[[], object]


def chosen(parts: Iterable[Part], older: float, keep: int) -> list[Part]:
    """Return the parts that are older than so many seconds, but for the newest `keep`."""
    before = time.time() - older
    return [part for part in sorted(parts, key=lambda one: -one.made)[keep:] if part.made <= before]


def freed(gone: Sequence[Part], every: Iterable[Part]) -> int:
    """Return the bytes that removing parts frees: those that no other part of `every` has."""
    stays = {name for part in every if part not in gone for name in part.sizes}
    return sum({name: size for part in gone for name, size in part.sizes.items() if name not in stays}.values())


def folder_parts(folder: Path, *patterns: str) -> list[Part]:
    """Return the files and folders of a folder, by patterns. The targets of links in it are not its parts."""
    found = []
    for pattern in patterns:
        first, slash, _ = pattern.partition("/")
        top = (folder / first if slash else folder).resolve()  # may be on another disk
        found += [path for path in folder.glob(pattern) if path.parent.resolve().is_relative_to(top)]
    return [_path_part(path) for path in found]


def rendered_parts(out: Path) -> list[Part]:
    """Return the rendered folders of `out`. Their wheels are links to those of the cache."""
    return [_path_part(file.parent) for file in out.glob(f"*/{DOCKERFILE}")]


def _path_part(path: Path) -> Part:
    return Part(disk_use(path), path.lstat().st_mtime, partial(remove_path, path))


def store_parts(store: Store) -> dict[str, list[Part]]:
    """Return the images of the store, leftovers that no image has, and the layers that are unpacked for boxes."""
    found: dict[str, list[Part]] = {kind: [] for kind in IN_STORE}
    named: dict[str, list[str]] = {}
    for name, image in store.names().items():
        named.setdefault(image, []).append(name)
    for image, names in named.items():
        about = store.find(image)
        layers = [layer for one in (about.layers if about else ()) if (layer := store.layer(one))]
        config = store.blob_path(image)
        made = config.stat().st_mtime if config.exists() else 0.0
        kind = "trials" if is_superseded(names) else "images"
        uses = [disk_use(store.blob_path(one.digest)) for one in layers if not one.is_remote]
        sizes = {file: size for use in uses for file, size in use.items()}
        found[kind].append(Part(sizes, made, partial(_remove_each, store.remove, names)))
    left = store.leftovers()
    unpacked = [path for path in store.folder.glob("unpacked*/*") if path.is_dir() and path not in left]
    found["builds"] += map(_path_part, left)
    found["unpacked"] += map(_path_part, unpacked)
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
        size = image["Size"] - max(image.get("SharedSize", 0), 0)
        tagged = (api.inspect_image(image["Id"]).get("Metadata") or {}).get("LastTagTime") or ""
        part = Part(
            {image["Id"]: size}, _seconds(tagged), partial(_remove_each, api.remove_image, names or [image["Id"]])
        )
        found["trials" if is_superseded(names) else "images"].append(part)
    for record in use.get("BuildCache") or ():
        if not record.get("InUse"):
            used = _seconds(record.get("LastUsedAt") or record.get("CreatedAt") or "")
            remove = partial(api.prune_builds, {"id": [record["ID"]]}, all=True)
            found["buildkit"].append(Part({record["ID"]: record["Size"]}, used, remove))
    return found


def _seconds(text: str) -> float:
    """Return a time of Docker's as seconds since 1970; if it is unknown, the present, so that nothing seems old."""
    try:
        found = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return time.time()
    return found if found > 0 else time.time()
