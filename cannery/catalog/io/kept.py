"""The cached catalog. Without the cache, reading the catalog takes three quarters of the time of `list`.

A catalog without problems is cached under a digest of its files and of the code that reads them. A cache file may only
name the catalog's classes, so that a foreign file cannot run code.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import packaging
import pydantic

from cannery.catalog.catalog import Catalog
from cannery.util.io.files import write_atomic

# The folders that `cannery.catalog.io.read` reads, in images/ and in the user's folder.
FOLDERS = ("", "bases", "components", "profiles", "standin")
CODE = ("catalog", "catalog/io", "util", "vocab.py", "errors.py")
PACKAGE = Path(__file__).parents[2]
# The number of cached catalogs, for other checkouts and reverted edits. The oldest are removed.
MOST = 8


def load_catalog(images: Path, own: Path | None, cache: Path) -> Catalog:
    """Return the catalog of `images` and the user's folder `own`, from `cache` if nothing has changed.

    Raises like `cannery.catalog.io.read.load_catalog`.
    """
    key = _key(images, own)
    file = cache / "catalog" / key
    found = _kept(file) if key else None
    if found is None:
        found = import_module("cannery.catalog.io.read").load_catalog(images, own)
        if key and not found.problems and _key(images, own) == key:
            _keep(file, found)
    return found


def _key(images: Path, own: Path | None) -> str:
    """Return the hex SHA-256 of all inputs of a catalog; "" if a file cannot be read."""
    digest = hashlib.sha256(repr((pydantic.VERSION, packaging.__version__, sys.version_info)).encode())
    try:
        # Messages show the user's folder relative to the working directory.
        digest.update(repr((images, own, Path.cwd() if own else "")).encode())
        for name in CODE:
            digest.update(files_digest(PACKAGE / name, ".py"))
        for folder in (images, *([own] if own else [])):
            for name in FOLDERS:
                digest.update(files_digest(folder / name, ".yaml"))
    except OSError:
        return ""
    return digest.hexdigest()


def files_digest(place: Path, suffix: str) -> bytes:
    """Return the SHA-256 of a file, or of a folder: all names in it, and the content of the files with `suffix`.

    A missing path has a digest too. Raises `OSError` if something cannot be read.
    """
    digest = hashlib.sha256()
    if place.is_file():
        digest.update(b"file" + place.read_bytes())
    elif place.is_dir():
        for entry in sorted(os.scandir(place), key=lambda one: one.name):
            content = ""
            if entry.name.endswith(suffix) and entry.is_file():
                content = hashlib.sha256(Path(entry.path).read_bytes()).hexdigest()
            digest.update(repr((entry.name, entry.is_dir(), content)).encode(errors="surrogatepass"))
    return digest.digest()


class _Catalogs(pickle.Unpickler):
    """Loads only instances of the catalog's classes."""

    def find_class(self, module: str, name: str) -> object:
        found = super().find_class(module, name)
        if not (module.startswith("cannery.") and isinstance(found, type) and found.__module__ == module):
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a catalog")
        return found


def _kept(file: Path) -> Catalog | None:
    """Return the catalog in a cache file; None if the file is missing or not valid."""
    try:
        with file.open("rb") as stream:
            found = _Catalogs(stream).load()
    except Exception:  # noqa: BLE001 - a damaged file can raise anything, and is written again
        return None
    return found if isinstance(found, Catalog) else None


def _keep(file: Path, catalog: Catalog) -> None:
    with suppress(OSError):  # a full or read-only disk: the next run reads the files again
        write_atomic(file, pickle.dumps(catalog))
        kept = sorted(file.parent.iterdir(), key=lambda one: one.stat().st_mtime)
        for old in kept[:-MOST]:
            old.unlink()
