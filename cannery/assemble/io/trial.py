"""Makes the layer of a trial, and hands the engine an image that has it on the locked one's layers."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from cannery.assemble.io.bytecode import compiled, pyc_path
from cannery.assemble.io.wheel_files import WheelError, wheel_files
from cannery.assemble.trial import above, removals, whiteout
from cannery.errors import FindingsError
from cannery.recipe.environment import VENV

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

BLOCK = 1 << 20


@dataclass(frozen=True)
class Content:
    """What a trial's layer is made of.

    Wheels to bring, to remove and to keep, and {path in the image: text} of further files. `python` is the target's
    minor version, `interpreter` a Python of it on this host; `epoch` (seconds) is the mtime of everything.
    """

    added: Sequence[Path]
    removed: Sequence[Path]
    kept: Sequence[Path]
    texts: Mapping[str, str]
    python: str
    epoch: int
    interpreter: str


def interpreter_of(python: str) -> str | None:
    """Return a Python of the minor version `python` (`3.11`) on this host; None where there is none."""
    if python == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    return shutil.which(f"python{python}")


def write_layer(content: Content, stream: IO[bytes], jobs: int) -> str:
    """Write the layer's tar, and return its diff id (`sha256:…`); `jobs` processes compile at once.

    Raises `FindingsError` for a wheel that cannot be installed.
    """
    try:
        files, gone = _changes(content, jobs)
    except WheelError as error:
        raise FindingsError(str(error), where="the tried set", hint="ask its makers for a whole wheel") from error
    _write(stream, files, gone, content.epoch)
    stream.seek(0)
    digest = hashlib.sha256()
    while block := stream.read(BLOCK):
        digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def _changes(content: Content, jobs: int) -> tuple[dict[str, tuple[int, bytes]], list[str]]:
    """Return {path: (mode, bytes)} of what the layer brings, and the paths that it removes."""
    files: dict[str, tuple[int, bytes]] = {}
    modules: dict[str, bytes] = {}
    for wheel in content.added:
        with zipfile.ZipFile(wheel) as archive:
            for file in wheel_files(archive, VENV, content.python):
                files[file.path] = file.mode, file.read(archive)
                if file.is_module:
                    modules[file.path] = files[file.path][1]
    code = compiled(sorted(modules.items()), content.interpreter, jobs)
    files |= {path: (0o644, data) for path, data in code.items()}
    files |= {path: (0o644, text.encode()) for path, text in content.texts.items()}
    old = [path for wheel in content.removed for path in _paths(wheel, content)]
    left = sorted(set(old) - files.keys())
    beside = [path for wheel in content.kept if _may_share(wheel, left) for path in _paths(wheel, content)]
    return files, removals(old, files, [*beside, *_always_there(content.python)])


def _paths(wheel: Path, content: Content) -> Iterator[str]:
    """Give the paths of a wheel's files, and of the byte code of its modules."""
    with zipfile.ZipFile(wheel) as archive:
        for file in wheel_files(archive, VENV, content.python):
            yield file.path
            if file.is_module:
                yield pyc_path(file.path, f"cpython-{content.python.replace('.', '')}")


def _may_share(wheel: Path, paths: Sequence[str]) -> bool:
    """Whether a file or folder of `paths` may also be the wheel's: by the names in it, which are read at once."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {path.partition("/site-packages/")[2].split("/")[0] for path in paths}  # "": outside site-packages
    elsewhere = "" in tops and any(".data/" in name or name.endswith("/entry_points.txt") for name in names)
    moved = any(".data/purelib/" in name or ".data/platlib/" in name for name in names)
    return elsewhere or moved or not tops.isdisjoint(name.split("/")[0] for name in names)


def _always_there(python: str) -> tuple[str, ...]:
    """Return a path in each folder of the virtual environment that stays when its last package goes."""
    return f"{VENV}/bin/python", f"{VENV}/lib/python{python}/site-packages/any"


def _write(stream: IO[bytes], files: Mapping[str, tuple[int, bytes]], gone: Sequence[str], epoch: int) -> None:
    """Write a tar of files, the folders above them, and whiteouts, in the order of their paths."""
    everything = {**files, **{whiteout(path): (0o644, b"") for path in gone}}
    folders = {folder for path in everything for folder in above(path)}
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folders | everything.keys(), key=lambda path: path.split("/")):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.mtime = epoch
            if path in folders:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                entry.mode, data = everything[path]
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))


def archive(layer: IO[bytes], config: Mapping[str, Any], reference: str) -> Iterator[bytes]:
    """Give what `docker load` takes, in blocks: the last layer alone, for an engine that has the others.

    Only an engine with the classic image store takes it.
    """
    text = json.dumps(config, sort_keys=True).encode()
    name = f"blobs/sha256/{hashlib.sha256(text).hexdigest()}"
    layers = [f"blobs/sha256/{diff_id.partition(':')[2]}" for diff_id in config["rootfs"]["diff_ids"]]
    contents = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": layers}]).encode()
    layer.seek(0)
    members = {layers[-1]: layer, name: io.BytesIO(text), "manifest.json": io.BytesIO(contents)}
    for member, source in members.items():
        entry = tarfile.TarInfo(member)
        entry.size = source.seek(0, io.SEEK_END)
        yield entry.tobuf(tarfile.USTAR_FORMAT)
        source.seek(0)
        while block := source.read(BLOCK):
            yield block
        yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)
