"""A user's own tree: nothing that its repository names is run, and it is read as plain git reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from git_trees import Repo, git_cache, served

from cannery.errors import CanneryError, NetworkError, UsageError
from cannery.sources.io.export import gather, read_blob
from cannery.sources.io.git import BlobReader
from cannery.sources.io.work_tree import OwnTree, local_tree
from cannery.sources.plan import SourceRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = {"a": "text\n", "b/c": "more\n", ".gitattributes": "* filter=x diff=x merge=x\n"}
HOOKS = ("post-index-change", "fsmonitor-watchman", "post-checkout", "reference-transaction", "pre-auto-gc")
LAZY = {
    "protocol.ext.allow": "always",
    "remote.origin.promisor": "true",
    "remote.origin.partialclonefilter": "blob:none",
    "extensions.partialclone": "origin",
}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "work")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a mark beside it, and works as a filter."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    path.chmod(0o755)
    return path


def taken(repo: Repo, folder: Path | None = None) -> OwnTree:
    return local_tree("verl", folder or repo.path, (), repo.env)


def contents(tree: OwnTree) -> dict[str, bytes]:
    return {path: tree.read(path) for path in tree.entries}


def _configured(*names: str) -> Callable[[Repo, Path], None]:
    def setup(repo: Repo, program: Path) -> None:
        for name in names:
            repo.git("config", name, str(program))

    return setup


def _required(repo: Repo, program: Path) -> None:
    repo.git("config", "filter.x.process", str(program))
    repo.git("config", "filter.x.required", "true")


def _hooks_elsewhere(repo: Repo, program: Path) -> None:
    hooks = program.parent / "hooks"
    hooks.mkdir()
    for name in HOOKS:
        shutil.copy(program, hooks / name)
    repo.git("config", "core.hooksPath", str(hooks))


def _hooks(repo: Repo, program: Path) -> None:
    for name in HOOKS:
        (repo.path / ".git/hooks").mkdir(exist_ok=True)
        shutil.copy(program, repo.path / ".git/hooks" / name)


def _included(name: str) -> Callable[[Repo, Path], None]:
    def setup(repo: Repo, program: Path) -> None:
        (repo.path / ".git/more").write_text(f'[filter "x"]\n\tclean = {program}\n\tsmudge = {program}\n')
        repo.git("config", name, str(repo.path / ".git/more"))

    return setup


def _of_the_user(repo: Repo, program: Path) -> None:
    """The user's own filter is a program by a path in the tree."""
    shutil.copy(program, repo.path / ".git/mine")
    settings = repo.path.parent / "settings"
    settings.write_text('[filter "x"]\n\tclean = .git/mine\n')
    repo.env["GIT_CONFIG_GLOBAL"] = str(settings)


def _of_a_work_tree(repo: Repo, program: Path) -> None:
    repo.git("config", "extensions.worktreeConfig", "true")
    repo.git("config", "--worktree", "filter.x.clean", str(program))


def _lazy(repo: Repo, program: Path) -> None:
    """An object is missing, and the remote that would give it is a program."""
    for name, value in {**LAZY, "remote.origin.url": f"ext::{program}"}.items():
        repo.git("config", name, value)
    oid = repo.git("rev-parse", "HEAD:a")
    (repo.path / ".git/objects" / oid[:2] / oid[2:]).unlink()


def _alternate(repo: Repo, program: Path) -> None:
    """The objects are those of a repository outside the tree, which names programs too."""
    outside = repo.path.parent / "outside"
    shutil.copytree(repo.path, outside)
    for name in ("filter.x.clean", "core.fsmonitor", "core.alternateRefsCommand"):
        repo.git("-C", str(outside), "config", name, str(program))
        repo.git("config", name, str(program))
    shutil.rmtree(repo.path / ".git/objects")
    (repo.path / ".git/objects/info").mkdir(parents=True)
    (repo.path / ".git/objects/info/alternates").write_text("../../../outside/.git/objects\n")


PROGRAMS = {
    "clean": _configured("filter.x.clean"),
    "process": _required,
    "textconv": _configured("diff.x.textconv", "diff.x.command", "diff.external", "filter.x.clean"),
    "monitor": _configured("core.fsmonitor", "filter.x.clean"),
    "hooks": _hooks,
    "hooks elsewhere": _hooks_elsewhere,
    "include": _included("include.path"),
    "include if": _included("includeIf.gitdir:/**.path"),
    "of the user": _of_the_user,
    "of a work tree": _of_a_work_tree,
    "lazy": _lazy,
    "alternate": _alternate,
    "others": _configured(
        "core.pager", "core.sshCommand", "core.askPass", "core.editor", "alias.status", "gpg.program"
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_of_a_tree_is_run(repo: Repo, program: Path, tmp_path: Path, name: str) -> None:
    commit = repo.commit(FILES)
    PROGRAMS[name](repo, program)
    for path in FILES:
        os.utime(repo.path / path, (1, 1))  # not changed, but git has to look
    found = taken(repo)
    assert (found.commit, found.dirty, found.missing) == (commit, False, [])
    assert contents(found) == {path: text.encode() for path, text in FILES.items()}
    repo.write({"a": "TEXT\n"})
    found = taken(repo)
    assert (found.commit, found.dirty, contents(found)["a"]) == (commit, True, b"TEXT\n")
    assert not (tmp_path / "ran").exists()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["index", "HEAD", "packed-refs"])
def test_a_pipe_in_a_repository_is_not_waited_for(repo: Repo, name: str) -> None:
    repo.commit(FILES)
    place = repo.path / ".git" / name
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    with pytest.raises(CanneryError) as caught:
        taken(repo)
    assert f".git/{name} is a pipe" in str(caught.value)


def test_no_program_of_a_submodule_is_run(repo: Repo, program: Path, tmp_path: Path) -> None:
    sub = Repo(tmp_path / "sub")
    inner = sub.commit(FILES)
    commit = repo.gitlink("there", inner)
    repo.git("clone", "--quiet", str(sub.path), str(repo.path / "there"))
    repo.git("-C", str(repo.path / "there"), "config", "filter.x.clean", str(program))
    os.utime(repo.path / "there/a", (1, 1))
    found = taken(repo)
    assert (found.commit, found.dirty, set(found.entries)) == (commit, False, {f"there/{name}" for name in FILES})
    assert not (tmp_path / "ran").exists()


def test_no_program_of_a_mirror_is_run(repo: Repo, program: Path, tmp_path: Path) -> None:
    commit = repo.commit(FILES)
    bare = served(repo, tmp_path / "mirror", "owner/name.git")
    pack = next(bare.glob("objects/pack/*.pack"), None)
    assert pack is not None
    pack.rename(tmp_path / "pack")
    shutil.rmtree(bare / "objects/pack")
    repo.git(f"--git-dir={bare}", "unpack-objects", "-q", stdin=(tmp_path / "pack").read_bytes())
    oid = repo.git("rev-parse", "HEAD:a")
    (bare / "objects" / oid[:2] / oid[2:]).unlink()
    programs = ("core.fsmonitor", "core.alternateRefsCommand", "core.sshCommand", "filter.x.clean", "diff.x.textconv")
    lazy = {**LAZY, "remote.origin.url": f"ext::{program}"}
    for key, value in {**dict.fromkeys(programs, str(program)), **lazy}.items():
        repo.git(f"--git-dir={bare}", "config", key, value)
    _hooks_elsewhere(repo, program)
    cache, _ = git_cache(tmp_path / "cache", {}, mirror=tmp_path / "mirror")
    hosts = {"here": "owner/name"}
    found = cache.obtain("verl", commit, hosts)
    tree = gather(SourceRequest("verl", commit, hosts=hosts, epoch=1), found, cache.obtain, repo.env)
    with BlobReader(repo.env) as reader:
        assert read_blob(tree, "b/c", reader) == b"more\n"
        with pytest.raises(NetworkError):
            read_blob(tree, "a", reader)
    assert not (tmp_path / "ran").exists()


def _changed(repo: Repo) -> None:
    repo.write({"a": "other\n"})


def _untracked(repo: Repo) -> None:
    repo.write({"new/one": "1", "two words\n": "2"})


def _ignored(repo: Repo) -> None:
    repo.write({".gitignore": "*.log\n"})
    repo.commit()
    (repo.path / ".git/info/exclude").write_text("*.tmp\n")
    (repo.path.parent / "ignore").write_text("*.bak\n")
    repo.git("config", "core.excludesFile", str(repo.path.parent / "ignore"))
    repo.write({"x.log": "1", "x.tmp": "1", "x.bak": "1"})


def _staged(repo: Repo) -> None:
    repo.write({"a": "other\n"})
    repo.git("add", "a")


def _deleted(repo: Repo) -> None:
    (repo.path / "a").unlink()


def _executable(repo: Repo) -> None:
    (repo.path / "a").chmod(0o755)


def _executable_unseen(repo: Repo) -> None:
    repo.git("config", "core.fileMode", "false")
    (repo.path / "a").chmod(0o755)


def _crlf(repo: Repo) -> None:
    repo.git("config", "core.autocrlf", "true")
    repo.write({"a": "text\r\n"})


def _crlf_of_the_user(repo: Repo) -> None:
    (repo.path.parent / "settings").write_text("[core]\n\tautocrlf\n")
    repo.env["GIT_CONFIG_GLOBAL"] = str(repo.path.parent / "settings")
    repo.write({"a": "text\r\n"})


def _eol(repo: Repo) -> None:
    repo.commit({".gitattributes": "a text eol=crlf\n"})
    repo.write({"a": "text\r\n"})


def _encoding(repo: Repo) -> None:
    (repo.path / ".git/info/attributes").write_text("a text working-tree-encoding=UTF-16LE\n")
    repo.write({"a": "text\n".encode("utf-16le")})


def _packed(repo: Repo) -> None:
    repo.git("pack-refs", "--all")
    repo.git("gc", "--quiet")


def _detached(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "--detach")


def _ref_to_a_ref(repo: Repo) -> None:
    repo.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    repo.git("symbolic-ref", "HEAD", "refs/heads/alias")


def _split(repo: Repo) -> None:
    repo.git("update-index", "--split-index")
    repo.write({"b/c": "other\n"})
    repo.git("add", "b/c")


def _sparse(repo: Repo) -> None:
    repo.git("sparse-checkout", "set", "--sparse-index", "b")


def _submodule_away(repo: Repo) -> None:
    repo.gitlink("sub", repo.git("rev-parse", "HEAD"))
    (repo.path / "sub").mkdir()


def _unborn(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "--orphan", "other")


def _monitored(repo: Repo) -> None:
    repo.git("update-index", "--untracked-cache")
    repo.git("status")
    repo.write({"late": "x"})


def _as_young_as_the_index(repo: Repo) -> None:
    """Git tells such a change by the content alone: size and time are as the index has them."""
    repo.git("config", "core.trustctime", "false")
    os.utime(repo.path / "a", (1000, 1000))
    repo.git("update-index", "--refresh")
    repo.write({"a": "TEXT\n"})
    for name in ("a", ".git/index"):
        os.utime(repo.path / name, (1000, 1000))


STATES = (
    *(_changed, _untracked, _ignored, _staged, _deleted, _executable, _executable_unseen, _crlf, _crlf_of_the_user),
    *(_eol, _encoding, _packed, _detached, _ref_to_a_ref, _split, _sparse, _submodule_away, _unborn, _monitored),
    _as_young_as_the_index,
)


# What differs from the commit's bytes and modes, though git's settings excuse it.
EXCUSED = (_executable_unseen, _crlf, _crlf_of_the_user, _eol, _encoding)


@pytest.fixture(params=["sha1", "sha256"])
def of_any_hash(tmp_path: Path, request: pytest.FixtureRequest) -> Repo:
    repo = Repo(tmp_path / 'odd "name"\\ #')
    shutil.rmtree(repo.path / ".git")
    repo.git("init", "--quiet", "--initial-branch=main", f"--object-format={request.param}")
    return repo


@pytest.mark.parametrize("state", [lambda _: None, *STATES])
def test_answers_are_those_of_plain_git(of_any_hash: Repo, state: Callable[[Repo], None]) -> None:
    repo = of_any_hash
    repo.commit({"a": "text\n", "b/c": "more\n"})
    state(repo)
    found = taken(repo)
    head = ("git", "-C", repo.path, "rev-parse", "--verify", "--quiet", "HEAD")
    commit = subprocess.run(head, env=repo.env, capture_output=True, text=True, check=False).stdout.strip()
    env = {"GIT_OPTIONAL_LOCKS": "0"}
    repo.env |= env
    assert (found.commit or "") == commit
    assert found.dirty == (bool(repo.git("status", "--porcelain")) or state in EXCUSED)
    listed = repo.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    on_disk = {name for name in listed if name and (repo.path / name).is_file()}
    assert contents(found) == {name: (repo.path / name).read_bytes() for name in on_disk}


def test_a_linked_work_tree_has_its_own_head_and_index(repo: Repo, tmp_path: Path) -> None:
    first = repo.commit({"a": "x"})
    linked = tmp_path / "linked"
    repo.git("worktree", "add", "--quiet", "-b", "side", str(linked))
    second = repo.commit({"a": "y"})
    (linked / "new").write_text("x")
    repo.git("-C", str(linked), "add", "new")
    assert (taken(repo).commit, taken(repo).dirty) == (second, False)
    assert (taken(repo, linked).commit, taken(repo, linked).dirty) == (first, True)
    repo.git("pack-refs", "--all")
    assert taken(repo, linked).commit == first


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("HEAD", "ref: ../../secret", "not a git repository"),
        ("HEAD", "nothing", "not a git repository"),
        ("HEAD", "f" * 40, "not a tree object"),
        ("config", "[core", "bad config"),
        ("config", "[core]\nrepositoryformatversion = 9", "version"),
        ("config", "[core]\nrepositoryformatversion = 1\n[extensions]\nnew = 1", "new"),
        ("config", '[extensions]\nobjectFormat = "x]\\n[filter"', "bad config"),
        ("index", "nothing", "index"),
    ],
)
def test_a_repository_that_cannot_be_read_says_why(repo: Repo, name: str, text: str, reason: str) -> None:
    repo.commit({"a": "x"})
    (repo.path / ".git" / name).write_text(text)
    with pytest.raises(UsageError) as caught:
        taken(repo)
    assert reason in str(caught.value)
    assert caught.value.where == str(repo.path)


def test_nothing_is_left_beside_a_tree_or_in_it(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.commit({"a": "x"})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = {path: path.lstat().st_mtime_ns for path in repo.path.rglob("*")}
    taken(repo)
    assert {path: path.lstat().st_mtime_ns for path in repo.path.rglob("*")} == before
    assert list(scratch.iterdir()) == []
