"""fetch_sources from end to end: commits from hosts and mirrors, local trees, what stays between runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_trees import EPOCH, Repo, closed_port, file_host, git_env, hosts, served, silent

from cannery.errors import FindingsError, NetworkError, UnableError, UsageError
from cannery.sources.io.fetch import KEPT, SourceStore, fetch_sources
from cannery.sources.plan import Missing, SourceRequest, SourceSubmodule, Why
from cannery.util.io.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.sources.io.fetch import SourceFile

NAME = {"here": "owner/name"}
ABSENT = "0123456789" * 4


class Place:
    """A host's folder, a mirror's, a cache, and calls of `fetch_sources` with them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = git_env(root)
        self.hosts = {"here": file_host(root / "host")}
        self.mirror: Path | None = None
        self.lines: list[str] = []

    def __call__(self, *requests: SourceRequest) -> tuple[SourceFile, ...]:
        self.lines.clear()
        store = SourceStore(self.root / "cache", self.env, self.lines.append, self.hosts, self.mirror, {})
        return fetch_sources(requests, store)

    def local(self, folder: Path, **more: object) -> SourceFile:
        (found,) = self(replace(request(None, local=folder), **more))  # type: ignore[arg-type]  # each test names its own
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "work")


def request(commit: str | None, name: str = "verl", **more: object) -> SourceRequest:
    values: dict[str, object] = {"hosts": NAME, "epoch": EPOCH, **more}
    return SourceRequest(name, commit, **values)  # type: ignore[arg-type]  # each test names its own


def names(found: SourceFile) -> set[str]:
    with tarfile.open(found.tar, errors="surrogateescape") as archive:
        return {member.name for member in archive if not member.isdir()}


def text(found: SourceFile, name: str) -> bytes:
    with tarfile.open(found.tar) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


def test_a_commit_becomes_a_tar_that_a_later_run_takes_without_git(place: Place, repo: Repo, tmp_path: Path) -> None:
    commit = repo.commit({"a": "x", "big.bin": "version https://git-lfs.github.com/spec/v1\n"})
    served(repo, tmp_path / "host", "owner/name.git")
    (first,) = place(request(commit))
    assert (first.name, first.commit, first.repository, first.dirty) == ("verl", commit, "here/owner/name", False)
    assert first.missing == (Missing("big.bin", Why.LFS),)
    assert first.tar.parent == tmp_path / "cache/sources"
    assert first.sha256 == sha256_file(first.tar)
    assert names(first) == {"a", "big.bin"}
    assert place.lines == [f"verl: fetching owner/name {commit[:12]} from here"]
    shutil.rmtree(tmp_path / "host")
    shutil.rmtree(tmp_path / "cache/git")
    place.env["PATH"] = str(tmp_path)
    (again,) = place(request(commit))
    assert again == first
    assert place.lines == []


def test_other_paths_epochs_and_submodules_are_other_tars(place: Place, repo: Repo, tmp_path: Path) -> None:
    sub = Repo(tmp_path / "sub")
    inner = sub.commit({"s": "x"})
    repo.commit({"a": "x", "b/c": "x"})
    commit = repo.gitlink("sub", inner)
    served(repo, tmp_path / "host", "owner/name.git")
    served(sub, tmp_path / "host", "owner/sub.git")
    base = request(commit)
    filled = {"sub": SourceSubmodule({"here": "owner/sub"}, inner)}
    found = place(base, replace(base, paths=("b",)), replace(base, epoch=1), replace(base, submodules=filled))
    assert [sorted(names(one)) for one in found] == [["a", "b/c"], ["b/c"], ["a", "b/c"], ["a", "b/c", "sub/s"]]
    assert len({one.tar for one in found}) == 4
    assert found[0].tree == found[2].tree


def test_results_come_in_the_order_of_the_requests(place: Place, repo: Repo, tmp_path: Path) -> None:
    commits = [repo.commit({"a": str(i)}) for i in range(7)]
    served(repo, tmp_path / "host", "owner/name.git")
    found = place(*(request(commit, f"c{i}") for i, commit in enumerate(commits)))
    assert [(one.name, one.commit) for one in found] == [(f"c{i}", commit) for i, commit in enumerate(commits)]
    assert [text(one, "a") for one in found] == [str(i).encode() for i in range(7)]


@pytest.mark.parametrize("damage", ["tar", "note", "part"])
def test_a_damaged_tar_is_written_anew(place: Place, repo: Repo, tmp_path: Path, damage: str) -> None:
    commit = repo.commit({"a": "x"})
    served(repo, tmp_path / "host", "owner/name.git")
    (first,) = place(request(commit))
    if damage == "tar":
        data = bytearray(first.tar.read_bytes())
        data[600] ^= 1
        first.tar.write_bytes(data)
    elif damage == "note":
        first.tar.with_suffix(".json").write_text('{"sha256":')
    else:
        first.tar.rename(first.tar.with_name(f"{first.tar.name}.part"))
    (again,) = place(request(commit))
    assert (again.sha256, sha256_file(again.tar)) == (first.sha256, first.sha256)
    assert sorted(path.suffix for path in (tmp_path / "cache/sources").iterdir() if path.is_file()) == [".json", ".tar"]


def test_whatever_a_lost_power_cuts_off_in_the_git_cache_is_fetched_again(
    place: Place, repo: Repo, tmp_path: Path
) -> None:
    other = repo.commit({"a": "other"})
    commit = repo.commit({"a": "x" * 99, "folder/b": "y" * 99})
    served(repo, tmp_path / "host", "owner/name.git")
    (first,) = place(request(commit))
    place(request(other))
    cache, whole = tmp_path / "cache", tmp_path / "whole"
    shutil.copytree(cache, whole)
    objects = [repo.git("rev-parse", f"{commit}{path}") for path in ("", "^{tree}", ":folder", ":a")]
    ref = "refs/cannery/here"
    for number, name in enumerate((*(f"objects/{oid[:2]}/{oid[2:]}" for oid in objects), ref, "shallow", "HEAD")):
        shutil.rmtree(cache)
        shutil.copytree(whole, cache)
        for tar in (cache / "sources").glob("*.tar"):
            tar.unlink()
        path = cache / f"git/owner/name/{commit}.git" / name
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[: len(data) // 2 if number % 2 else 0])
        assert place(request(commit))[0].sha256 == first.sha256, name


def test_a_mirror_without_the_content_of_a_wanted_file_is_exit_7(place: Place, repo: Repo, tmp_path: Path) -> None:
    commit = repo.commit({"a": "x", "b": "y"})
    served(repo, tmp_path / "host", "owner/name.git")
    mirror = repo.path.rename(tmp_path / "mirror-repo")
    place.mirror = tmp_path / "mirror"
    (place.mirror / "owner").mkdir(parents=True)
    (mirror / ".git").rename(place.mirror / "owner/name.git")
    command = ("git", f"--git-dir={place.mirror}/owner/name.git", "rev-parse", f"{commit}:b")
    oid = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    (place.mirror / "owner/name.git/objects" / oid[:2] / oid[2:]).unlink()
    with pytest.raises(NetworkError) as caught:
        place(request(commit))
    assert caught.value.what == f"verl: the repository is missing a part of {commit}: b is not in it, or is damaged"
    assert "as `paths` in images/components/verl.yaml" in (caught.value.hint or "")
    (other,) = place(request(commit, paths=("a",)))  # what is lacking elsewhere does not matter
    assert (other.missing, names(other)) == ((), {"a"})
    place.mirror = None
    (whole,) = place(request(commit))
    assert (whole.missing, names(whole), whole.repository) == ((), {"a", "b"}, "here/owner/name")


def test_nothing_behind_a_symlinked_folder_is_of_the_tree(place: Place, repo: Repo, tmp_path: Path) -> None:
    repo.commit({"a": "x", "d/f": "y", "deep/er/g": "z", ".gitignore": "d\ndeep\n"})
    for name in ("d", "deep"):
        shutil.move(repo.path / name, tmp_path / f"outside-{name}")
        (repo.path / name).symlink_to(tmp_path / f"outside-{name}")
    (tmp_path / "outside-d/f").write_text("secret")
    found = place.local(repo.path)
    assert names(found) == {"a", ".gitignore"}
    assert {str(one.path) for one in found.missing} == {"d/f", "deep/er/g"}


def test_a_note_that_nests_too_deep_is_made_anew(place: Place, repo: Repo, tmp_path: Path) -> None:
    commit = repo.commit({"a": "x"})
    served(repo, tmp_path / "host", "owner/name.git")
    (first,) = place(request(commit))
    first.tar.with_suffix(".json").write_text("[" * 200_000)
    (second,) = place(request(commit))
    assert second.sha256 == first.sha256


@pytest.mark.parametrize("is_mirror", [False, True])
def test_where_no_repository_can_be_had_the_release_that_may_take_its_place_is_offered(
    place: Place, repo: Repo, tmp_path: Path, *, is_mirror: bool
) -> None:
    served(repo, tmp_path / "mirror", "owner/name.git")
    place.mirror = tmp_path / "mirror" if is_mirror else None
    wanted = request(ABSENT, "one")
    with pytest.raises(NetworkError) as caught:
        place(wanted)
    assert caught.value.hint
    assert "SOURCES" not in caught.value.hint
    with pytest.raises(NetworkError) as other:
        place(replace(wanted, release="0.13.0"))
    way = "SOURCES=release:one uses release 0.13.0 of the package index instead"
    assert other.value.hint == f"{caught.value.hint}; {way}"


def test_everything_that_a_mirror_is_missing_is_reported_at_once(place: Place, repo: Repo, tmp_path: Path) -> None:
    commit = repo.commit({"a": "x"})
    served(repo, tmp_path / "mirror", "owner/name.git")
    served(repo, tmp_path / "host", "owner/name.git")
    (there,) = place(request(commit, "there"))
    place.mirror = tmp_path / "mirror"
    wanted = [request(ABSENT, "one"), request(commit, "there"), request(ABSENT, "two"), request(commit, "three")]
    with pytest.raises(NetworkError) as caught:
        place(*wanted)
    told = [line for line in str(caught.value).splitlines() if ABSENT in line]
    assert [line.partition(": ")[2].partition(":")[0] for line in told] == ["one", "two"]
    shutil.rmtree(tmp_path / "mirror/owner")
    with pytest.raises(NetworkError, match="there: commit"):
        place(request(commit, "there"))
    assert there.tar.exists()
    place.mirror = tmp_path / "nowhere"
    with pytest.raises(UsageError, match=r"GIT_MIRROR: '.*/nowhere' is not a folder"):
        place(request(commit))


def test_the_first_failure_stops_the_rest(place: Place, tmp_path: Path) -> None:
    with silent() as url:
        place.hosts = hosts(mute=f"{url}/{{repository}}", down=f"{closed_port()}/{{repository}}")
        slow = [request(ABSENT, f"slow{i}", hosts={"mute": "owner/name"}) for i in range(3)]
        began = time.monotonic()
        with pytest.raises(NetworkError, match=r"^broken: commit \d+ cannot be fetched from down \(owner/other\)"):
            place(*slow, request(ABSENT, "broken", hosts={"down": "owner/other"}))
    assert time.monotonic() - began < 8
    assert list((tmp_path / "cache/sources").glob("*.tar*")) == []


def test_a_fault_of_a_tree_is_reported_before_one_of_the_network(place: Place, repo: Repo, tmp_path: Path) -> None:
    (repo.path / "out").symlink_to("/etc/passwd")
    commit = repo.commit()
    served(repo, tmp_path / "mirror", "owner/name.git")
    place.mirror = tmp_path / "mirror"
    with pytest.raises(FindingsError, match="bad: the symlink 'out' leads out of the tree, to '/etc/passwd'"):
        place(request(ABSENT, "one"), request(commit, "bad"))
    assert [path for path in (tmp_path / "cache/sources").iterdir() if path.is_file()] == []


def test_ctrl_c_ends_at_once_and_leaves_no_child(tmp_path: Path, root: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from cannery.catalog.catalog import Host\nfrom cannery.sources.plan import SourceRequest\n"
        "from cannery.sources.io.fetch import fetch_sources\nfrom cannery.sources.io.fetch import SourceStore\n"
        f"wanted = SourceRequest('verl', {ABSENT!r}, {{'mute': 'owner/name'}}, 1)\n"
        "store = SourceStore(Path(sys.argv[2]), dict(os.environ), lambda text: print(text, flush=True),\n"
        "                    {'mute': Host(url=sys.argv[1])}, None, {})\n"
        "fetch_sources([wanted], store)\n"
    )
    env = git_env(tmp_path) | {"PYTHONPATH": str(root)}
    with silent() as url:
        command = (sys.executable, "-c", script, f"{url}/{{repository}}", str(tmp_path / "cache"))
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert "from mute" in process.stdout.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, errors = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert time.monotonic() - began < 5
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if _says(p, url)]
    assert left == []


def _says(cmdline: Path, url: str) -> bool:
    try:
        return url.encode() in cmdline.read_bytes()
    except OSError:
        return False


def test_a_local_work_tree_gives_what_git_tracks_or_does_not_ignore(place: Place, repo: Repo, tmp_path: Path) -> None:
    commit = repo.commit({"a": "old", "gone": "x", "sub/b": "x", ".gitignore": "*.log\nbuild/\n", "kept.log": "x"})
    clean = place.local(repo.path)
    assert (clean.commit, clean.repository, clean.dirty, clean.missing) == (commit, "local", False, ())
    (repo.path / "gone").unlink()
    repo.write({"a": "new", "new file": "x", "other.log": "x", "build/x": "x"})
    (repo.path / "link").symlink_to("sub/b")
    os.mkfifo(repo.path / "pipe")
    found = place.local(repo.path)
    assert (found.commit, found.dirty, found.missing) == (commit, True, (Missing("gone", Why.ABSENT),))
    assert names(found) == {"a", "sub/b", ".gitignore", "kept.log", "new file", "link"}
    assert text(found, "a") == b"new"
    assert not (repo.path / ".git/index.lock").exists()
    assert place.lines == []
    assert not (tmp_path / "cache/git").exists()


def test_a_clean_local_tree_is_the_commits_own_tar(place: Place, repo: Repo, tmp_path: Path) -> None:
    repo.write({"a": "x", "b/run.sh": "x"})
    (repo.path / "b/run.sh").chmod(0o775)
    (repo.path / "b/link").symlink_to("../a")
    commit = repo.commit()
    (repo.path / "a").chmod(0o600)
    served(repo, tmp_path / "host", "owner/name.git")
    (theirs,) = place(request(commit))
    mine = place.local(repo.path)
    assert (mine.sha256, mine.tree) == (theirs.sha256, theirs.tree)


def test_a_local_tree_is_read_through_another_owner_and_without_writing(place: Place, repo: Repo) -> None:
    """`dubious ownership` is for programs that a repository may start; here it is only read."""
    commit = repo.commit({"a": "x"})
    (repo.path / ".git/index").touch()  # a plain `git status` would now write the index
    before = (repo.path / ".git/index").stat().st_mtime_ns
    place.env["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    command = ("git", "-C", repo.path, "status")
    plain = subprocess.run(command, env=place.env, capture_output=True, text=True, check=False)
    assert "dubious ownership" in plain.stderr
    assert place.local(repo.path).commit == commit
    assert (repo.path / ".git/index").stat().st_mtime_ns == before
    assert not list(repo.path.parent.glob(".gitconfig"))


def test_a_monitor_that_a_repository_names_is_not_run(place: Place, repo: Repo, tmp_path: Path) -> None:
    repo.commit({"a": "x"})
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    monitor.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(monitor))
    place.local(repo.path)
    assert not (tmp_path / "ran").exists()


def test_the_folder_that_a_run_starts_in_changes_nothing(
    place: Place, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repo.commit({"a": "x", "sub/b": "x"})
    monkeypatch.chdir(repo.path / "sub")
    place.env |= {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere/index"}  # as a hook would have them
    found = place.local(Path(".."))
    assert (names(found), found.commit, found.dirty) == ({"a", "sub/b"}, commit, False)


def test_linked_work_trees_submodules_and_clones_inside_are_read(place: Place, repo: Repo, tmp_path: Path) -> None:
    sub = Repo(tmp_path / "sub")
    inner = sub.commit({"s": "x"})
    repo.commit({"a": "x"})
    commit = repo.gitlink("there", inner)
    commit = repo.gitlink("away", inner)
    linked = tmp_path / "linked"
    repo.git("worktree", "add", "--quiet", "--detach", str(linked))
    (linked / "away").mkdir(exist_ok=True)
    repo.git("clone", "--quiet", str(sub.path), str(linked / "there"))
    found = place.local(linked)
    assert names(found) == {"a", "there/s"}
    assert (found.commit, found.dirty, found.missing) == (commit, False, (Missing("away", Why.UNCHECKED),))
    (linked / "there/s").write_text("changed")
    assert place.local(linked).dirty, "a change in a submodule is one"
    repo.git("-C", str(linked / "there"), "commit", "--quiet", "--all", "--message=y")
    assert place.local(linked).dirty, "so is another commit of it"
    repo.git("-C", str(linked / "there"), "checkout", "--quiet", inner)
    assert not place.local(linked).dirty
    repo.git("clone", "--quiet", str(sub.path), str(linked / "extra"))
    found = place.local(linked)
    assert (names(found), found.dirty) == ({"a", "there/s", "extra/s"}, True)
    assert names(place.local(linked, paths=("extra",))) == {"extra/s"}
    shutil.rmtree(linked / "extra")
    place.env["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    assert not place.local(linked).dirty, "nobody asks whose the inner ones are"


SECTION = '[submodule "{0}"]\n\tpath = {0}\n\turl = https://git.example/other/sub.git\n'


@pytest.mark.parametrize("kind", ["index", "gitmodules", "folder"])
def test_a_submodule_that_is_not_checked_out_is_named(place: Place, repo: Repo, tmp_path: Path, kind: str) -> None:
    """By the index, by .gitmodules alone, and in a folder without git, as an unpacked archive of a host is."""
    repo.commit({".gitmodules": SECTION.format("csrc/lib") + SECTION.format("full") + SECTION.format("../out")})
    repo.write({"a": "x", "full/f": "x"})
    (repo.path / "csrc/lib").mkdir(parents=True)
    if kind == "index":
        repo.gitlink("csrc/lib", ABSENT)
    folder = repo.path if kind != "folder" else Path(shutil.copytree(repo.path, tmp_path / "plain"))
    if kind == "folder":
        shutil.rmtree(folder / ".git")
    assert place.local(folder).missing == (Missing("csrc/lib", Why.UNCHECKED),)
    assert place.local(folder, paths=("a",)).missing == ()
    (folder / "csrc/lib/there").write_text("")
    assert place.local(folder).missing == ()


def test_a_submodule_that_is_not_wanted_is_not_looked_at(
    place: Place, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a folder that this user cannot read."""
    repo.commit({"a": "x", ".gitmodules": SECTION.format("csrc/lib")})
    repo.gitlink("csrc/lib", ABSENT)
    (repo.path / "csrc/lib").mkdir(parents=True)
    iterdir = Path.iterdir

    def refused(path: Path) -> Iterator[Path]:
        assert path.name != "lib"
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    assert place.local(repo.path, paths=("a",)).missing == ()


def test_a_tree_without_a_commit_is_dirty(place: Place, repo: Repo) -> None:
    found = place.local(repo.path, paths=())
    assert (found.commit, found.dirty, names(found)) == (None, True, set())
    repo.write({"a": "x"})
    assert names(place.local(repo.path)) == {"a"}


def test_a_folder_without_git_gives_all_its_files(place: Place, repo: Repo, tmp_path: Path) -> None:
    """Also one inside a work tree that ignores it: an unpacked release in a checkout's own folder."""
    repo.commit({".gitignore": "out/\n"})
    folder = repo.path / "out/verl"
    repo.write({f"out/verl/{name}": "x" for name in ("a.py", "b/c.log", ".hidden", "b/__pycache__/c.pyc", "d.pyc")})
    (folder / "empty").mkdir()
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "pipe")
    place.env["PATH"] = str(tmp_path)
    found = place.local(folder)
    assert names(found) == {"a.py", "b/c.log", ".hidden", "loop"}
    assert (found.commit, found.dirty) == (None, False)
    assert names(place.local(folder, paths=("b", "a.py"))) == {"a.py", "b/c.log"}


def test_a_local_tree_that_cannot_be_taken_says_why(place: Place, repo: Repo, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"SRC_verl: '.*/none' is not a folder"):
        place.local(tmp_path / "none")
    repo.commit({"a": "x"})
    with pytest.raises(UsageError, match="SRC_verl: it has no b, c/d"):
        place.local(repo.path, paths=("a", "b", "c/d"))
    (repo.path / "data").symlink_to("/etc")
    with pytest.raises(FindingsError, match="verl: the symlink 'data' leads out of the tree, to '/etc'"):
        place.local(repo.path)
    (repo.path / "data").unlink()
    shutil.rmtree(repo.path / ".git")
    (repo.path / ".git").write_text("gitdir: /nowhere\n")
    with pytest.raises(UsageError, match=r"SRC_verl: git cannot read it: fatal: not a git repository: .*/nowhere"):
        place.local(repo.path)
    with pytest.raises(UsageError, match="verl: neither a commit nor a local tree is named"):
        request(None)


def test_only_the_last_tars_of_a_local_tree_stay(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    other = place.local(folder, name="verl-0123456789abcdef")
    found = []
    for i in range(KEPT + 3):
        (folder / "a").write_text(str(i))
        found.append(place.local(folder))
        os.utime(found[-1].tar, (i + 1, i + 1))
    assert [one.tar.exists() for one in found] == [False] * 3 + [True] * KEPT
    assert other.tar.exists()


def test_a_cache_on_a_full_or_closed_disk_is_reported(place: Place, repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UnableError, match="cannot be written"):
        place.local(repo.path)
