"""The catalog in Cannery's cache. Reading it from its files takes three quarters of the time of `list`.

A catalog without a problem is kept in the cache, under a digest of the files that it was read from and of the code that
read them. A kept file can name the catalog's own classes and nothing else, so that one from elsewhere runs no code.
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
# Catalogs of other checkouts, or of an edit that was taken back, are kept too; the oldest go.
MOST = 8


def load_catalog(images: Path, own: Path | None, cache: Path) -> Catalog:
    """Return the catalog of `images` and of the user's folder `own`, from `cache` where nothing has changed.

    Raises as `cannery.catalog.io.read.load_catalog`.
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
    """Return the hex SHA-256 of all that a catalog comes from; "" where a file cannot be read."""
    digest = hashlib.sha256(repr((pydantic.VERSION, packaging.__version__, sys.version_info)).encode())
    try:
        # Messages name the user's folder as the working folder sees it.
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
    """Return the SHA-256 of a file, or of the entries of a folder: all names, and what the files of `suffix` hold.

    A missing one has a digest too. Raises `OSError` for what cannot be read.
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
    """Makes nothing but values of the catalog's own classes."""

    def find_class(self, module: str, name: str) -> object:
        found = super().find_class(module, name)
        if not (module.startswith("cannery.") and isinstance(found, type) and found.__module__ == module):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a catalog")
        return found


def _kept(file: Path) -> Catalog | None:
    """Return the catalog in a file of the cache; None where there is none, or not one of ours."""
    try:
        with file.open("rb") as stream:
            found = _Catalogs(stream).load()
    except Exception:  # noqa: BLE001 - a damaged file can raise anything, and is written again
        return None
    return found if isinstance(found, Catalog) else None


def _keep(file: Path, catalog: Catalog) -> None:
    with suppress(OSError):  # a full or read-only disk: it is read again
        write_atomic(file, pickle.dumps(catalog))
        kept = sorted(file.parent.iterdir(), key=lambda one: one.stat().st_mtime)
        for old in kept[:-MOST]:
            old.unlink()
