#!/usr/bin/env python3
"""Load a Cannery bundle into a Docker engine.

    tar -xf BUNDLE load.py && python3 load.py BUNDLE

A bundle made with --since has only the layers that an older image does not have; the rest is taken out of that image,
which the engine must have. Every layer is checked by its SHA-256 on its way, and the engine names the image last: a
bundle that does not fit, or is cut off, leaves nothing. Needs only Python 3.7 or newer and the `docker` command.

Exit codes: 0 loaded; 2 wrong use; 3 refused (a wrong or missing base, a broken file); 4 docker failed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zlib
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # type checkers know the name; typing itself takes its time to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import IO, Any, Self

ABOUT = "cannery.json"
SCHEMA = 1
BLOCK = 1 << 20
# No configuration or manifest is larger than this.
SMALL = 4 << 20
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}


# What reading raises of an archive that somebody or some disk has changed. A header may demand any size.
_BROKEN = (
    OSError,
    tarfile.TarError,
    LookupError,
    ValueError,
    TypeError,
    OverflowError,
    MemoryError,
    RecursionError,
)


class LoadError(Exception):
    """What stops the loading; `code` is the exit code, `hint` what to do next."""

    def __init__(self, what: str, code: int = 3, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.code = code
        self.hint = hint


class Docker:
    """The docker command; `command` and `env` reach the engine that is meant."""

    def __init__(self, command: Sequence[str] = ("docker",), env: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.env = None if env is None else dict(env)

    def start(self, *words: str, **pipes: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - Popen's own
        """Start a docker command."""
        try:
            return subprocess.Popen([*self.command, *words], env=self.env, **pipes)
        except OSError as error:
            raise LoadError(f"cannot start {self.command[0]}: {error.strerror}", 4) from error

    def ask(self, *words: str) -> str | None:
        """Return the output of a command; None if it fails."""
        with self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, _ = process.communicate()
        return out.decode("utf-8", "replace") if process.returncode == 0 else None

    def image(self, reference: str) -> dict[str, Any] | None:
        """Return an image of the engine as `docker image inspect` shows it, or None."""
        output = self.ask("image", "inspect", "--", reference)
        return json.loads(output)[0] if output else None

    def images(self) -> list[dict[str, Any]]:
        """Return all images of the engine, likewise."""
        ids = list(dict.fromkeys((self.ask("image", "ls", "--quiet", "--no-trunc") or "").split()))
        output = self.ask("image", "inspect", "--", *ids) if ids else None
        return list(json.loads(output)) if output else []

    def info(self) -> dict[str, Any]:
        """Return what `docker info` shows. Raises `LoadError` for an engine that is not Docker's."""
        output = self.ask("info", "--format", "{{json .}}")
        try:
            value = json.loads(output) if output else {}
        except ValueError:
            value = None
        if not isinstance(value, dict) or "host" in value or "podman" in (output or "").lower():
            hint = "`podman load -i BUNDLE` and the like take a complete bundle; one made with --since needs Docker"
            raise LoadError(f"{self.command[0]} is not Docker's", 4, hint)
        if not value.get("Driver"):
            raise LoadError("no Docker engine is running", 4, "check that it runs, and that you may use it")
        return dict(value)


class Bundle:
    """A bundle's file, opened; `about` is its description of itself."""

    def __init__(self, path: str) -> None:
        self.path = path
        if os.path.exists(path) and not os.path.isfile(path):
            raise LoadError(f"{path}: it is not a regular file", 2)
        try:
            self.tar = tarfile.open(path, "r:")  # noqa: SIM115 - open until `close`
        except FileNotFoundError as error:
            raise LoadError(f"{path}: no such file", 2) from error
        except _BROKEN as error:
            raise LoadError(f"{path}: cut off, or no bundle", hint="copy it again") from error
        try:
            self._read()
        except BaseException:
            self.tar.close()
            raise

    def _read(self) -> None:
        try:
            self.members = {member.name: member for member in self.tar.getmembers()}
            with self.open(ABOUT) as stream:
                self.about: dict[str, Any] = json.loads(stream.read(SMALL).decode("utf-8"))
            schema = self.about["schema"]
            if schema == SCHEMA:
                _check_shape(self.about, self.members)
        except _BROKEN as error:
            raise LoadError(f"{self.path}: cut off, or no bundle", hint="copy it again") from error
        if schema != SCHEMA:
            hint = "another Cannery made it: use the load.py that is in it, or load it with that one"
            raise LoadError(f"{self.path}: schema {str(schema)[:60]} is not known", hint=hint)
        # A cut file can end after its last header.
        if os.path.getsize(self.path) < max(member.offset_data + member.size for member in self.members.values()):
            raise LoadError(f"{self.path}: cut off", hint="copy it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.tar.close()

    @property
    def layers(self) -> list[str]:
        """Diff ids of the image's layers, lowest first."""
        return list(self.about["image"]["layers"])

    @property
    def held(self) -> dict[str, dict[str, Any]]:
        """{diff id: member, bytes, sha256} of the layers in the file."""
        return {layer["diff_id"]: layer for layer in self.about["layers"]}

    def open(self, name: str) -> IO[bytes]:
        """Open a member."""
        stream = self.tar.extractfile(self.members[name])
        if stream is None:
            raise KeyError(name)
        return stream


def _check_shape(about: Mapping[str, Any], members: Mapping[str, tarfile.TarInfo]) -> None:
    """Raise `ValueError`, `TypeError` or `LookupError` for a malformed description of a bundle."""
    base = about["base"]
    for image in (about["image"], base) if base else (about["image"],):
        texts = [image["id"], *_list(image["references"]), *_list(image["layers"])]
        _need(all(isinstance(text, str) and text for text in texts))
    _need(isinstance(about["image"]["platform"], str) and bool(about["image"]["references"]))
    _need(all(isinstance(layer["diff_id"], str) for layer in _list(about["layers"])))
    for part in (about["config"], *about["layers"]):
        member = members[part["member"]]
        size = part["bytes"]
        _need(member.isfile() and isinstance(size, int) and size == member.size and isinstance(part["sha256"], str))


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return value


def _need(is_so: bool) -> None:  # noqa: FBT001 - as `assert`, which Python may leave out
    if not is_so:
        raise ValueError("another shape")


def find_base(bundle: Bundle, docker: Docker) -> dict[str, Any] | None:
    """Return an image of the engine that has the missing layers; None if the bundle is complete.

    Any image that has them can be used, since a layer is identified by its digest.
    """
    base = bundle.about["base"]
    needed = {layer for layer in bundle.layers if layer not in bundle.held}
    if not base or not needed:
        return None
    for found in docker.images():
        if needed <= set(found["RootFS"].get("Layers") or []):
            return found
    names = " ".join(base["references"])
    hint = f"load the image or the bundle of {names} ({base['id']}) first"
    raise LoadError("the base of this bundle is missing or different", hint=hint)


def layers_of(
    stream: IO[bytes], wanted: Sequence[str], small: dict[str, bytes], folder: str | None = None
) -> Iterator[tuple[str, IO[bytes], int]]:
    """Yield the `wanted` layers in the output of `docker save`: diff id, content, bytes. Read each before the next one.

    `small` gets {name: content} of the other documents. Engines write layers by their diff ids, below old ids, or as
    gzip. Layers as zstd cannot be read here and are left out. Layers are unpacked in `folder`, or in the temporary
    folder.
    """
    left = set(wanted)
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            if not member.isfile():
                continue
            content: Any = tar.extractfile(member)
            if content is None:
                continue
            digest = "sha256:" + member.name.rpartition("/")[2]
            if digest in left:
                left.discard(digest)
                yield digest, content, member.size
                continue
            head = content.peek(len(ZSTD))
            if head[:1] in (b"{", b"[") and member.size <= SMALL:
                small[member.name] = content.read()
            elif head.startswith(GZIP) or member.name.endswith("/layer.tar"):
                with tempfile.TemporaryFile(dir=folder) as spool:
                    plain: Any = gzip.GzipFile(fileobj=content) if head.startswith(GZIP) else content
                    digest, size = _copied(plain, spool)
                    if digest in left:
                        left.discard(digest)
                        spool.seek(0)
                        yield digest, spool, size


def _copied(content: IO[bytes], spool: IO[bytes]) -> tuple[str, int]:
    """Write a layer to `spool`; return its diff id and bytes."""
    digest, size = hashlib.sha256(), 0
    while True:
        try:
            block = content.read(BLOCK)
        except (OSError, EOFError, zlib.error) as error:  # gzip's own
            raise tarfile.ReadError(str(error)) from error
        if not block:
            return "sha256:" + digest.hexdigest(), size
        spool.write(block)
        digest.update(block)
        size += len(block)


class _Checked(io.RawIOBase):
    """Content that is hashed while it is read."""

    def __init__(self, content: IO[bytes]) -> None:
        super().__init__()
        self._content = content
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read."""
        data = self._content.read(size)
        self.digest.update(data)
        return data


def add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int, sha256: str) -> None:
    """Add a member whose content must have that SHA-256. Raises `LoadError`."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    checked = _Checked(content)
    try:
        tar.addfile(entry, checked)
    except tarfile.TarError as error:
        raise LoadError(f"{name}: cut off", hint="copy the bundle again") from error
    if checked.digest.hexdigest() != sha256:
        raise LoadError(
            f"{name}: its sha256 is {checked.digest.hexdigest()}, and should be {sha256}",
            hint="it was changed on its way: copy the bundle again",
        )


def send(bundle: Bundle, docker: Docker, base: dict[str, Any] | None, tar: tarfile.TarFile, ready: int) -> None:
    """Write the archive that the engine loads: layers, configuration, and its table of contents last.

    The lowest `ready` layers are on the engine already, and are left out.
    """
    for layer in bundle.about["layers"]:
        with bundle.open(layer["member"]) as content:
            add(tar, _blob(layer["diff_id"]), content, layer["bytes"], layer["sha256"])
    below = set(bundle.layers[:ready])
    missing = [one for one in dict.fromkeys(bundle.layers) if one not in bundle.held and one not in below]
    if missing and base is not None:
        with _saved(docker, base["Id"]) as stream:
            for digest, content, size in layers_of(stream, missing, {}):
                add(tar, _blob(digest), content, size, digest.partition(":")[2])
                missing.remove(digest)
    if missing:
        names = ", ".join(missing)
        raise LoadError(f"the engine does not give {names}", 4)
    config = bundle.about["config"]
    with bundle.open(config["member"]) as content:
        add(tar, _blob("sha256:" + config["sha256"]), content, config["bytes"], config["sha256"])
    contents = [
        {
            "Config": _blob("sha256:" + config["sha256"]),
            "RepoTags": bundle.about["image"]["references"],
            "Layers": [_blob(layer) for layer in bundle.layers],
        }
    ]
    text = json.dumps(contents).encode("utf-8")
    add(tar, "manifest.json", io.BytesIO(text), len(text), hashlib.sha256(text).hexdigest())


def _blob(digest: str) -> str:
    return "blobs/sha256/" + digest.partition(":")[2]


@contextmanager
def _saved(docker: Docker, image: str) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as output:
        process = docker.start("save", "--", image, stdout=subprocess.PIPE, stderr=output)
        stream = _pipe(process.stdout)
        try:
            yield stream
            while stream.read(BLOCK):
                pass  # to its end, or docker reports a broken pipe
            if process.wait() != 0:
                raise LoadError(f"docker save: {_words(output)}", 4)
        except tarfile.TarError as error:
            process.kill()
            raise LoadError(f"docker save: {_words(output) or error}", 4) from error
        finally:
            process.kill()
            stream.close()
            process.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise LoadError("docker has no pipe", 4)
    return pipe


def _close(pipe: IO[bytes]) -> None:
    with suppress(BrokenPipeError):
        pipe.close()


def _words(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode("utf-8", "replace").strip()


def load(bundle: Bundle, docker: Docker, base: dict[str, Any] | None, say: Callable[[str], None]) -> str:
    """Load a bundle, with the layers that it does not have from `base`; return the image's id on this engine."""
    info = docker.info()
    # Only the classic store takes an archive without the layers that it has.
    classic = "io.containerd.snapshotter" not in json.dumps(info.get("DriverStatus"))
    ready = _ready(bundle, base) if classic else 0
    say(f"{len(bundle.held)} of {len(bundle.layers)} layers in the bundle, {ready} ready on the engine")
    with tempfile.TemporaryFile() as output:
        process = docker.start("load", "--quiet", stdin=subprocess.PIPE, stdout=output, stderr=output)
        pipe = _pipe(process.stdin)
        try:
            with tarfile.open(fileobj=pipe, mode="w|", format=tarfile.GNU_FORMAT) as tar:
                send(bundle, docker, base, tar, ready)
        except BrokenPipeError:
            pass  # docker reports why
        except BaseException:
            process.kill()  # without its table of contents, the engine loads nothing
            raise
        finally:
            _close(pipe)
            process.wait()
        if process.returncode != 0:
            raise LoadError(f"docker load: {_words(output)}", 4)
    return _loaded(bundle, docker, is_classic=classic)


def _ready(bundle: Bundle, base: dict[str, Any] | None) -> int:
    """Return how many of the lowest layers are the base's own: an engine knows a layer by everything below it."""
    count = 0
    for one, other in zip(bundle.layers, (base or {}).get("RootFS", {}).get("Layers") or []):  # noqa: B905 - 3.9
        if one != other or one in bundle.held:
            break
        count += 1
    return count


def _loaded(bundle: Bundle, docker: Docker, *, is_classic: bool) -> str:
    image = bundle.about["image"]
    found = docker.image(image["id"] if is_classic else image["references"][0])
    if found is None or list(found["RootFS"]["Layers"]) != bundle.layers:
        wanted = image["id"]
        raise LoadError(f"the engine made another image of it than {wanted}", 4)
    return str(found["Id"])


def check_platform(platform: str, info: Mapping[str, Any]) -> None:
    """Raise `LoadError` if the engine runs on another architecture."""
    engine = str(info.get("Architecture"))
    own = "linux/" + ARCHES.get(engine, engine)
    if platform != own:
        raise LoadError(f"the image is for {platform}, and this engine runs {own}", hint="--force loads it")


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise errors of files, as of a full or missing temporary folder, as `LoadError`."""
    try:
        yield
    except OSError as error:
        hint = "layers pass through the temporary folder: TMPDIR names another one"
        raise LoadError(f"cannot read or write: {error}", 4, hint) from error


def _shown(text: str) -> str:
    """Return a text for a terminal: with `?` for each control character."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


def main(argv: Sequence[str]) -> int:
    """Load what is named; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("bundle", metavar="BUNDLE")
    parser.add_argument("--force", action="store_true", help="load an image of another architecture too")
    parser.add_argument("--docker", default="docker", metavar="PROGRAM", help="the docker command")
    arguments = parser.parse_args(argv)
    docker = Docker([arguments.docker])
    try:
        with _disk_errors(), Bundle(arguments.bundle) as bundle:
            info = docker.info()
            if not arguments.force:
                check_platform(bundle.about["image"]["platform"], info)
            base = find_base(bundle, docker)
            found = load(bundle, docker, base, lambda text: print(_shown(text), file=sys.stderr))
    except LoadError as error:
        print(_shown(f"error: {error.what}"), file=sys.stderr)
        if error.hint:
            print(_shown(f"  -> {error.hint}"), file=sys.stderr)
        return error.code
    print(_shown("{} ({})".format(" ".join(bundle.about["image"]["references"]), found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
