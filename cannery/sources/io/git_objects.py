"""What is in a repository: refs, and objects that are checked against their names. Nothing is fetched for it."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from typing import TYPE_CHECKING, Self

from cannery.sources.io.git import OFFLINE, GitReadError, no_git, quiet_env, read, unread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def opens(git_dir: Path, env: Mapping[str, str]) -> bool:
    """Whether git takes a folder for a repository."""
    try:
        read((f"--git-dir={git_dir}", "rev-parse", "--is-bare-repository"), env)
    except GitReadError:
        return False
    return True


def why_not(git_dir: Path, thing: str, env: Mapping[str, str]) -> str | None:
    """Return why git gives no `thing` of a repository, "" where it is just not there; None when it is."""
    try:
        read((f"--git-dir={git_dir}", "cat-file", "-e", thing), env)
    except GitReadError as error:
        return unread(error.lines)
    return None


def has(git_dir: Path, thing: str, env: Mapping[str, str]) -> bool:
    """Whether a repository has `thing` (`<commit>^{tree}`)."""
    return why_not(git_dir, thing, env) is None


def ref_below(git_dir: Path, prefix: str, env: Mapping[str, str]) -> str:
    """Return the first ref below `prefix` (ends in /), or ""."""
    try:
        found = read((f"--git-dir={git_dir}", "for-each-ref", "--count=1", "--format=%(refname)", prefix), env)
    except GitReadError:
        return ""
    return found.decode(errors="replace").strip()


def absent_objects(git_dir: Path, commit: str, env: Mapping[str, str]) -> set[str]:
    """Return the objects of a commit's tree that a repository is missing. Raises `GitReadError` when git fails."""
    # Only this way does no git of any age try to fetch what is missing in a partial clone, or fail because of it.
    walk = ("rev-list", "--objects", "--no-object-names", "--no-walk", "--missing=print", commit)
    text = read((f"--git-dir={git_dir}", *walk), env).decode()
    return {line.removeprefix("?") for line in text.splitlines() if line.startswith("?")}


class BlobReader:
    """Reads blobs through one `git cat-file --batch` for each repository. Use it in one thread, in a `with`."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = quiet_env(env) | OFFLINE
        self._readers: dict[Path, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._readers.values():
            process.kill()
            # Closing the pipe may want to write what a dead git never read.
            with contextlib.suppress(BrokenPipeError), process:
                pass

    def read(self, git_dir: Path, oid: str) -> bytes | None:
        """Return a blob's content; None when it is not there or is not what its name says. Raises `UnableError`."""
        process = self._readers.get(git_dir)
        if process is None:
            process = self._readers[git_dir] = self._start(git_dir)
        if process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(f"{oid}\n".encode())
            process.stdin.flush()
        except BrokenPipeError:
            return None  # git died over a damaged pack
        head = process.stdout.readline().split(b" ")
        if len(head) != 3:
            return None  # `<object> missing`
        content = process.stdout.read(int(head[2]))
        process.stdout.read(1)
        name = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
        name.update(content)
        return content if name.hexdigest() == oid else None

    def _start(self, git_dir: Path) -> subprocess.Popen[bytes]:
        command = ("git", f"--git-dir={git_dir}", "cat-file", "--batch")
        try:
            return subprocess.Popen(
                command, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except FileNotFoundError as error:
            raise no_git() from error
