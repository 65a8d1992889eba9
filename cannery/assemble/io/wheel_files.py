"""What a wheel becomes in an image: the files below the virtual environment, as pypa/installer lays them out.

Build stages and the host both install by this module, so that a layer has the same bytes whoever makes it. It is copied
into each rendered folder as tools/common/wheel_files.py: it needs Python 3.10, the standard library and `installer`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import posixpath
import stat
import warnings
import zipfile
import zlib
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from installer import install as install_wheel
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import Hash, InvalidRecordEntry, RecordEntry, parse_record_file
from installer.scripts import Script
from installer.sources import WheelFile
from installer.utils import Scheme, construct_record_file, fix_shebang

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

# What `pip inspect` and importlib.metadata report as the installer.
INSTALLER = "cannery"
# Packages grow to three or four times their wheel's size; what is below `SMALL` bytes may be anything.
MOST_GROWTH, SMALL = 100, 100_000_000
_BLOCK = 1 << 20
# What pypa/installer and zipfile raise for a wheel that is none.
_OF_ZIP = (zipfile.BadZipFile, zlib.error, NotImplementedError)
_UNFIT = (InstallerError, InvalidRecordEntry, ValueError, KeyError, AssertionError, *_OF_ZIP)
# The bit of a member's flags (PKZIP's application note, 4.4.4).
_ENCRYPTED = 1


class WheelError(Exception):
    """A wheel that cannot be installed: which, and why."""


class File(NamedTuple):
    """A file of a layer: its path in the image, its permissions, and its bytes or the wheel's member that has them."""

    path: str
    mode: int
    content: bytes | zipfile.ZipInfo

    @property
    def is_module(self) -> bool:
        """Whether it is compiled to byte code: a module that is not in a package's `tests` folder.

        Those are a seventh of the source of quickstart's wheels, and Python compiles one where somebody imports it.
        """
        return self.path.endswith(".py") and "/site-packages/" in self.path and "/tests/" not in self.path

    def read(self, archive: zipfile.ZipFile) -> bytes:
        """Return its bytes; `archive` is the wheel. Raises `WheelError` where they are damaged."""
        return b"".join(self.blocks(archive))

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.file_size

    def blocks(self, archive: zipfile.ZipFile) -> Iterator[bytes]:
        """Give its bytes in blocks. Raises as `read`; the zip file's own checksum decides."""
        if isinstance(self.content, bytes):
            yield self.content
            return
        count = 0
        try:
            with archive.open(self.content) as stream:
                while block := stream.read(_BLOCK):
                    count += len(block)
                    yield block
        except (*_OF_ZIP, EOFError) as error:
            raise _damaged(archive, self.content, str(error)) from error
        if count != self.content.file_size:
            raise _damaged(archive, self.content, f"{count} of {self.content.file_size} bytes")


def _damaged(archive: zipfile.ZipFile, info: zipfile.ZipInfo, why: str) -> WheelError:
    return WheelError(f"{posixpath.basename(archive.filename or '')}: {info.filename} is damaged: {why}")


def wheel_files(archive: zipfile.ZipFile, venv: str, python: str) -> list[File]:
    """Return the files that the wheel `archive` installs below `venv`, in the order of their paths.

    `venv` is the path of the virtual environment in the image, `python` its minor version (`3.11`).
    Raises `WheelError` for a wheel with a path outside its own folder or twice, with a link, or that grows beyond what
    packages do, and for what is no wheel.
    """
    name = posixpath.basename(archive.filename or "")
    members = [info for info in archive.infolist() if not info.is_dir()]
    _check_whole(name, archive.start_dir, members)
    _check_paths(name, [info.filename for info in members])
    try:
        wheel = WheelFile(archive)
        destination = _Files(archive, wheel, venv, python)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # byte code that a wheel brings is left out, since it is made here
            install_wheel(wheel, destination, {"INSTALLER": f"{INSTALLER}\n".encode(), "REQUESTED": b""})
    except _UNFIT as error:
        raise WheelError(f"{name}: it cannot be installed: {error}") from error
    _check_paths(name, [file.path.lstrip("/") for file in destination.files])
    return sorted(destination.files)


def opened(wheel: Path) -> zipfile.ZipFile:
    """Open a wheel. Raises `WheelError` for what is no zip file."""
    try:
        return zipfile.ZipFile(wheel)
    except (zipfile.BadZipFile, NotImplementedError) as error:  # the second for a later version of the format
        raise WheelError(f"{wheel.name}: it is no wheel: {error}") from error


def owners(wheels: Sequence[tuple[zipfile.ZipFile, list[File]]], venv: str) -> dict[str, int]:
    """Return {path: number of the wheel whose file is in the layer} of wheels that are installed together.

    Of a path that several have it is the last one's. Raises `WheelError` for a file that two have with another content:
    parts of one namespace may each have the same `__init__.py`. A script may differ, as with pip: fastapi and
    fastapi-cli both bring one.
    """
    found: dict[str, tuple[int, File]] = {}
    for number, (archive, files) in enumerate(wheels):
        for file in files:
            if file.path in found and not file.path.startswith(f"{venv}/bin/"):
                other, same = found[file.path]
                before = wheels[other][0]
                if same.read(before) != file.read(archive):
                    names = " and ".join(posixpath.basename(one.filename or "") for one in (before, archive))
                    raise WheelError(f"{names} both have {file.path}, and it differs")
            found[file.path] = number, file
    return {path: number for path, (number, _) in found.items()}


def install(wheels: Sequence[Path], root: Path, venv: str, python: str) -> list[list[tuple[str, bytes]]]:
    """Install `wheels` below `root`, and return the modules of each, as (path in the image, source).

    `venv` and `python` are those of `wheel_files`. Raises `WheelError` as that does, and as `owners`.
    """
    modules: list[list[tuple[str, bytes]]] = []
    with ExitStack() as stack:
        archives = [stack.enter_context(opened(wheel)) for wheel in wheels]
        found = [(archive, wheel_files(archive, venv, python)) for archive in archives]
        owned = owners(found, venv)
        for number, (archive, files) in enumerate(found):
            modules.append([])
            for file in files:
                data = file.read(archive)
                if file.is_module:
                    modules[-1].append((file.path, data))
                if owned[file.path] == number:
                    target = root / file.path.lstrip("/")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(data)
                    target.chmod(file.mode)
    return modules


def _check_whole(name: str, size: int, members: Sequence[zipfile.ZipInfo]) -> None:
    """Raise `WheelError` for a wheel that has links, is encrypted, or grows beyond what packages do."""
    for info in members:
        if stat.S_ISLNK(info.external_attr >> 16):
            raise WheelError(f"{name}: {info.filename} is a symbolic link, which no wheel may have")
        if info.flag_bits & _ENCRYPTED:
            raise WheelError(f"{name}: {info.filename} is encrypted")
    total = sum(info.file_size for info in members)
    if total > max(MOST_GROWTH * size, SMALL):
        raise WheelError(f"{name}: its {size / 1e6:.1f} MB unpack to {total / 1e9:.1f} GB, as no package does")


def _check_paths(wheel: str, paths: Iterable[str]) -> None:
    seen: set[str] = set()
    for path in paths:
        if {"", ".", ".."} & set(path.split("/")) or "\\" in path or "\0" in path:
            raise WheelError(f"{wheel}: {path!r} is no path below the folder that it is installed to")
        if path in seen:
            raise WheelError(f"{wheel}: it has {path} twice")
        seen.add(path)


class _Files(WheelDestination):
    """Collects the files of one wheel. What is copied as it is in the wheel is not read."""

    def __init__(self, archive: zipfile.ZipFile, wheel: WheelFile, venv: str, python: str) -> None:
        site = f"{venv}/lib/python{python}/site-packages"
        self.files: list[File] = []
        self._archive = archive
        self._interpreter = f"{venv}/bin/python"
        self._folders = {
            "purelib": site,
            "platlib": site,
            "scripts": f"{venv}/bin",
            "data": venv,
            "headers": f"{venv}/include/site/python{python}/{wheel.distribution}",
        }
        rows = parse_record_file(wheel.read_dist_info("RECORD").splitlines())
        self._records = {path: (digest, size) for path, digest, size in rows}

    def write_script(self, name: str, module: str, attr: str, section: str) -> RecordEntry:
        """Keep the script of an entry point."""
        name, data = Script(name, module, attr, "console").generate(self._interpreter, "posix")
        return self._keep("scripts", name, data, is_executable=True)

    def write_file(
        self, scheme: Scheme, path: str | os.PathLike[str], stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        """Keep a member of the wheel, or what is installed beside its members."""
        name = str(path)
        if isinstance(stream, io.BytesIO):
            return self._keep(scheme, name, stream.getvalue(), is_executable=is_executable)
        if scheme == "scripts":
            with fix_shebang(stream, self._interpreter) as fixed:
                return self._keep(scheme, name, fixed.read(), is_executable=is_executable)
        info = self._archive.getinfo(stream.name)
        digest, size = self._records.get(info.filename, ("", ""))
        if not (digest and size):
            return self._keep(scheme, name, stream.read(), is_executable=is_executable)
        self.files.append(File(f"{self._folders[scheme]}/{name}", 0o755 if is_executable else 0o644, info))
        return RecordEntry(name, Hash.parse(digest), int(size))

    def finalize_installation(
        self, scheme: Scheme, record_file_path: str, records: Iterable[tuple[Scheme, RecordEntry]]
    ) -> None:
        """Keep the RECORD of what was installed."""
        root = self._folders[scheme]

        def prefix(other: Scheme) -> str | None:
            return None if other == scheme else f"{posixpath.relpath(self._folders[other], root)}/"

        with closing(construct_record_file(records, prefix)) as stream:
            self._keep(scheme, record_file_path, stream.read(), is_executable=False)

    def _keep(self, scheme: str, name: str, data: bytes, *, is_executable: bool) -> RecordEntry:
        self.files.append(File(f"{self._folders[scheme]}/{name}", 0o755 if is_executable else 0o644, data))
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        return RecordEntry(name, Hash("sha256", digest), len(data))
