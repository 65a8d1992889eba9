"""Moves images to and from an engine with `docker push`, `pull`, `load` and `save`.

The docker command has the logins, and prints the progress of each layer. Error messages are on its standard error.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, TYPE_CHECKING

from cannery.engine.io.find import numbers
from cannery.engine.stream import ENGINE_PROXY, Trouble, client_words, trouble_of
from cannery.errors import CanneryError, FindingsError, NetworkError, UnableError
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cannery.engine.io.find import Engine
    from cannery.engine.io.transfer_view import TransferView

# Bytes of one read. Memory use does not depend on the size of an image.
BLOCK = 1 << 20
# Seconds that a failed docker command may take to exit after its output has ended.
ENDS = 1.0
# The first API versions in which `push` and `save` have a platform option, for an engine with containerd's image store.
PUSH_PLATFORM, SAVE_PLATFORM = (1, 46), (1, 48)
# A progress line of a layer, and the start of its text when the layer is done.
_LAYER = re.compile(r"([0-9a-f]{12}): (\S.*)")
_DONE = ("Pushed", "Layer already exists", "Mounted from", "Pull complete", "Already exists")
_LOADED = re.compile(r"Loaded image(?: ID)?: (\S+)")


class EngineError(Exception):
    """A failure that an engine reported: its message, and which kind of failure it is."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.trouble = trouble_of(message)


def push(engine: Engine, env: Mapping[str, str], reference: str, arch: str, view: TransferView) -> None:
    """Push a tag. Raises `EngineError`."""
    _move(engine, env, ("push", *_platform(engine, env, arch, PUSH_PLATFORM), reference), view)


def pull(engine: Engine, env: Mapping[str, str], reference: str, arch: str, view: TransferView) -> None:
    """Pull a tag for an architecture. Raises `EngineError`."""
    _move(engine, env, ("pull", "--platform", f"linux/{arch}", reference), view)


def load(engine: Engine, env: Mapping[str, str], blocks: Iterable[bytes], view: TransferView) -> tuple[str, ...]:
    """Load an archive from blocks, and return the names of the loaded images. Raises `EngineError`."""
    with _docker(engine, env, ("load", "--quiet"), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        with suppress(BrokenPipeError):  # docker reports why
            for block in counted(blocks, view):
                process.stdin.write(block)
            process.stdin.close()
        names = tuple(_LOADED.findall("".join(_lines(process))))
    if not names:
        raise EngineError("invalid manifest: docker named no image that it has loaded")
    return names


@contextmanager
def save(
    engine: Engine, env: Mapping[str, str], names: Iterable[str], arch: str, view: TransferView
) -> Iterator[Iterator[bytes]]:
    """Yield the archive of an image by its names, in blocks. Raises `EngineError`."""
    words = ("save", *_platform(engine, env, arch, SAVE_PLATFORM), *names)
    with _docker(engine, env, words) as process:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        blocks = iter(partial(process.stdout.read, BLOCK), b"")
        yield counted(blocks, view)
        for _ in blocks:
            pass  # read to the end, or docker reports a broken pipe


def counted(blocks: Iterable[bytes], view: TransferView) -> Iterator[bytes]:
    """Yield the blocks, and show how many bytes have passed."""
    count = 0
    for block in blocks:
        yield block
        count += len(block)
        view.moved(count)


def _platform(engine: Engine, env: Mapping[str, str], arch: str, since: tuple[int, int]) -> tuple[str, ...]:
    """Return the platform option; empty for the classic image store, where a name has only one platform.

    In containerd's image store, a name can have several platforms. An engine or client that is too old for the option
    (Docker 25 to 27) chooses a platform, and the caller checks the result.
    """
    if engine.is_classic:
        return ()
    version = run(engine.command("version", "--format", "{{.Client.APIVersion}}"), env=env, timeout=30, check=False)
    return ("--platform", f"linux/{arch}") if numbers(version.stdout.strip()) >= since else ()


def _move(engine: Engine, env: Mapping[str, str], words: tuple[str, ...], view: TransferView) -> None:
    """Run a command that moves layers to or from a registry, and show how many are done."""
    layers: dict[str, bool] = {}
    with _docker(engine, env, words) as process:
        for line in _lines(process):
            if found := _LAYER.match(line):
                layers[found[1]] = found[2].startswith(_DONE)
                view.layers(sum(layers.values()), len(layers))


@contextmanager
def _docker(
    engine: Engine, env: Mapping[str, str], words: tuple[str, ...], stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a docker command while the block runs, and wait for its end. Raises `EngineError` if it fails."""
    with tempfile.TemporaryFile() as errors:
        command = engine.command(*words)
        with subprocess.Popen(command, env=dict(env), stdin=stdin, stdout=subprocess.PIPE, stderr=errors) as process:
            try:
                yield process
            except BaseException as error:
                # If docker failed, the block may have failed because of that: report docker's reason.
                with suppress(subprocess.TimeoutExpired):
                    if isinstance(error, Exception) and process.wait(ENDS):
                        raise _failure(process, errors) from error
                process.kill()
                raise
            finally:
                if process.stdin is not None:
                    with suppress(BrokenPipeError):
                        process.stdin.close()
        if process.returncode:
            raise _failure(process, errors)


def _failure(process: subprocess.Popen[bytes], errors: IO[bytes]) -> EngineError:
    errors.seek(0)
    return EngineError(client_words(errors.read().decode(errors="replace"), process.returncode))


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    stream: IO[bytes] | tuple[bytes, ...] = process.stdout or ()
    return (line.decode(errors="replace") for line in stream)


# Huawei's SWR answers `400 Invalid image, fail to parse 'manifest.json'`.
OCI_REFUSED = (
    "the registry may take no OCI manifests: build the image again (`build.py image`), which makes Docker's, then push"
)
_AGAIN = "the same command goes on from here"
# The text before the engine's message, and the hint after it.
_REGISTRY: dict[Trouble, tuple[str, str]] = {
    Trouble.DENIED: (
        "the registry refuses access: ",
        "`docker login` there with an account that may; credentials come from docker's own settings only",
    ),
    Trouble.DAMAGED: (
        "the registry does not give all of this image: ",
        "a host that has the image repairs it with `build.py push --force`",
    ),
    Trouble.BUSY: ("", f"the registry limits the rate of requests: wait a while; {_AGAIN}"),
    Trouble.SERVER: ("", f"the registry itself has trouble, such as a full disk: see its log; then {_AGAIN}"),
}


def registry_error(error: EngineError, what: str, where: str, redact: Callable[[str], str]) -> CanneryError:
    """Return the user's error for a failed `what` (push or pull) of the reference `where`."""
    message = redact(error.message)
    if error.trouble is Trouble.SPACE:
        return UnableError(f"{what}: no room: {message}", where=where, hint="free some disk, then the same again")
    # The tag existed before the pull, so a part of its image is missing.
    trouble = Trouble.DAMAGED if what == "pull" and error.trouble is Trouble.ABSENT else error.trouble
    words, hint = _REGISTRY.get(trouble, ("", _AGAIN)) if trouble else ("", _AGAIN)
    low = message.lower()
    if "no such host" in low:
        hint = ENGINE_PROXY
    elif what == "push" and ("manifest.json" in low or "manifest invalid" in low or "manifest_invalid" in low):
        hint = OCI_REFUSED
    return NetworkError(f"{what}: {words}{message}", where=where, hint=hint)


def load_error(error: EngineError, where: str, redact: Callable[[str], str]) -> CanneryError:
    """Return the user's error for an archive that an engine refuses."""
    message = redact(error.message)
    if error.trouble is Trouble.SPACE:
        return UnableError(f"load: no room: {message}", where=where, hint="free some disk, then the same again")
    if error.trouble is Trouble.ARCHIVE or "eof" in message.lower():
        return FindingsError(f"load: the archive is broken: {message}", where=where, hint="copy or make it again")
    return UnableError(f"load: {message}", where=where)
