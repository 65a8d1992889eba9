"""Compiles modules to byte code that is the same wherever it is made: by this file, run as a program of its own.

The bytes of a .pyc depend on what the compiling process holds (marshal marks what it may meet again). So each batch has
a fresh process that imports next to nothing, and a batch's modules are the same ones on every machine. The .pyc files
are checked against the hash of their source (PEP 552): an edit in a container takes effect, and no time is in them.

It is copied into each rendered folder as tools/common/bytecode.py: it needs Python 3.10 and the standard library alone.
"""

from __future__ import annotations

import struct
import sys

TYPE_CHECKING = False  # of `typing`, which would fill the process
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

# Modules of one process. A process takes 15 ms to start, and a module 2 ms to compile.
BATCH = 200
# The flags of a .pyc that is held against the hash of its source at each import.
CHECKED_HASH = (0b11).to_bytes(4, "little")
_SIZES, _LENGTH = struct.Struct(">II"), struct.Struct(">I")


def compiled(wheels: Sequence[Sequence[tuple[str, bytes]]], interpreter: str, jobs: int) -> dict[str, bytes]:
    """Return {path of the .pyc: content} of the modules of each wheel, given as (path in the image, source).

    `jobs` processes of `interpreter` run at once. Of a module that two wheels have, the later one's .pyc is kept. A
    module that does not compile has none: some packages carry files for other versions of Python.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(jobs) as pool:
        answers = pool.map(lambda batch: _in_a_process(batch, interpreter), [b for w in wheels for b in batches(w)])
        return {path: data for answer in answers for path, data in answer}


def batches(modules: Sequence[tuple[str, bytes]]) -> list[Sequence[tuple[str, bytes]]]:
    """Return the modules of a wheel, or of a tree, as the batches that one process each compiles."""
    return [modules[first : first + BATCH] for first in range(0, len(modules), BATCH)]


def pyc_path(path: str, tag: str) -> str:
    """Return where the byte code of the module `path` is, for the interpreter `tag` (`cpython-311`)."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/__pycache__/{name.removesuffix('.py')}.{tag}.pyc"


def _in_a_process(batch: Sequence[tuple[str, bytes]], interpreter: str) -> list[tuple[str, bytes]]:
    """Compile a batch. The seed is fixed: before Python 3.11 the order of a constant set depends on it."""
    if not batch:
        return []
    import os
    import subprocess

    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = (interpreter, "-S", "-s", "-B", "-W", "ignore", __file__)
    asked = b"".join(_packed(name, source) for name, source in batch)
    done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, env={**env, "PYTHONHASHSEED": "0"}, check=True)
    return [(name, data) for name, data in _unpacked(done.stdout) if data]


def _packed(name: str, content: bytes) -> bytes:
    path = name.encode()
    return _SIZES.pack(len(path), len(content)) + path + content


def _unpacked(data: bytes) -> list[tuple[str, bytes]]:
    """Return the (name, content) pairs of a stream of them."""
    pairs, at = [], 0
    while at < len(data):
        name, content = _SIZES.unpack_from(data, at)
        at += _SIZES.size
        pairs.append((data[at : at + name].decode(), data[at + name : at + name + content]))
        at += name + content
    return pairs


def _pyc(path: str, source: bytes) -> tuple[str, bytes]:
    """Return the path and the content of a module's .pyc; no content where it does not compile."""
    import marshal
    from importlib.util import MAGIC_NUMBER, source_hash

    cached = pyc_path(path, str(sys.implementation.cache_tag))
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError):
        return cached, b""
    return cached, MAGIC_NUMBER + CHECKED_HASH + source_hash(source) + marshal.dumps(code)


def framed(batch: Sequence[tuple[str, bytes]]) -> bytes:
    """Return a batch of (name, content) as `serve` takes and gives it; an empty one comes back as it is."""
    content = b"".join(_packed(name, data) for name, data in batch)
    return _LENGTH.pack(len(content)) + content


def read_frame(stream: IO[bytes]) -> list[tuple[str, bytes]] | None:
    """Return the next batch of a stream; None at its end."""
    length = stream.read(_LENGTH.size)
    return _unpacked(stream.read(_LENGTH.unpack(length)[0])) if len(length) == _LENGTH.size else None


def serve(jobs: int) -> None:
    """Compile batches that come in on standard input, each in a process of its own, and answer in their order."""
    from collections import deque
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: deque[Future[list[tuple[str, bytes]]]] = deque()
    with ThreadPoolExecutor(jobs) as pool:
        more = True
        while more or waiting:
            batch = read_frame(sys.stdin.buffer) if more else None
            more = batch is not None
            if batch is not None:
                waiting.append(pool.submit(_in_a_process, batch, sys.executable))
            if len(waiting) > 2 * jobs or (not more and waiting):
                sys.stdout.buffer.write(framed(waiting.popleft().result()))
                sys.stdout.buffer.flush()


def main() -> None:
    """Compile what comes in on standard input: one batch, or with an argument what `serve` does by so many jobs."""
    if len(sys.argv) > 1:
        serve(int(sys.argv[1]))
        return
    for name, source in _unpacked(sys.stdin.buffer.read()):
        sys.stdout.buffer.write(_packed(*_pyc(name, source)))


if __name__ == "__main__":
    main()
