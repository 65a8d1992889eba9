"""Write a stamp of the inputs and outputs of a run, and compare: if nothing has changed, the run need not be repeated.

What cannot be read or reached counts as changed, and the whole command runs.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cannery.engine.io.find import DEFAULT_SOCKET, docker_config
from cannery.util.io.files import OF_FOLDER, read_json, sha256_bytes, user_file, write_atomic
from cannery.util.io.pip_settings import pip_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# Variables that differ between shells or windows, and change no image.
NOT_OF_IMAGES = {"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "WINDOWID", "CANNERY_PROGRAM"}


@dataclass(frozen=True)
class Places:
    """The outputs of a run.

    `socket` is the engine's, `references` are the image's tags there. `folders` are compared by names, sizes and times,
    `files` by content (also of folders), `host` are paths of this host, compared by kind and time.
    """

    socket: str
    references: tuple[str, ...]
    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    host: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stamp:
    """One successful run: digests of its inputs and outputs, and the lines that the next run prints."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    places: Places
    lines: tuple[str, ...]


def stamp_name(words: Sequence[str], folder: str) -> str:
    """Return the name of the file that has the stamp of a command line, called in a working folder."""
    return hashlib.sha256(repr((tuple(words[1:]), folder)).encode(errors="surrogateescape")).hexdigest()[:24]


def of_environment(env: Mapping[str, str]) -> str:
    """Return the digest of the variables that may change an image."""
    kept = sorted(item for item in env.items() if item[0] not in NOT_OF_IMAGES)
    return hashlib.sha256(repr(kept).encode(errors="surrogateescape")).hexdigest()


def read_stamp(value: Mapping[str, Any]) -> Stamp:
    """Return the stamp of a JSON value."""
    where = value["places"]
    lists = {name: tuple(where[name]) for name in ("references", "folders", "files", "host")}
    places = Places(where["socket"], **lists)
    return Stamp(dict(value["inputs"]), dict(value["outputs"]), places, tuple(value["lines"]))


PACKAGE = Path(__file__).parents[2]
# Seconds for an engine of this host to answer.
PATIENCE = 5.0


def stamped(words: Sequence[str], out: Path, inputs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines of the stamp if all inputs and outputs are as they were, else none.

    `inputs` come from `inputs_now`; `out` is the folder of rendered images, in which the stamps are.
    """
    stamp = read_json(_file(words, out), read_stamp)
    try:
        if stamp is None or not inputs or stamp.inputs != inputs or stamp.outputs != outputs_now(stamp.places):
            return ()
    except (OSError, ValueError, http.client.HTTPException):
        return ()
    return stamp.lines


def write_stamp(words: Sequence[str], out: Path, stamp: Stamp) -> None:
    """Write a stamp into the folder of rendered images. A failure to write is ignored."""
    with suppress(OSError):
        write_atomic(_file(words, out), json.dumps(asdict(stamp), indent=1))


def _file(words: Sequence[str], out: Path) -> Path:
    return out / ".stamps" / f"{stamp_name(words, str(Path.cwd()))}.json"


def inputs_now(root: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return {input: its digest} of all inputs of an image but the command line; {} if one cannot be read."""
    try:
        return {
            "environment": of_environment(env),
            "catalog": tree_digest(root / "images"),
            "templates": tree_digest(root / "templates"),
            "code": tree_digest(PACKAGE),
            "libraries": repr((sys.version, [(one, _about(one)) for one in sys.path if one.endswith("-packages")])),
            "settings": _texts([Path(OF_FOLDER), user_file(env)]),
            "pip": _texts(pip_files(env)),
            "docker": _texts([docker_config(env) / "config.json"]),
            "host's engine": str(os.path.lexists(DEFAULT_SOCKET)),
        }
    except OSError:
        return {}


def outputs_now(places: Places) -> dict[str, str]:
    """Return {output: its digest, or the id of an image}.

    Raises `OSError` and `HTTPException` if the engine does not answer.
    """
    return {
        **{reference: _image_id(places.socket, reference) for reference in places.references},
        **{folder: tree_digest(Path(folder), content=False) for folder in places.folders},
        **{file: tree_digest(Path(file)) for file in places.files},
        "host": repr([_about(path) for path in places.host]),
    }


def tree_digest(place: Path, *, content: bool = True) -> str:
    """Return the SHA-256 of a file or of all files below a folder: of their content, or else of sizes and times.

    Byte code of Python is left out. A missing path has a digest too.
    """
    digest = hashlib.sha256()
    for path in _files(place):
        about = path.stat()
        what = f"{about.st_size} {about.st_mtime_ns}"
        if content and stat.S_ISREG(about.st_mode):
            what = sha256_bytes(path.read_bytes())
        digest.update(repr((str(path), about.st_mode, what)).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    """Yield a file, or all files below a folder, in order. Raises `OSError` for a link to a folder."""
    if not place.is_dir():
        yield from [place] if os.path.lexists(place) else []
        return
    for folder, folders, names in os.walk(place, onerror=_raise):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in folders:
            if (Path(folder) / name).is_symlink():
                raise OSError(f"{folder}/{name} is a link")
        yield from (Path(folder) / name for name in sorted(names))


def _raise(error: OSError) -> None:
    raise error


def _texts(paths: Sequence[Path]) -> str:
    return sha256_bytes(repr([path.read_bytes() if path.is_file() else None for path in paths]).encode())


def _about(path: str) -> tuple[int, int] | None:
    """Return the mode of a path of this host and when it changed; None if it does not exist."""
    try:
        about = Path(path).stat()
    except OSError:
        return None
    return about.st_mode, 0 if path.startswith("/dev/") else about.st_mtime_ns


class _Connection(http.client.HTTPConnection):
    """HTTP on the socket of an engine. Docker's command would take as long as all the rest here."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _image_id(path: str, reference: str) -> str:
    """Return the id of an image of the engine behind a socket; "" without one."""
    connection = _Connection(path)
    try:
        connection.request("GET", f"/images/{quote(reference, safe='/:@')}/json")
        answer = connection.getresponse()
        value = json.loads(answer.read())
        return str(value.get("Id", "")) if answer.status == http.HTTPStatus.OK else ""
    finally:
        connection.close()
