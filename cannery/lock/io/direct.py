"""A wheel at a URL of its own: no index tells its hash, so it is fetched to be locked, and kept in the wheelhouse."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import requests
import urllib3

from cannery.errors import FindingsError, NetworkError
from cannery.lock.io.places import url_path
from cannery.util.io.files import sha256_bytes, write_atomic
from cannery.util.io.hashes import local_sha256
from cannery.util.io.http import HostSession
from cannery.util.io.trouble import trouble
from cannery.util.io.write_errors import is_of_files, unwritable

if TYPE_CHECKING:
    from cannery.lock.io.listing import Listed
    from cannery.util.io.pip_settings import PipSettings

BLOCK = 1 << 18
# Seconds to connect, and of the longest silence.
WAITS = (10.0, 20.0)
# What a server says of a file that changes with its content; without any of it the file is fetched again.
MARKS = ("ETag", "Last-Modified")


def fetch_direct(listed: Listed, settings: PipSettings, cache: Path) -> tuple[Path, str]:
    """Return path and sha256 of the file as it is at its URL now; one that has not changed is not fetched again.

    Raises `NetworkError` when it cannot be had, `FindingsError` when it is not what the URL's own hash says,
    `UnableError` when the store cannot be written.
    """
    if listed.url.startswith("file:"):
        path = url_path(listed.url)
        sha256 = local_sha256(path, cache)
    else:
        session = HostSession(settings)
        try:
            path, sha256 = _fetch(listed, session, cache)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            if isinstance(error, OSError) and is_of_files(error):
                raise unwritable(error, error.filename or cache / "wheels") from error
            state, detail = trouble(error, session, listed.url)
            what = f"{listed.file}: {listed.place}: {state}{f' ({detail})' if detail else ''}"
            raise NetworkError(what) from error
    if listed.sha256 and listed.sha256 != sha256:
        what = f"{listed.file}: {listed.place} has sha256:{sha256}, its URL in the catalog says {listed.sha256}"
        raise FindingsError(what, where="images/indexes.yaml")
    return path, sha256


def _fetch(listed: Listed, session: HostSession, cache: Path) -> tuple[Path, str]:
    store = cache / "wheels"
    note = store / ".hashes" / f"{sha256_bytes(listed.url.encode())[:32]}.json"
    headers = {"Accept-Encoding": "identity"}
    with session.get(listed.url, stream=True, timeout=WAITS, headers=headers) as response:
        response.raise_for_status()
        marks = [response.headers.get(mark, "") for mark in MARKS]
        marks = [*marks, response.headers.get("Content-Length", "")] if any(marks) else []
        known = _known(note, marks)
        if known and _has_length(path := _place(store, known, listed.file), marks[-1]):
            return path, known
        sha256 = _receive(response, store, listed.file)
    write_atomic(note, json.dumps({"marks": marks, "sha256": sha256}))
    return _place(store, sha256, listed.file), sha256


def _known(note: Path, marks: list[str]) -> str:
    """Return the hash that the file had under the same marks, "" when that is not known."""
    try:
        value = json.loads(note.read_text(encoding="utf-8"))
        return str(value["sha256"]) if marks and value["marks"] == marks else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _has_length(path: Path, length: str) -> bool:
    """Whether a file is there, as long as the server says: a disk may have cut it off since."""
    return path.is_file() and length in {"", str(path.stat().st_size)}


def _place(store: Path, sha256: str, file: str) -> Path:
    """Where the wheelhouse looks for a file by its hash."""
    return store / sha256[:2] / sha256 / file


def _receive(response: requests.Response, store: Path, file: str) -> str:
    """Write the body into the store and return its hash; half a body is no file."""
    digest = hashlib.sha256()
    store.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".direct-", dir=store)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            for block in response.raw.stream(BLOCK, decode_content=False):
                stream.write(block)
                digest.update(block)
            got = stream.tell()
            stream.flush()
            os.fsync(stream.fileno())  # by its hash it is trusted later on: the name must not come before the content
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and int(length) != got:
            raise requests.exceptions.ChunkedEncodingError(f"{got} of {length} bytes")
        path = _place(store, digest.hexdigest(), file)
        path.parent.mkdir(parents=True, exist_ok=True)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return digest.hexdigest()
