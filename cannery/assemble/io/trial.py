"""The content of a trial's layer: the changed files of its wheels, and whiteouts for files that are gone."""

from __future__ import annotations

import os
import re
import struct
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.assemble.content import Content, Wheel
from cannery.assemble.io.bytecode import pyc_path
from cannery.assemble.io.code import files_of
from cannery.assemble.io.sink import Member
from cannery.assemble.io.wheel_files import opened
from cannery.assemble.trial import removals
from cannery.recipe.environment import VENV

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cannery.assemble.io.wheel_files import File

# The last record of a zip archive (PKZIP's application note, 4.3.16). Its field is the size of the directory before it.
_END = struct.Struct("<12xL6x")


@dataclass(frozen=True)
class Changes:
    """The wheels that a trial adds, removes and keeps, and further files as {path in the image: text}."""

    added: tuple[Wheel, ...]
    removed: Sequence[Wheel]
    kept: Sequence[Wheel]
    texts: Mapping[str, str]


def trial_content(changes: Changes, python: str) -> Content:
    """Return the content of a trial's layer; `python` is the target's minor version.

    Raises `WheelError` for a wheel that cannot be installed.
    """
    old = [path for wheel in changes.removed for path in _paths(files_of(wheel, python), python)]
    new = {*changes.texts, *(path for wheel in changes.added for path in _paths(files_of(wheel, python), python))}
    # Packages do not share metadata. Most pins remove no other file, so no kept wheel has to be read.
    left = sorted(path for path in set(old) - new if ".dist-info/" not in path)
    kept = changes.kept if left else ()
    beside = [path for wheel in kept if _may_share(wheel, left) for path in _paths(files_of(wheel, python), python)]
    # The folders of these paths stay in the virtual environment, even without packages.
    always = (f"{VENV}/bin/python", f"{VENV}/lib/python{python}/site-packages/any")
    gone = removals(old, new, [*beside, *always])
    below = frozenset(_paths(_unchanged(changes, python), python))
    return Content(wheels=changes.added, texts=changes.texts, gone=tuple(gone), below=below)


def _unchanged(changes: Changes, python: str) -> Iterator[File]:
    """Yield the added files that a removed wheel also has, with the same path and bytes."""
    with ExitStack() as stack:
        opens = {wheel: stack.enter_context(opened(Path(wheel.path))) for wheel in (*changes.removed, *changes.added)}
        old = {file.path: (file, opens[wheel]) for wheel in changes.removed for file in files_of(wheel, python)}
        for wheel in changes.added:
            for file in files_of(wheel, python):
                # Scripts are left out: a kept wheel may have one of the same name.
                if file.path in old and "/site-packages/" in file.path:
                    before, archive = old[file.path]
                    if _looks(before) == _looks(file) and _same(Member(before, archive), Member(file, opens[wheel])):
                        yield file


def _looks(file: File) -> tuple[object, ...]:
    return file.mode, file.size, file.content if isinstance(file.content, bytes) else file.content.CRC


def _same(one: Member, other: Member) -> bool:
    """Whether two files have the same bytes. They are unpacked only if their compressed bytes differ."""
    streams = [[block for _, block in member.stream(member.packed)] if member.packed else [] for member in (one, other)]
    return bool(streams[0] and streams[0] == streams[1]) or b"".join(one) == b"".join(other)


def _paths(files: Iterable[File], python: str) -> Iterator[str]:
    """Yield the paths of files, and the byte-code paths of modules."""
    for file in files:
        yield file.path
        if file.is_module:
            yield pyc_path(file.path, f"cpython-{python.replace('.', '')}")


def _may_share(wheel: Wheel, paths: Sequence[str]) -> bool:
    """Whether a file or folder of `paths` may also be in the wheel.

    This searches the bytes of the zip directory. Parsing the directories of all wheels takes a tenth of a trial's time.
    """
    with Path(wheel.path).open("rb") as stream:
        last = stream.seek(0, os.SEEK_END) - _END.size
        stream.seek(max(last, 0))
        end = stream.read()
        size = _END.unpack(end)[0] if end.startswith(b"PK\5\6") else sys.maxsize
        if size > last:  # a comment, more than 4 GB, or not a zip file
            return True
        stream.seek(last - size)
        names = stream.read(size)
    tops = {path.partition("/site-packages/")[2].split("/")[0] for path in paths}  # "": outside site-packages
    elsewhere = "" in tops and (b".data/" in names or b"/entry_points.txt" in names)
    moved = b".data/purelib/" in names or b".data/platlib/" in names
    starts = b"|".join(re.escape(top.encode()) for top in tops if top)
    return elsewhere or moved or bool(starts and re.search(b"PK\1\2.{42}(?:%b)" % starts, names, re.DOTALL))
