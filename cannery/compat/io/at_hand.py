"""Reads wheels of a lock that are on this host: in the store, or in the user's folder of wheels."""

from __future__ import annotations

import zipfile
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from cannery.compat.at_hand import Wheel, wheel_findings
from cannery.lock.io.wheels import is_there, store_path, wheel_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cannery.compat.findings import Finding
    from cannery.compat.subject import Subject
    from cannery.lock.lock import LockedPackage

# What byte code begins with, of the last release of each Python (CPython's Include/internal/pycore_magic_number.h).
MAGIC = {"3.10": 3439, "3.11": 3495, "3.12": 3531, "3.13": 3571, "3.14": 3627}


def at_hand_findings(subject: Subject, cache: Path, own: Path | None) -> Iterator[Finding]:
    """Give what `wheel_findings` reports of the wheels of a set that are on this host."""
    wheels = wheels_at_hand(subject.packages, cache, own, subject.recipe.target.python)
    yield from wheel_findings(subject, wheels)


def wheels_at_hand(packages: Iterable[LockedPackage], cache: Path, own: Path | None, python: str) -> Iterator[Wheel]:
    """Give the wheels of `packages` that are in the store below `cache` or in the folder `own`, for Python `python`.

    A file that is no wheel is passed over: a build reports it.
    """
    for package in packages:
        path = store_path(package, cache)
        if not is_there(package, cache) and own is not None:
            path = own / package.file
        if not package.file.endswith(".whl") or not path.is_file():
            continue
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                headers = HeaderParser().parsestr(wheel_metadata(archive))
                unusable = tuple(_unusable(archive, names, python))
        except (OSError, zipfile.BadZipFile):
            continue
        yield Wheel(package.name, package.version, tuple(headers.get_all("Requires-Dist") or ()), unusable)


def _unusable(archive: zipfile.ZipFile, names: list[str], python: str) -> Iterator[str]:
    """Give what modules are byte code without a source, of another Python."""
    sources = {name for name in names if name.endswith(".py")}
    of = {number: version for version, number in MAGIC.items()}
    for name in names:
        if name.endswith(".pyc") and "__pycache__/" not in name and name.removesuffix("c") not in sources:
            with archive.open(name) as file:
                magic = int.from_bytes(file.read(2), "little")
            if python in MAGIC and magic != MAGIC[python]:
                yield f"{name} is byte code of Python {of.get(magic, '?')} without its source"
