"""The files of a source tree in a layer: its tar with patches applied, without build leftovers.

templates/tools/source.py does the same in build stages.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

from cannery.assemble.io.wheel_files import WheelError
from cannery.assemble.tar import Entry, Kind
from cannery.util.links import followed

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Callable, Iterable, Iterator

    from cannery.assemble.content import Tree

# An entry of a layer, and a function that yields its bytes.
Leaf = tuple[Entry, "Callable[[], Iterable[bytes]]"]
_BLOCK = 1 << 20


def tree_leaves(tree: Tree, archive: tarfile.TarFile) -> dict[str, Leaf]:
    """Return {path in the image: entry and content} of a tree; `archive` is its tar.

    Raises `WheelError` if the tar has a path outside its folder, has anything but files, folders and links, or is not
    the tree that was patched.
    """
    leaves: dict[str, Leaf] = {}
    for member in archive:
        name = member.name.rstrip("/")
        if {"", ".", ".."} & set(name.split("/")):
            raise WheelError(f"{tree.home}: {member.name!r} is not a path below the folder of the source")
        path = f"{tree.home}/{name}"
        leaves[path] = _entry(member, path), partial(_read, archive, member)
    for file in tree.patched:
        path = f"{tree.home}/{file.path}"
        if _digest(leaves.get(path)) != file.before:
            raise WheelError(f"{path} is not the file that was patched")
        leaves.pop(path, None)
        if file.after is not None:
            entry = Entry(path, Kind.FILE, 0o755 if file.executable else 0o644, len(file.data))
            leaves[path] = entry, partial(iter, (file.data,))
    return {path: leaf for path, leaf in leaves.items() if not _is_left(path[len(tree.home) + 1 :], leaf[0])}


def tree_modules(leaves: dict[str, Leaf]) -> Iterator[tuple[str, bytes]]:
    """Yield the modules of a tree as (path in the image, source), in the order in which a build stage compiles them."""
    for path in sorted((path for path in leaves if path.endswith(".py")), key=lambda path: path.split("/")):
        leaf = _followed(path, leaves)
        if leaf is not None:
            yield path, b"".join(leaf[1]())


def _entry(member: tarfile.TarInfo, path: str) -> Entry:
    if member.issym():
        return Entry(path, Kind.LINK, 0o777, link=member.linkname)
    if member.isdir():
        return Entry(path, Kind.FOLDER, 0o755)
    if not member.isreg():
        raise WheelError(f"{path} is not a file, folder or link")
    return Entry(path, Kind.FILE, 0o755 if member.mode & 0o100 else 0o644, member.size)


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    stream = archive.extractfile(member) if member.isreg() else None
    while stream and (block := stream.read(_BLOCK)):
        yield block


def _digest(leaf: Leaf | None) -> str | None:
    return hashlib.sha256(b"".join(leaf[1]())).hexdigest() if leaf and leaf[0].kind is Kind.FILE else None


def _is_left(name: str, entry: Entry) -> bool:
    """Whether an entry is a build leftover: the top folder build/, *.egg-info, or __pycache__."""
    parts = name.split("/")
    folders = parts if entry.kind is Kind.FOLDER else parts[:-1]
    return folders[:1] == ["build"] or any(f == "__pycache__" or f.endswith(".egg-info") for f in folders)


def _followed(path: str, leaves: dict[str, Leaf]) -> Leaf | None:
    """Return the file at a path, following links inside the tree; None if there is none."""
    found = followed(path, lambda place: leaves[place][0].link or None if place in leaves else None)
    leaf = leaves.get(found or "")
    return leaf if leaf and leaf[0].kind is Kind.FILE else None
