"""The sources of a build: each a tar in `<cache>/sources`, from a commit in the git cache or from a user's own tree.

The tar of a commit is kept with a JSON note about it: a later run for the same commit needs neither git nor a network.
Of a local tree, the last few tars are kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cannery.errors import NetworkError, UnableError, UsageError
from cannery.sources.io.export import DamagedError, gather, read_blob, write_tar
from cannery.sources.io.git import BlobReader, GitReadError
from cannery.sources.io.git_cache import GitCache, in_mirror
from cannery.sources.io.work_tree import local_tree
from cannery.sources.plan import Missing, Why
from cannery.util.io.files import read_json, sha256_file, write_atomic
from cannery.util.io.locks import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from cannery.catalog.addresses import Host
    from cannery.sources.plan import Kind, SourceRequest

# Parallel fetches.
WORKERS = 4
# Increase this number when the tar of the same tree changes: older tars are then written again.
LAYOUT = 1
# How many tars of one local tree are kept, since another run may still read an older one.
KEPT = 4
# The `repository` of a user's own tree.
LOCAL = "local"


@dataclass(frozen=True)
class SourceStore:
    """Where sources come from on this host, and the cache that keeps them.

    `hosts` is images/hosts.yaml. `mirror` is a folder of local repositories that is used instead of the network;
    `local` are the user's own folders by source name. `env` is git's environment; `say` prints a progress line.
    """

    cache: Path
    env: Mapping[str, str]
    say: Callable[[str], None]
    hosts: Mapping[str, Host]
    mirror: Path | None
    local: Mapping[str, Path]


@dataclass(frozen=True)
class SourceFile:
    """A source that is on this host.

    `tree` is a digest of its content, without times and owners. `repository` is where it came from (`host/owner/name`,
    `mirror/owner/name`, or `local`). `commit` of a local tree is its HEAD, or None; `dirty` means that the tree differs
    from it. `missing` is printed for the user.
    """

    name: str
    tar: Path
    sha256: str
    tree: str
    repository: str
    commit: str | None = None
    dirty: bool = False
    missing: tuple[Missing, ...] = ()


def fetch_sources(requests: Sequence[SourceRequest], store: SourceStore) -> tuple[SourceFile, ...]:
    """Return the sources in the order of `requests`; several are fetched at once.

    Each fetch and each wait for another run prints a line. Raises `NetworkError` with each host's reason if a commit
    cannot be fetched, `FindingsError` for a tree that differs from its request, `UsageError` for a local tree that
    cannot be used, and `UnableError`.
    """
    mirror, cache = store.mirror, store.cache.absolute()
    if mirror is not None and not mirror.is_dir():
        raise UsageError(f"GIT_MIRROR: {str(mirror)!r} is not a folder", hint="name your folder of git repositories")
    stop, one_at_a_time = threading.Event(), threading.Lock()

    def say(text: str) -> None:
        with one_at_a_time:
            store.say(text)

    git = GitCache(cache, store.hosts, store.env, mirror.absolute() if mirror else None, say, stop)
    with ThreadPoolExecutor(max_workers=max(1, min(WORKERS, len(requests)))) as pool:
        futures = [pool.submit(_fetch, request, git) for request in requests]
        # Reading a mirror is quick, so all missing commits are reported at once.
        return _results(futures, stop, is_patient=mirror is not None)


def _results(
    futures: Sequence[Future[SourceFile]], stop: threading.Event, *, is_patient: bool
) -> tuple[SourceFile, ...]:
    """Wait for all; at the first error, or Ctrl-C, stop the others. Equal errors are reported once."""
    try:
        wait(futures, return_when=ALL_COMPLETED if is_patient else FIRST_EXCEPTION)
    finally:
        stop.set()
        for future in futures:
            future.cancel()
    errors = [error for future in futures if not future.cancelled() and (error := future.exception())]
    real = [error for error in errors if not isinstance(error, StoppedError)]
    if real:
        others = [error for error in real if not isinstance(error, NetworkError)]
        if others or len(real) == 1:
            raise (others or real)[0]
        raise NetworkError("\n".join(dict.fromkeys(str(error) for error in real)))
    return tuple(future.result() for future in futures)


def _fetch(request: SourceRequest, git: GitCache) -> SourceFile:
    if git.stop.is_set():
        raise StoppedError
    try:
        return _local(request, git) if request.local is not None else _commit(request, git)
    except NetworkError as error:
        if request.release:
            way = f"SOURCES=release:{request.name} uses release {request.release} of the package index instead"
            error.hint = "; ".join(part for part in (error.hint, way) if part)
        raise
    except GitReadError as error:
        raise UnableError(f"{request.name}: git cannot read the repository: {error}") from error
    except OSError as error:
        raise UnableError(f"{request.name}: the source cannot be written: {error}", where=str(git.cache)) from error


def _commit(request: SourceRequest, git: GitCache) -> SourceFile:
    commit = str(request.commit)
    submodules = sorted((path, submodule.commit) for path, submodule in request.submodules.items())
    decides = [LAYOUT, request.commit, sorted(request.paths), submodules, request.epoch]  # the bytes of the tar
    key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]
    stem = f"{request.name}-{commit[:12]}-{key}"
    folder = git.cache / "sources"
    target, note = folder / f"{stem}.tar", folder / f"{stem}.json"
    with git.held(folder / ".locks" / f"{stem}.lock", request.name):
        if git.mirror is not None:
            in_mirror(git.mirror, request.name, commit, request.hosts, git.env)
        kept = _noted(request, target, note)
        if kept:
            return kept
        try:
            file = _exported(request, git, target)
        except DamagedError as error:
            # A power failure or a disk error damaged it; its host still has everything.
            git.say(f"{error.what}: its repository is fetched again")
            shutil.rmtree(error.where, ignore_errors=True)
            file = _exported(request, git, target)
        missing = [[one.path, one.why.name] for one in file.missing]
        about = {"sha256": file.sha256, "tree": file.tree, "repository": file.repository, "missing": missing}
        write_atomic(note, json.dumps(about, indent=1) + "\n")
        return file


def _exported(request: SourceRequest, git: GitCache, target: Path) -> SourceFile:
    """Write the tar of a commit. Raises `DamagedError` if a part of it is lost in the git cache."""
    commit = str(request.commit)
    found = git.obtain(request.name, commit, request.hosts)
    tree = gather(request, found, git.obtain, git.env)
    entries = {path: blob.kind for path, blob in tree.blobs.items()}
    with BlobReader(git.env) as reader:
        file = _write(target, request, entries, lambda path: read_blob(tree, path, reader), git)
    missing = tuple(sorted({*tree.missing, *file.missing}))
    return replace(file, commit=commit, repository=found.repository, missing=missing)


def _noted(request: SourceRequest, target: Path, note: Path) -> SourceFile | None:
    """Return the tar of an earlier run; None if it is damaged or missing."""

    def noted(known: Mapping[str, Any]) -> SourceFile | None:
        missing = tuple(Missing(path, Why[why]) for path, why in known["missing"])
        file = SourceFile(request.name, target, known["sha256"], known["tree"], known["repository"], request.commit)
        return replace(file, missing=missing) if sha256_file(target) == file.sha256 else None

    return read_json(note, noted)


def _local(request: SourceRequest, git: GitCache) -> SourceFile:
    folder = git.cache / "sources" / LOCAL
    with git.held(folder / ".locks" / f"{request.name}.lock", request.name):
        tree = local_tree(request.name, Path(str(request.local)), request.paths, git.env)
        file = _write(folder / f"{request.name}.tar", request, tree.entries, tree.read, git)
        target = file.tar.replace(folder / f"{request.name}-{file.sha256[:16]}.tar")
        name = re.compile(rf"{re.escape(request.name)}-[0-9a-f]{{16}}\.tar")
        mine = [path for path in folder.iterdir() if name.fullmatch(path.name)]
        for path in sorted(mine, key=lambda path: path.stat().st_mtime)[:-KEPT]:
            path.unlink(missing_ok=True)
        missing = tuple(sorted({*tree.missing, *file.missing}))
        return replace(file, tar=target, commit=tree.commit, dirty=tree.dirty, missing=missing)


def _write(
    target: Path, request: SourceRequest, entries: Mapping[str, Kind], content: Callable[[str], bytes], git: GitCache
) -> SourceFile:
    """Write a tar completely or not at all. Raises `StoppedError` if the run is stopped."""

    def read(path: str) -> bytes:
        if git.stop.is_set():
            raise StoppedError
        return content(path)

    part = target.with_name(f"{target.name}.part")
    try:
        written = write_tar(part, request.name, entries, read, request.epoch)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return SourceFile(request.name, target, written.sha256, written.tree, LOCAL, missing=written.pointers)
