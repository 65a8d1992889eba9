"""Writes the tar of a layer from its wheels and other content, and caches its DiffID."""

from __future__ import annotations

import json
import tarfile
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.assemble.content import Content, Made, Place, Wheel
from cannery.assemble.io.code import files_of
from cannery.assemble.io.sink import Member, TarSink
from cannery.assemble.io.tree import Leaf, tree_leaves
from cannery.assemble.io.wheel_files import File, opened, owners
from cannery.assemble.tar import END, Entry, Kind, head, padding, with_folders
from cannery.assemble.trial import whiteout
from cannery.recipe.environment import VENV
from cannery.util.io.files import read_json, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from zipfile import ZipFile

    from cannery.store.io.packed import Writer


def write_layer(
    content: Content, place: Place, code: Iterable[Path], stream: Writer, sink: type[TarSink] = TarSink
) -> Made:
    """Write a layer's tar. `code` are the zip files with the byte code of its wheels and trees.

    With `GzipSink` the stream gets gzip, for the image store. The DiffID is the same.

    Raises `WheelError` for a wheel or tree that cannot be installed.
    """
    with ExitStack() as stack:
        leaves = _of_wheels(content.wheels, place, stack)
        for tree in content.trees:
            leaves |= tree_leaves(tree, stack.enter_context(tarfile.open(tree.tar)))
        for compiled in [stack.enter_context(opened(path)) for path in code]:
            leaves |= {i.filename: _leaf(File(i.filename, 0o644, i), compiled) for i in compiled.infolist()}
        leaves = {path: leaf for path, leaf in leaves.items() if path not in content.below}
        texts = {**content.texts, **dict.fromkeys(map(whiteout, content.gone), "")}
        leaves |= {path: _text(path, text.encode()) for path, text in texts.items()}
        links = [Entry(path, Kind.LINK, 0o777, link=target) for path, target in content.links.items()]
        entries = with_folders([*(entry for entry, _ in leaves.values()), *links])
        contents = {path: blocks for path, (_, blocks) in leaves.items()}
        return write_entries(entries, contents, place.epoch, sink(stream))


def _of_wheels(wheels: Sequence[Wheel], place: Place, stack: ExitStack) -> dict[str, Leaf]:
    """Return {path: entry and content} of wheels that are installed together; `stack` closes them."""
    archives = [stack.enter_context(opened(Path(wheel.path))) for wheel in wheels]
    found = [(archive, files_of(wheel, place.python)) for archive, wheel in zip(archives, wheels, strict=True)]
    owned = owners(found, VENV)
    return {
        file.path: _leaf(file, archive)
        for number, (archive, files) in enumerate(found)
        for file in files
        if owned[file.path] == number
    }


def _text(path: str, data: bytes) -> Leaf:
    return Entry(path, Kind.FILE, 0o644, len(data)), lambda: (data,)


def _leaf(file: File, archive: ZipFile) -> Leaf:
    return Entry(file.path, Kind.FILE, file.mode, file.size), partial(Member, file, archive)


def write_entries(
    entries: Iterable[Entry], contents: Mapping[str, Callable[[], Iterable[bytes]]], epoch: int, sink: TarSink
) -> Made:
    """Write a layer's tar; `contents` are the bytes of its files by path."""
    for entry in entries:
        sink.add(head(entry, epoch))
        if entry.path in contents:
            sink.take(contents[entry.path]())
            sink.add(padding(entry.size))
    sink.add(END)
    return sink.end()


def made_before(cache: Path, name: str) -> Made | None:
    """Return DiffID and size of the layer `name` if it was made here before, else None."""
    return read_json(_note(cache, name), lambda value: Made(**value))


def remember(cache: Path, name: str, made: Made) -> None:
    """Cache DiffID and size of the layer `name`. If an engine is missing its bytes, they are made again."""
    write_atomic(_note(cache, name), json.dumps(asdict(made)))


def _note(cache: Path, name: str) -> Path:
    return cache / "layers" / f"{name}.json"
