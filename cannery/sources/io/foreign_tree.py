"""A git work tree that others may have written: git reads it without its configuration.

A repository's configuration names programs that git starts (`filter.*`, `core.fsmonitor`, textconv, hooks), so git is
never run with it. It gets a bare repository of our own: the same HEAD, a copy of the index, and the tree's objects as
an alternate. Of the configuration only values are taken that say how files are compared, and none of them is a program.
Alternates of the tree are followed wherever they lead: git takes objects from there, which it knows by their hashes,
and reads no configuration there.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.sources.io.git import GitReadError, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# How files are compared, and what is ignored: everything else of a configuration is left out.
TAKEN = frozenset(
    {
        "core.attributesfile",
        "core.autocrlf",
        "core.checkstat",
        "core.eol",
        "core.excludesfile",
        "core.filemode",
        "core.ignorecase",
        "core.precomposeunicode",
        "core.sparsecheckout",
        "core.sparsecheckoutcone",
        "core.symlinks",
        "core.trustctime",
    }
)
# Extensions that our own repository has no use for: it fetches nothing and has one work tree.
UNUSED = frozenset({"extensions.partialclone", "extensions.worktreeconfig"})
VERSION = "core.repositoryformatversion"
REF_STORAGE = "extensions.refstorage"
# No program of the user's configuration runs in the tree either.
WITHOUT_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
OWN = """\
	bare = true
	untrackedCache = false
[submodule]
	recurse = false
[protocol]
	allow = never
"""
HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
PLAIN = re.compile(r"[A-Za-z0-9._-]+")
REF = "ref:"
UNBORN = "ref: refs/heads/unborn"
# References that may lead to each other; git follows as many.
DEEPEST = 5


@dataclass(frozen=True)
class ForeignTree:
    """A work tree, our own repository for it, and what every call of git with them is given."""

    folder: Path
    git_dir: Path
    settings: tuple[str, ...]
    env: Mapping[str, str]

    def read(self, *arguments: str) -> bytes:
        """Return the output of `git ARGUMENTS` at the root of the tree. Raises `GitReadError` and `UnableError`."""
        place = ("-C", self.folder, f"--git-dir={self.git_dir}", f"--work-tree={self.folder}")
        return read((*place, *self.settings, *arguments), self.env)


@dataclass(frozen=True)
class _Repository:
    """Where a work tree's repository is: its own part (HEAD, index), and the part that linked work trees share."""

    own: Path
    common: Path


@contextmanager
def opened(folder: Path, env: Mapping[str, str]) -> Iterator[ForeignTree]:
    """Give the work tree with the root `folder`, which has a `.git`, while the block runs.

    Raises `GitReadError` for a repository that cannot be read, `UnableError` when there is no git.
    """
    with tempfile.TemporaryDirectory(prefix="cannery-git-") as scratch:
        try:
            tree = _prepared(folder.absolute(), Path(scratch), env)
        except OSError as error:
            raise _fatal(f"{error.strerror or error}: {error.filename}") from error
        yield tree


def tree_root(folder: Path) -> Path:
    """Return the root of the work tree that `folder` is in. Raises `GitReadError` when it is in none."""
    if not folder.is_dir():
        raise _fatal(f"cannot change to '{folder}': No such file or directory")
    start = folder.resolve()
    found = next((place for place in (start, *start.parents) if (place / ".git").exists()), None)
    if found is None:
        raise _fatal("not a git repository (or any of the parent directories): .git")
    return found


def _prepared(folder: Path, git_dir: Path, env: Mapping[str, str]) -> ForeignTree:
    """Make our own repository for a work tree in the empty folder `git_dir`."""
    repository = _found(folder)
    (git_dir / "objects/info").mkdir(parents=True)
    (git_dir / "refs").mkdir()
    (git_dir / "info").mkdir()
    (git_dir / "objects/info/alternates").write_bytes(_alternate(repository.common / "objects"))
    head = _commit(repository, "HEAD")
    (git_dir / "HEAD").write_text(f"{head or UNBORN}\n")
    (git_dir / "config").write_text(f"[core]\n\trepositoryformatversion = 0\n{OWN}")
    settings = _settings(repository, git_dir, env)
    extensions = "".join(
        f"[extensions]\n\t{name.partition('.')[2]} = {_plain(name, value)}\n"
        for name, value in settings.items()
        if name.startswith("extensions.") and name not in UNUSED
    )
    version = _plain(VERSION, settings.get(VERSION, "0"))
    (git_dir / "config").write_text(f"[core]\n\trepositoryformatversion = {version}\n{OWN}{extensions}")
    for source in (repository.own / "index", *repository.own.glob("sharedindex.*")):
        _copy(source, git_dir / source.name)
    _copy(repository.own / "info/sparse-checkout", git_dir / "info/sparse-checkout")
    for name in ("info/exclude", "info/attributes"):
        _copy(repository.common / name, git_dir / name)
    taken = tuple(
        word
        for name, value in settings.items()
        if name in TAKEN
        for word in ("-c", name if value is None else f"{name}={value}")
    )
    kept = {name: value for name, value in env.items() if not name.startswith("GIT_CONFIG")}
    kept.pop("GIT_EXTERNAL_DIFF", None)
    return ForeignTree(folder, git_dir, taken, kept | WITHOUT_CONFIG)


def _found(folder: Path) -> _Repository:
    """Find the repository of a work tree: `.git` is its folder, or a file that names it."""
    own = folder / ".git"
    if own.is_file():
        named = os.fsdecode(own.read_bytes()).rstrip("\r\n")
        if not named.startswith("gitdir: "):
            raise _fatal(f"invalid gitfile format: {own}")
        own = folder / named.removeprefix("gitdir: ")
    common = own
    if (own / "commondir").is_file():
        common = own / os.fsdecode((own / "commondir").read_bytes()).rstrip("\r\n")
    is_one = (own / "HEAD").is_file() or (own / "HEAD").is_symlink()
    if not (is_one and (common / "objects").is_dir() and (common / "refs").is_dir()):
        raise _fatal(f"not a git repository: {own}")
    return _Repository(own, common)


def _commit(repository: _Repository, name: str, depth: int = 0) -> str | None:
    """Return the hash that a reference leads to, None where it is not born yet."""
    if depth > DEEPEST:
        raise _fatal(f"references lead to each other: {name}")
    places = (repository.own / name, repository.common / name)
    path = next((place for place in places if place.is_file() or place.is_symlink()), None)
    if path is None:
        return _packed(repository, name)
    # The oldest form of a reference to another one.
    target = f"{REF} {path.readlink()}" if path.is_symlink() else os.fsdecode(path.read_bytes()).strip()
    if HASH.fullmatch(target):
        return target
    led = target.removeprefix(REF).strip()
    if not target.startswith(REF) or not led.startswith("refs/") or ".." in led:
        raise _fatal(f"bad reference: {path}")
    return _commit(repository, led, depth + 1)


def _packed(repository: _Repository, name: str) -> str | None:
    packed = repository.common / "packed-refs"
    if not packed.is_file():
        return None
    wanted = os.fsencode(name)
    lines = (line.partition(b" ") for line in packed.read_bytes().splitlines())
    found = next((os.fsdecode(value) for value, _, ref in lines if ref == wanted), None)
    if found is not None and not HASH.fullmatch(found):
        raise _fatal(f"bad reference: {name} in {packed}")
    return found


def _settings(repository: _Repository, git_dir: Path, env: Mapping[str, str]) -> dict[str, str | None]:
    """Return {name: value} of the user's configuration and, over it, the tree's; a name alone has the value None.

    Only `git config` sees the tree's own, as a text: it follows no include there and starts no program.
    """
    listed = read((f"--git-dir={git_dir}", "config", "--list", "-z"), env)
    found = {name: value for name, value in _entries(listed) if name in TAKEN}
    for path in (repository.common / "config", repository.own / "config.worktree"):
        if path.is_file() and (path.name == "config" or "extensions.worktreeconfig" in found):
            place = (f"--git-dir={git_dir}", "config", "--file", path.absolute(), "--no-includes")
            found |= _entries(read((*place, "--list", "-z"), env))
    storage = found.get(REF_STORAGE, "files")
    if storage != "files":
        raise _fatal(f"its references are kept as {storage!r}, which Cannery cannot read (git refs migrate)")
    return found


def _entries(listed: bytes) -> Iterator[tuple[str, str | None]]:
    for entry in listed.split(b"\0")[:-1]:
        name, is_set, value = entry.partition(b"\n")
        yield os.fsdecode(name), os.fsdecode(value) if is_set else None


def _plain(name: str, value: str | None) -> str:
    if value is None or not PLAIN.fullmatch(value):
        raise _fatal(f"bad value of {name}: {value!r}")
    return value


def _alternate(objects: Path) -> bytes:
    """Return the line of info/alternates for a folder, whatever its name has in it."""
    name = os.fsencode(objects.absolute())
    for plain, quoted in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n")):
        name = name.replace(plain, quoted)
    return b'"' + name + b'"\n'


def _copy(source: Path, target: Path) -> None:
    """Copy a file with its time, if there is one: git compares files that are as young as the index by content."""
    if not source.is_file():
        return
    with source.open("rb") as file:
        before = os.fstat(file.fileno())
        target.write_bytes(file.read())
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))


def _fatal(reason: str) -> GitReadError:
    """Return an error in git's own form."""
    line = f"fatal: {reason}"
    return GitReadError(line, (line,))
