"""A commit's tree as a tar: the very bytes, the same everywhere, and nothing that could get out of it."""

from __future__ import annotations

import errno
import os
import subprocess
import tarfile
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from git_trees import EPOCH, Repo, file_host, git_cache, git_env, served
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cannery.errors import FindingsError, NetworkError, UnableError
from cannery.sources.io.export import Written, gather, read_blob, write_tar
from cannery.sources.io.git import BlobReader
from cannery.sources.plan import Missing, SourceRequest, SourceSubmodule, Why, leads_out

NAME = {"here": "owner/name"}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"


class Exports:
    """Exports of repositories that a mirror (or, with `is_mirror` false, a host) has."""

    def __init__(self, root: Path, *, is_mirror: bool = True) -> None:
        self.root = root
        self.is_mirror = is_mirror
        self.lines: list[str] = []

    def add(self, repo: Repo, name: str = "owner/name") -> Path:
        return served(repo, self.root / "served", f"{name}.git")

    def __call__(self, commit: str, *, epoch: int = EPOCH, **more: object) -> tuple[Path, Written, list[Missing]]:
        served_at = self.root / "served"
        changes: dict[str, object] = {"mirror": served_at} if self.is_mirror else {}
        git, self.lines = git_cache(self.root / "cache", {"here": file_host(served_at)}, **changes)
        request = SourceRequest("verl", commit, NAME, epoch, **more)  # type: ignore[arg-type]  # each test names its own
        tree = gather(request, git.obtain("verl", commit, NAME), git.obtain, git.env)
        target = self.root / f"{commit[:8]}-{epoch}.tar"
        entries = {path: blob.kind for path, blob in tree.blobs.items()}
        with BlobReader(git.env) as reader:
            written = write_tar(target, "verl", entries, lambda path: read_blob(tree, path, reader), epoch)
        return target, written, tree.missing


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "work")


@pytest.fixture
def exports(tmp_path: Path) -> Exports:
    return Exports(tmp_path)


def contents(tar: Path) -> dict[str, str]:
    """{path: content} of a tar: of a file its text, of a symlink `-> target`, of a folder `/`."""
    found = {}
    with tarfile.open(tar, errors="surrogateescape") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            found[member.name] = (
                file.read().decode(errors="surrogateescape")
                if file
                else (f"-> {member.linkname}" if member.issym() else "/")
            )
    return found


def submodule(commit: str, repository: str = "owner/sub") -> SourceSubmodule:
    return SourceSubmodule({"here": repository}, commit)


def test_the_bytes_are_the_objects_own_whatever_attributes_say(exports: Exports, repo: Repo) -> None:
    repo.write({"a.txt": "one\ntwo\n", "left/out.txt": "x", "crlf.txt": "one\r\ntwo\r\n", "id.c": "$Id$ $Format:%H$"})
    commit = repo.commit()
    repo.git("config", "core.autocrlf", "true")
    attributes = "*.txt eol=crlf text\nleft export-ignore\nid.c ident export-subst\na.txt filter=no\n"
    commit = repo.commit({".gitattributes": attributes, "crlf.txt": "one\r\ntwo\r\n"})
    exports.add(repo)
    tar, _, missing = exports(commit)
    assert missing == []
    assert contents(tar) == {
        ".gitattributes": attributes,
        "a.txt": "one\ntwo\n",
        "crlf.txt": repo.git("cat-file", "blob", f"{commit}:crlf.txt") + "\n",
        "id.c": "$Id$ $Format:%H$",
        "left": "/",
        "left/out.txt": "x",
    }


def test_entries_are_sorted_with_one_owner_time_and_two_modes(exports: Exports, repo: Repo, tmp_path: Path) -> None:
    repo.write({"b/c.sh": "#!/bin/sh\n", "b-a": "x", "b/z/y": "", "a" * 120 + "/" + "b" * 120: "long"})
    (repo.path / "b/c.sh").chmod(0o755)
    (repo.path / "b-a").chmod(0o600)
    (repo.path / "link").symlink_to("b/c.sh")
    (repo.path / "b/up").symlink_to("../" + "c" * 110)
    commit = repo.commit()
    exports.add(repo)
    tar, written, _ = exports(commit)
    with tarfile.open(tar) as archive:
        members = archive.getmembers()
    modes = {member.name: member.mode for member in members}
    assert list(modes) == sorted(modes)
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", EPOCH)}
    assert (modes["b"], modes["b/c.sh"], modes["b-a"]) == (0o755, 0o755, 0o644)
    assert contents(tar)["link"] == "-> b/c.sh"
    assert contents(tar)["b/up"] == "-> ../" + "c" * 110
    assert contents(tar)["a" * 120 + "/" + "b" * 120] == "long"
    subprocess.run(("tar", "-xf", tar, "-C", tmp_path / "cache"), check=True)
    assert (tmp_path / "cache/b/c.sh").stat().st_mode & 0o777 == 0o755
    again, same, _ = exports(commit)
    assert (same, again.read_bytes()) == (written, tar.read_bytes())
    other, later, _ = exports(commit, epoch=EPOCH + 1)
    assert other.read_bytes() != tar.read_bytes()
    assert (later.tree, later.sha256 == written.sha256) == (written.tree, False)


@pytest.mark.parametrize("change", ["content", "mode", "name", "kind"])
def test_the_trees_digest_holds_content_mode_name_and_kind(exports: Exports, repo: Repo, change: str) -> None:
    first = repo.commit({"a": "b", "x": ""})
    path = repo.path / "a"
    if change == "content":
        path.write_text("c")
    elif change == "mode":
        path.chmod(0o755)
    elif change == "name":
        path.rename(repo.path / "aa")
    else:
        path.unlink()
        path.symlink_to("b")
    second = repo.commit()
    exports.add(repo)
    assert exports(first)[1].tree != exports(second)[1].tree


def test_odd_names_stay_as_they_are(exports: Exports, repo: Repo, tmp_path: Path) -> None:
    names = [os.fsdecode(b"la\xfft\n n\xc3\xa4me\t\"'\\"), "A", "a", "-rf", "naïve 名.py", os.fsdecode(b"f\xfe/x")]
    commit = repo.commit(dict.fromkeys(names, "x"))
    exports.add(repo)
    tar, _, _ = exports(commit)
    assert sorted(contents(tar)) == sorted([*names, os.fsdecode(b"f\xfe")])
    (tmp_path / "out").mkdir()
    subprocess.run(("tar", "-xf", tar, "-C", tmp_path / "out"), check=True)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(n.partition("/")[0] for n in names)


@pytest.mark.parametrize(
    ("links", "culprit"),
    [
        ({"a": "/etc/passwd"}, "a"),
        ({"b/c/a": "../../../x"}, "b/c/a"),
        ({"b/c/a": "../../x/../.."}, "b/c/a"),
        ({"here": ".", "out": "here/.."}, "out"),
        ({"d": "b/..", "e": "d/../x"}, "e"),
        ({"a": "z/x", "z": "b//../../x"}, "a"),
    ],
)
def test_a_symlink_that_leads_out_is_refused(exports: Exports, repo: Repo, links: dict[str, str], culprit: str) -> None:
    repo.write({"b/c/file": "x", "x": "x"})
    for path, target in links.items():
        (repo.path / path).symlink_to(target)
    commit = repo.commit()
    exports.add(repo)
    with pytest.raises(FindingsError, match=rf"verl: the symlink '{culprit}' leads out of the tree, to "):
        exports(commit)


def test_symlinks_inside_are_kept_even_in_circles_or_to_nothing(exports: Exports, repo: Repo) -> None:
    links = {"loop": "loop", "one": "two", "two": "one", "b/up": "../x", "none": "not/there/..", "deep": "b/up/../b/up"}
    repo.write({"b/c": "x", "x": "x"})
    for path, target in links.items():
        (repo.path / path).symlink_to(target)
    commit = repo.commit()
    exports.add(repo)
    found = contents(exports(commit)[0])
    assert {path: found[path] for path in links} == {path: f"-> {target}" for path, target in links.items()}


@pytest.mark.parametrize("name", ["..", ".", ".git", ".GIT"])
def test_a_tree_that_would_be_written_elsewhere_is_refused(exports: Exports, repo: Repo, name: str) -> None:
    repo.commit({"a": "x"})
    inner = repo.git("mktree", stdin=f"100644 blob {repo.blob('x')}\tconfig\n".encode())
    commit = repo.commit_tree(f"040000 tree {inner}\t{name}")
    repo.git("update-ref", "refs/heads/main", commit)
    bare = exports.root / "served/owner/name.git"
    bare.parent.mkdir(parents=True)
    (repo.path / ".git").rename(bare)
    with pytest.raises(FindingsError, match=rf"has the bad path '{name}/config'"):
        exports(commit)


def test_replaced_objects_are_not_taken(exports: Exports, repo: Repo) -> None:
    commit = repo.commit({"a": "right"})
    bare = exports.add(repo)
    wrong = subprocess.run(
        ("git", f"--git-dir={bare}", "hash-object", "-w", "--stdin"), input=b"wrong", capture_output=True, check=True
    )
    right = repo.git("rev-parse", f"{commit}:a")
    subprocess.run(("git", f"--git-dir={bare}", "replace", right, wrong.stdout.decode().strip()), check=True)
    assert contents(exports(commit)[0]) == {"a": "right"}


def test_submodules_are_filled_in_also_inside_each_other(exports: Exports, repo: Repo, tmp_path: Path) -> None:
    inner, sub = Repo(tmp_path / "inner"), Repo(tmp_path / "sub")
    innermost = inner.commit({"i": "inner"})
    sub.commit({"s": "sub"})
    middle = sub.gitlink("deep/inner", innermost)
    repo.commit({"a": "x"})
    commit = repo.gitlink("third/sub", middle)
    for one, name in ((repo, "owner/name"), (sub, "owner/sub"), (inner, "owner/inner")):
        exports.add(one, name)
    submodules = {"third/sub": submodule(middle), "third/sub/deep/inner": submodule(innermost, "owner/inner")}
    tar, _, missing = exports(commit, submodules=submodules)
    files = {path: text for path, text in contents(tar).items() if text != "/"}
    assert files == {"a": "x", "third/sub/s": "sub", "third/sub/deep/inner/i": "inner"}
    assert missing == []
    tar, _, missing = exports(commit, submodules=submodules, paths=("third/sub/deep",))
    assert {path for path, text in contents(tar).items() if text != "/"} == {"third/sub/deep/inner/i"}


def test_a_tree_that_no_submodule_names_is_put_beside(exports: Exports, repo: Repo, tmp_path: Path) -> None:
    other = Repo(tmp_path / "other")
    beside = other.commit({"patch/x": "other"})
    commit = repo.commit({"a": "x"})
    exports.add(repo)
    exports.add(other, "owner/sub")
    added = replace(submodule(beside), added=True)
    tar, _, missing = exports(commit, submodules={"ascend": added})
    files = {path: text for path, text in contents(tar).items() if text != "/"}
    assert files == {"a": "x", "ascend/patch/x": "other"}
    assert missing == []
    with pytest.raises(FindingsError, match="already has a"):
        exports(commit, submodules={"a": added})


def test_a_submodule_that_nothing_names_is_listed_and_skipped(exports: Exports, repo: Repo) -> None:
    repo.commit({"a": "x"})
    commit = repo.gitlink("sub", "1" * 40)
    exports.add(repo)
    tar, _, missing = exports(commit)
    assert contents(tar) == {"a": "x"}
    assert missing == [Missing("sub", Why.SUBMODULE)]
    assert str(missing[0]) == "sub: a submodule whose commit no component names"


def test_a_submodule_at_another_commit_is_an_error_that_names_both(exports: Exports, repo: Repo) -> None:
    repo.commit({"a": "x"})
    commit = repo.gitlink("sub", "1" * 40)
    exports.add(repo)
    with pytest.raises(FindingsError) as caught:
        exports(commit, submodules={"sub": submodule("2" * 40)})
    assert caught.value.what == f"verl: submodule sub is at {'1' * 40} in the tree of {commit}, not at {'2' * 40}"
    assert caught.value.where == "images/components/verl.yaml"


def test_a_submodule_outside_the_paths_is_not_even_looked_for(exports: Exports, repo: Repo) -> None:
    repo.commit({"a/b": "x"})
    commit = repo.gitlink("sub", "1" * 40)
    exports.add(repo)
    tar, _, missing = exports(commit, submodules={"sub": submodule("1" * 40)}, paths=("a",))
    assert contents(tar) == {"a": "/", "a/b": "x"}
    assert missing == []
    with pytest.raises(NetworkError, match=r"verl, submodule sub: commit 1{40} is in no local repository"):
        exports(commit, submodules={"sub": submodule("1" * 40)})


def test_paths_and_submodules_that_are_not_in_the_tree_are_reported_at_once(exports: Exports, repo: Repo) -> None:
    commit = repo.commit({"ab/c": "x", "d": "x"})
    exports.add(repo)
    with pytest.raises(FindingsError) as caught:
        exports(commit, submodules={"d": submodule("1" * 40)}, paths=("a", "ab", "d", "ab/x"))
    assert caught.value.what == f"verl: the tree of {commit} has no submodule at d, no a, no ab/x"


def test_only_the_paths_are_exported(exports: Exports, repo: Repo) -> None:
    commit = repo.commit({"a/b": "1", "a/c/d": "2", "ab": "3", "e": "4"})
    exports.add(repo)
    assert contents(exports(commit, paths=("a/c", "e"))[0]) == {"a": "/", "a/c": "/", "a/c/d": "2", "e": "4"}


def test_lfs_pointers_are_reported(exports: Exports, repo: Repo) -> None:
    commit = repo.commit({"model.bin": POINTER, "about.md": POINTER + "x" * 1024})
    exports.add(repo)
    _, written, _ = exports(commit)
    assert written.pointers == (Missing("model.bin", Why.LFS),)


def test_a_partial_clone_is_read_without_fetching_what_is_missing(exports: Exports, repo: Repo, tmp_path: Path) -> None:
    commit = repo.commit({"tests/a": "1", "src/b": "2", "src/c": "3"})
    exports.root = tmp_path / "origin"
    origin = exports.add(repo)
    for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        subprocess.run(("git", f"--git-dir={origin}", "config", setting, "true"), check=True)
    partial = tmp_path / "partial/served/owner/name.git"
    partial.parent.mkdir(parents=True)
    clone = ("git", "clone", "--quiet", "--bare", "--filter=blob:none", f"file://{origin}", str(partial))
    subprocess.run(clone, env=git_env(tmp_path), check=True)
    exports.root = tmp_path / "partial"
    with pytest.raises(NetworkError) as caught:
        exports(commit, paths=("src",))
    what = f"verl: the repository is missing a part of {commit}: src/b is not in it, or is damaged"
    assert caught.value.what == what
    assert caught.value.where == str(partial)


def loose(git_dir: Path, oid: str) -> Path:
    """Make all objects loose and return the file of one."""
    packs = [path.rename(git_dir / path.name) for path in (git_dir / "objects/pack").glob("*.pack")]
    for path in packs:
        subprocess.run(("git", f"--git-dir={git_dir}", "unpack-objects", "-q"), input=path.read_bytes(), check=True)
        path.unlink()
    for path in (git_dir / "objects/pack").iterdir():
        path.unlink()
    return git_dir / "objects" / oid[:2] / oid[2:]


def test_a_missing_blob_of_a_snapshot_matters_only_where_it_is_wanted(exports: Exports, repo: Repo) -> None:
    commit = repo.commit({"docs/big.png": "picture", "src/b": "2", "src/b2": "2"})
    loose(exports.add(repo), repo.git("rev-parse", f"{commit}:docs/big.png")).unlink()
    tar, _, found = exports(commit, paths=("src",))
    assert found == []
    assert contents(tar) == {"src": "/", "src/b": "2", "src/b2": "2"}
    for paths in ((), ("src", "docs")):
        with pytest.raises(NetworkError, match=r"is missing a part of \w+: docs/big\.png"):
            exports(commit, paths=paths)


def test_a_missing_folder_of_a_snapshot_is_an_error(exports: Exports, repo: Repo) -> None:
    commit = repo.commit({"docs/a": "1", "src/b": "2"})
    loose(exports.add(repo), repo.git("rev-parse", f"{commit}:docs")).unlink()
    with pytest.raises(NetworkError, match=rf"is missing a part of {commit}: its folders cannot be listed"):
        exports(commit)


@pytest.mark.parametrize("is_mirror", [True, False])
def test_other_bytes_under_a_right_name_are_found(tmp_path: Path, repo: Repo, is_mirror: bool) -> None:
    exports = Exports(tmp_path, is_mirror=is_mirror)
    commit = repo.commit({"a": "right", "b": "x"})
    git_dir = exports.add(repo)
    if not is_mirror:
        exports(commit)
        git_dir = tmp_path / f"cache/git/owner/name/{commit}.git"
    place = loose(git_dir, repo.git("rev-parse", f"{commit}:a"))
    place.chmod(0o644)
    place.write_bytes(zlib.compress(b"blob 5\0wrong"))
    error, words = NetworkError if is_mirror else UnableError, "a is not in it, or is damaged"
    with pytest.raises(error, match=words) as caught:
        exports(commit)
    assert caught.value.where == str(git_dir)
    place.write_bytes(b"no zlib")
    with pytest.raises(error, match=r"verl: "):
        exports(commit)


@settings(max_examples=300)
@example({"a": "b/../a/../.."})
@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d/a", "d/b"]),
        st.lists(st.sampled_from(["..", ".", "a", "b", "c", "d", ""]), min_size=1, max_size=6)
        .map("/".join)
        .filter(bool),
        min_size=1,
    )
)
def test_symlinks_lead_where_the_kernel_says(links: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "1/2/3/4/5/6/7/8/9/tree")
        (tree / "d").mkdir(parents=True)
        for path, target in links.items():
            (tree / path).symlink_to(target)
        for path, target in links.items():
            assert leads_out(path, links) is (kernel_leads_out(tree, path) or target.startswith("/")), (path, links)


def kernel_leads_out(tree: Path, path: str) -> bool:
    """Where strict resolution ends. Names that are missing in the tree are made folders, as a later file could do it.

    `os.path.realpath` without `strict` will not do: in a circle behind a missing name it guesses.
    """
    while True:
        try:
            found = os.path.realpath(tree / path, strict=True)
        except FileNotFoundError as error:
            if not Path(error.filename).is_relative_to(os.path.realpath(tree)):
                return True
            Path(error.filename).mkdir()
            continue
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return False
        return not Path(found).is_relative_to(os.path.realpath(tree))
