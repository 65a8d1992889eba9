"""Run git, to read a repository or to fetch from a host. A fetch can be stopped; a read never fetches.

Objects are checked against their hashes. The user's own configuration applies (proxy, insteadOf, credential helpers).
git asks no questions: terminal prompts and askpass programs are off, and it has no terminal.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from typing import TYPE_CHECKING, Self

from cannery.errors import UnableError
from cannery.util.io.locks import StoppedError
from cannery.util.io.process import TICK, cancel, end, output, start

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Variables that an outer git (a hook) sets to its own repository, which would be the wrong one here.
_OF_ONE_REPOSITORY = """
GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_COMMON_DIR GIT_CONFIG GIT_DIR GIT_GRAFT_FILE GIT_IMPLICIT_WORK_TREE
GIT_INDEX_FILE GIT_NAMESPACE GIT_OBJECT_DIRECTORY GIT_PREFIX GIT_QUARANTINE_PATH GIT_REPLACE_REF_BASE
GIT_SHALLOW_FILE GIT_WORK_TREE
"""
OF_ONE_REPOSITORY = frozenset(_OF_ONE_REPOSITORY.split())
QUIET = {
    # Empty: git then uses neither core.askPass nor SSH_ASKPASS.
    "GIT_ASKPASS": "",
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
    # The messages are parsed.
    "LC_ALL": "C",
    # Read a commit's own tree, not its replacement in refs/replace, and write nothing.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_DEFAULT_HASH": "sha1",
}
# A read of a partial clone must not fetch missing objects. Git before 2.39.4 knows only the second variable.
OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}

# Git's only message about an object that a complete repository does not have.
ABSENT = "Not a valid object name"
# A repository's configuration may name programs that a read starts: a file monitor, and hooks.
NO_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")


class GitReadError(Exception):
    """git could not read a repository; the message is its last line, `lines` are its whole output."""

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = tuple(lines)


def quiet_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` for a git that asks no questions, without the variables of an outer repository."""
    return {name: value for name, value in env.items() if name not in OF_ONE_REPOSITORY} | QUIET


def read(arguments: Sequence[str | Path], env: Mapping[str, str], *, stdin: bytes = b"") -> bytes:
    """Return the output of `git ARGUMENTS`, a command that needs no network. No monitor or hook is run.

    Raises `GitReadError` if it fails, `UnableError` if git is not installed.
    """
    done = attempt(arguments, env, stdin=stdin)
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitReadError(lines[-1] if lines else f"git ended with status {done.returncode}", lines)
    return done.stdout


def attempt(
    arguments: Sequence[str | Path], env: Mapping[str, str], *, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run `git ARGUMENTS` like `read`, and return the result, also if git fails.

    Raises `UnableError` if git is not installed.
    """
    command = ("git", *NO_PROGRAMS, *map(str, arguments))
    try:
        return subprocess.run(command, env=quiet_env(env) | OFFLINE, input=stdin, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise no_git() from error


def talk(
    arguments: Sequence[str | Path], env: Mapping[str, str], folder: Path, *, stop: threading.Event, silence: float
) -> tuple[bool, str]:
    """Run `git ARGUMENTS`, which uses the network, in `folder`; return whether it succeeded, and its output.

    It is ended after `silence` seconds without output, or when `stop` is set: that raises `StoppedError`. Raises
    `UnableError` if git is not installed.
    """
    try:
        process = start(("git", *map(str, arguments)), quiet_env(env), folder)
    except UnableError as error:
        raise no_git() from error
    written, quiet = bytearray(), 0.0
    try:
        for data in output(process):
            if stop.is_set():
                cancel(process)
                raise StoppedError
            written += data or b""
            quiet = 0.0 if data else quiet + TICK
            if quiet >= silence:
                cancel(process)
                return False, f"{readable(bytes(written))}\nfatal: no output within {silence:.0f} s".lstrip()
        return process.wait() == 0, readable(bytes(written))
    finally:
        end(process)


def no_git() -> UnableError:
    """Return the error of a host without git."""
    return UnableError("program not found: git", hint="install git: sources are fetched and read with it")


def readable(output: bytes) -> str:
    """Return git's output as lines, each progress line in its last state."""
    lines = output.decode(errors="replace").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines).strip()


def why_not(git_dir: Path, thing: str, env: Mapping[str, str]) -> str | None:
    """Return None if a repository has `thing`, "" if it does not, or why git cannot read the repository."""
    try:
        read((f"--git-dir={git_dir}", "cat-file", "-e", thing), env)
    except GitReadError as error:
        found = [line.strip() for line in error.lines if line.startswith(("fatal:", "error:")) and ABSENT not in line]
        best = next((line for line in found if line.startswith("fatal:")), found[0] if found else "")
        return best.partition(":")[2].strip()
    return None


def has(git_dir: Path, thing: str, env: Mapping[str, str]) -> bool:
    """Whether a repository has `thing` (`<commit>^{tree}`)."""
    return why_not(git_dir, thing, env) is None


def ref_below(git_dir: Path, prefix: str, env: Mapping[str, str]) -> str:
    """Return the first ref below `prefix` (which ends in /), or ""."""
    try:
        found = read((f"--git-dir={git_dir}", "for-each-ref", "--count=1", "--format=%(refname)", prefix), env)
    except GitReadError:
        return ""
    return found.decode(errors="replace").strip()


class BlobReader:
    """Reads blobs through one `git cat-file --batch` for each repository. It is for one thread, in a `with`."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = quiet_env(env) | OFFLINE
        self._readers: dict[Path, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._readers.values():
            process.kill()
            # Closing the pipe may flush data that a dead git never read.
            with contextlib.suppress(BrokenPipeError), process:
                pass

    def read(self, git_dir: Path, oid: str) -> bytes | None:
        """Return a blob's content; None if it is missing or its hash is wrong. Raises `UnableError` without git."""
        process = self._readers.get(git_dir)
        if process is None:
            command = ("git", f"--git-dir={git_dir}", "cat-file", "--batch")
            pipe = subprocess.PIPE
            try:
                process = subprocess.Popen(command, env=self._env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
            except FileNotFoundError as error:
                raise no_git() from error
            self._readers[git_dir] = process
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
