"""Compiles modules to byte code that is the same wherever it is made: by this file, run as a program of its own.

The bytes of a .pyc must not depend on what its process has compiled before. marshal marks interned strings, and objects
that have more than one reference. Modules share only strings of one character, so all of these are interned first, as
Python 3.13 does. (So the 20,596 modules of quickstart have the same bytes from the first to the last and back.) A .pyc
is checked against the hash of its source (PEP 552): an edit in a container takes effect, and no time is in it.
Which modules of a wheel are compiled is in wheel_files.py.

It is copied into each rendered folder as tools/common/bytecode.py: it needs Python 3.10 and the standard library alone.
"""

from __future__ import annotations

import struct
import sys

TYPE_CHECKING = False  # of `typing`, which would fill the process
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator, Sequence
    from typing import IO

# Modules that are sent to a process at once.
BATCH = 200
# The flags of a .pyc that is held against the hash of its source at each import.
CHECKED_HASH = (0b11).to_bytes(4, "little")
_SIZES, _LENGTH = struct.Struct(">II"), struct.Struct(">I")


def compiled(wheels: Sequence[Sequence[tuple[str, bytes]]], interpreter: str, jobs: int) -> dict[str, bytes]:
    """Return {path of the .pyc: content} of the modules of each wheel, given as (path in the image, source).

    `jobs` processes of `interpreter` run at once. Of a module that two wheels have, the later one's .pyc is kept. A
    module that does not compile has none: some packages carry files for other versions of Python.
    """
    asked = (packed(modules[first : first + BATCH]) for modules in wheels for first in range(0, len(modules), BATCH))
    return {path: data for answer in answers(asked, interpreter, jobs) for path, data in unpacked(answer) if data}


def answers(asked: Iterable[bytes], interpreter: str, jobs: int) -> Iterator[bytes]:
    """Give the packed .pyc files of packed batches of modules, in their order; an empty batch comes back as it is.

    At most `jobs` processes compile, one batch after the other. Raises `OSError` where one ends before its answer.
    """
    from collections import deque
    from concurrent.futures import Future, ThreadPoolExecutor
    from contextlib import ExitStack

    waiting: deque[Future[bytes]] = deque()
    idle: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:

        def answer(batch: bytes) -> bytes:
            if not batch:
                return batch
            try:
                process = idle.pop()
            except IndexError:
                process = stack.enter_context(_process(interpreter))
            found = _answer(process, batch)
            idle.append(process)
            return found

        for batch in asked:
            waiting.append(pool.submit(answer, batch))
            if len(waiting) > 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def pyc_path(path: str, tag: str) -> str:
    """Return where the byte code of the module `path` is, for the interpreter `tag` (`cpython-311`)."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/__pycache__/{name.removesuffix('.py')}.{tag}.pyc"


def _process(interpreter: str) -> subprocess.Popen[bytes]:
    """Start a process that compiles. Its seed is fixed: before Python 3.11 a constant set is ordered by it."""
    import os
    import subprocess

    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = (interpreter, "-S", "-s", "-B", "-W", "ignore", __file__)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env={**env, "PYTHONHASHSEED": "0"})


def _answer(process: subprocess.Popen[bytes], batch: bytes) -> bytes:
    if process.stdin and process.stdout:
        process.stdin.write(framed(batch))
        process.stdin.flush()
        if (found := read_frame(process.stdout)) is not None:
            return found
    raise OSError("a process that compiles has ended before its answer")


def packed(pairs: Iterable[tuple[str, bytes]]) -> bytes:
    """Return (name, content) pairs as one stream of bytes."""
    named = ((name.encode(), content) for name, content in pairs)
    return b"".join(_SIZES.pack(len(name), len(content)) + name + content for name, content in named)


def unpacked(data: bytes) -> list[tuple[str, bytes]]:
    """Return the (name, content) pairs of a stream of them."""
    pairs, at = [], 0
    while at < len(data):
        name, content = _SIZES.unpack_from(data, at)
        at += _SIZES.size
        pairs.append((data[at : at + name].decode(), data[at + name : at + name + content]))
        at += name + content
    return pairs


def framed(batch: bytes) -> bytes:
    """Return a packed batch as it is sent, behind its length."""
    return _LENGTH.pack(len(batch)) + batch


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next packed batch of a stream; None at its end, and where it ends within one."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    batch = stream.read(_LENGTH.unpack(length)[0])
    return batch if len(batch) == _LENGTH.unpack(length)[0] else None


def _pyc(path: str, source: bytes) -> tuple[str, bytes]:
    """Return the path and the content of a module's .pyc; no content where it does not compile."""
    import marshal
    from importlib.util import MAGIC_NUMBER, source_hash

    cached = pyc_path(path, str(sys.implementation.cache_tag))
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last for what is nested too deep
        return cached, b""
    data = marshal.dumps(code)
    if sys.hexversion < 0x030B0000:  # there an interned string is marked only where others hold it too, as `code` does
        data = marshal.dumps(marshal.loads(data))
    return cached, MAGIC_NUMBER + CHECKED_HASH + source_hash(source) + data


def main() -> None:
    """Answer batches that come in on standard input: compiled here, or with an argument by so many processes."""
    for code in range(256):
        sys.intern(chr(code))
    asked = iter(lambda: read_frame(sys.stdin.buffer), None)
    here = (packed(_pyc(name, source) for name, source in unpacked(batch)) for batch in asked)
    for answer in answers(asked, sys.executable, int(sys.argv[1])) if len(sys.argv) > 1 else here:
        sys.stdout.buffer.write(framed(answer))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
