"""The byte code of wheels and trees: compiled once, and cached by content and Python version.

The bytes of a .pyc differ between patch releases of Python. So the Python of the image compiles, in a container that
reads sources from standard input. The host does not need that version of Python.
"""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

from cannery.assemble.io import bytecode
from cannery.assemble.io.sink import Member
from cannery.assemble.io.tree import tree_leaves, tree_modules
from cannery.assemble.io.wheel_files import File, WheelError, opened, wheel_files
from cannery.errors import UnableError
from cannery.recipe.environment import VENV
from cannery.store.io.packed import LEVEL, deflate
from cannery.util.io.files import sha256_bytes, sha256_file, write_atomic
from cannery.util.io.process import run
from cannery.util.io.waiting import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cannery.assemble.content import Content, Tree, Wheel

PROGRAM = Path(bytecode.__file__)
# The bytes of a SHA-256.
_SUM = 32
# Writes the program, which is passed as an argument, to a file and runs it.
_START = """\
import runpy, sys
open("/tmp/bytecode.py", "w").write(sys.argv.pop(1))
runpy.run_path("/tmp/bytecode.py", run_name="__main__")
"""


@dataclass(frozen=True)
class Worker:
    """A byte-code compiler: a command that runs `bytecode.main`, its environment, and its Python version.

    `command` is called only if there is something to compile.
    """

    command: Callable[[], tuple[str, ...]]
    env: Mapping[str, str]
    version: str

    @cached_property
    def key(self) -> str:
        """A digest (12 hex digits) of everything that byte code depends on, except the source."""
        return sha256_bytes(f"{self.version}\n{PROGRAM.read_text(encoding='utf-8')}".encode())[:12]


class PythonPlace(Protocol):
    """Runs the Python of an image."""

    @property
    def env(self) -> Mapping[str, str]:
        """The environment for its commands."""

    def python_command(self, image: str, python: str, *arguments: str, stdin: bool = False) -> tuple[str, ...]:
        """Return a command that runs the Python of an image without network access."""


def python_note(cache: Path, image: str) -> Path:
    """Return the cache file with the Python version of the image with the id `image`."""
    return cache / "layers" / "pythons" / image.rpartition(":")[2]


def known_python(cache: Path, image: str) -> str:
    """Return the `sys.version` of the Python in an image, or "" if it is not cached."""
    note = python_note(cache, image)
    return note.read_text(encoding="utf-8") if note.is_file() else ""


def python_worker(place: PythonPlace, image: str, python: str, cache: Path) -> Worker:
    """Return a worker that runs the Python at `python` in the image with the id `image`.

    Its version is read once and cached. Raises `UnableError` if that Python does not run.
    """
    version = known_python(cache, image)
    if not version:
        question = place.python_command(image, python, "-I", "-c", "import sys; print(sys.version)")
        done = run(question, env=place.env, timeout=300, check=False)
        if done.returncode:
            why = done.stderr.strip()[-500:]
            hint = "BuildKit needs no container for it: `--with bake`"
            raise UnableError(f"{python} of the base does not run: {why}", where=image, hint=hint)
        version = done.stdout
        write_atomic(python_note(cache, image), version)
    return Worker(partial(_worker_command, place, image, python, version), place.env, version)


def _worker_command(place: PythonPlace, image: str, python: str, version: str) -> tuple[str, ...]:
    """Return the command of a worker: the Python of the image, or if that cannot run, the same release on this host."""
    program, jobs = PROGRAM.read_text(encoding="utf-8"), str(len(os.sched_getaffinity(0)))
    try:
        return place.python_command(image, python, "-c", _START, program, jobs, stdin=True)
    except UnableError as error:
        release = version.split(maxsplit=1)[0]
        if found := _own_python(release):
            return found, "-I", str(PROGRAM), jobs
        error.hint = error.hint or f"put Python {release}, the image's own, into PATH: it compiles the same byte code"
        raise


def _own_python(release: str) -> str:
    """Return the path of this host's Python of a release (`3.11.2`), or ""."""
    name = f"python{release.rpartition('.')[0]}"
    for path in filter(None, (shutil.which(name, path=folder) for folder in os.get_exec_path())):
        question = (path, "-I", "-c", "import platform; print(platform.python_version())")
        if run(question, check=False).stdout.strip() == release:
            return path
    return ""


@dataclass(frozen=True)
class Modules:
    """The modules of one wheel or tree, compiled and cached together under `name` and the digest `key`.

    `sources` yields (path in the image, source).
    """

    name: str
    key: str
    sources: Callable[[], Iterator[tuple[str, bytes]]]


@cache
def files_of(wheel: Wheel, python: str) -> list[File]:
    """Return the files that a wheel installs, for a minor version of Python.

    Raises `WheelError` for a wheel that cannot be installed.
    """
    with opened(Path(wheel.path)) as archive:
        return wheel_files(archive, VENV, python)


def modules_of(wheel: Wheel, python: str) -> Modules:
    """Return the modules of a wheel for a minor version of Python. Reading them checks the wheel's hash."""

    def sources() -> Iterator[tuple[str, bytes]]:
        path = Path(wheel.path)
        if sha256_file(path) != wheel.sha256:
            raise WheelError(f"{path.name}: it has another hash than its lock")
        with opened(path) as archive:
            for file in files_of(wheel, python):
                if file.is_module:
                    yield file.path, b"".join(Member(file, archive))

    return Modules(wheel.path.name.partition("-")[0], wheel.sha256, sources)


def modules_of_tree(tree: Tree) -> Modules:
    """Return the modules of a tree."""

    def sources() -> Iterator[tuple[str, bytes]]:
        with tarfile.open(tree.tar) as archive:
            yield from tree_modules(tree_leaves(tree, archive))

    patched = [(file.path, file.after) for file in tree.patched]
    key = sha256_bytes(f"{sha256_file(Path(tree.tar))} {tree.home} {patched}".encode())
    return Modules(posixpath.basename(tree.home), key, sources)


def modules_in(content: Content, python: str) -> list[Modules]:
    """Return the modules of each wheel and tree in a layer, for a minor version of Python."""
    return [*(modules_of(wheel, python) for wheel in content.wheels), *map(modules_of_tree, content.trees)]


def code_path(modules: Modules, worker: Worker, cache: Path) -> Path:
    """Return the zip file that caches the byte code of modules. Its members are paths in the image."""
    return cache / "layers" / "code" / modules.name / f"{modules.key}-{worker.key}.zip"


def _is_whole(path: Path) -> bool:
    """Whether a zip file of byte code exists and is undamaged. Its comment is the digest of the bytes before it."""
    try:
        data = memoryview(path.read_bytes())
    except FileNotFoundError:
        return False
    return hashlib.sha256(data[:-_SUM]).digest() == data[-_SUM:]


class _Job:
    """Makes the zip file `path` with the byte code of modules.

    Byte code of unchanged modules is copied from the zip file of another version. The comment of each member is the
    digest of its path and source.
    """

    def __init__(self, modules: Modules, path: Path, stack: ExitStack) -> None:
        self.path, self._modules = path, modules
        others = sorted(path.parent.glob(f"*-{path.stem.rpartition('-')[2]}.zip"), key=lambda one: one.stat().st_mtime)
        self._other = stack.enter_context(opened(others[-1])) if others and _is_whole(others[-1]) else None
        self._sent: list[bytes] = []
        self._taken: list[zipfile.ZipInfo] = []

    def sources(self) -> Iterator[tuple[str, bytes]]:
        """Yield the modules to compile, as (path in the image, source)."""
        known = {info.comment: info for info in self._other.infolist()} if self._other else {}
        for path, source in self._modules.sources():
            made_of = hashlib.sha256(bytecode.packed([(path, source)])).digest()
            if made_of in known:
                self._taken.append(known[made_of])
            else:
                self._sent.append(made_of)
                yield path, source

    def keep(self, compiled: Iterable[tuple[str, bytes]]) -> None:
        """Write the zip file. `compiled` has the .pyc files of `sources`, in the same order."""
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for (path, data), made_of in zip(compiled, self._sent, strict=True):
                squeeze, info = deflate.compressobj(LEVEL, wbits=-deflate.MAX_WBITS), zipfile.ZipInfo(path)
                info.comment, info.file_size, info.CRC = made_of, len(data), deflate.crc32(data)
                if data:
                    _put(archive, info, squeeze.compress(data) + squeeze.flush())
            for info in self._taken:
                member = Member(File(info.filename, 0o644, info), cast("zipfile.ZipFile", self._other))
                _put(archive, info, b"".join(block for _, block in member.stream(info)))
            archive.comment = bytes(_SUM)
        data = stream.getvalue()[:-_SUM]
        write_atomic(self.path, data + hashlib.sha256(data).digest())


def _put(archive: zipfile.ZipFile, like: zipfile.ZipInfo, squeezed: bytes) -> None:
    """Add an already deflated member to a zip file. `like` has its name, comment, size and CRC."""
    info = zipfile.ZipInfo(like.filename)
    info.comment = like.comment
    archive.writestr(info, squeezed)
    # `zipfile` can only compress with zlib. It writes these values to the directory at the end of the file.
    info.compress_type, info.file_size, info.CRC = zipfile.ZIP_DEFLATED, like.file_size, like.CRC


def make_code(wanted: Iterable[Modules], worker: Worker, cache: Path) -> None:
    """Compile the modules whose byte code is missing or damaged.

    Raises `WheelError` for a wheel or tree that cannot be installed, `UnableError` if the worker fails.
    """
    by_path = {code_path(modules, worker, cache): modules for modules in wanted}
    with ExitStack() as stack:
        jobs = [_Job(modules, path, stack) for path, modules in by_path.items() if not _is_whole(path)]
        if jobs:
            _work(jobs, worker)


def _work(jobs: Sequence[_Job], worker: Worker) -> None:
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
        worker.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=dict(worker.env)
    ) as process:  # fmt: skip
        into, out = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        sent = begin(lambda: _send(jobs, into))
        try:
            for job in jobs:
                job.keep(_answer(out))
            sent.result()
        except EOFError:
            sent.result()
            errors.seek(0)
            why = errors.read().decode(errors="replace").strip()[-500:] or "no reason given"
            raise UnableError(f"the container that compiles byte code has ended: {why}") from None
        except BaseException:
            process.kill()
            raise


def _send(jobs: Iterable[_Job], into: IO[bytes]) -> None:
    """Send modules in batches, and an empty batch at the end of each job."""
    try:
        for job in jobs:
            sources = job.sources()
            while batch := list(islice(sources, bytecode.BATCH)):
                into.write(bytecode.framed(bytecode.packed(batch)))
            into.write(bytecode.framed(b""))
    except BrokenPipeError:
        pass  # the worker has ended: `_work` reads its error output
    finally:
        with suppress(BrokenPipeError):
            into.close()


def _answer(out: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the .pyc files of a job. Raises `EOFError` if the worker ends before the last one."""
    while batch := bytecode.read_frame(out):
        yield from bytecode.unpacked(batch)
    if batch is None:
        raise EOFError
