"""`patches new` and `patches port`: what they read of a working tree, and what they leave behind when they fail."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from git_trees import Repo
from test_patching import PATCHED_FILE, Stack, diff, made_stack, plugin_files

from cannery.errors import UnableError
from cannery.patches.io.folders import folder_sets, write_set
from cannery.patches.io.port import patch_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@pytest.fixture
def stack(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    with made_stack(tmp_path, capsys, monkeypatch) as made:
        made.write(plugin_files(made, core=diff(made.engine, "engine/core.py", PATCHED_FILE)))
        yield made


def port(stack: Stack, *words: str) -> tuple[int, str]:
    done = stack.small("patches", "port", "engine", *words, "--git-mirror", str(stack.mirror))
    return done.code, done.out + done.err


def new(stack: Stack, tree: Path, output: Path) -> tuple[int, str]:
    done = stack.small("patches", "new", "engine", "--tree", str(tree), "--output", str(output))
    return done.code, done.out + done.err


def changed(stack: Stack, tmp_path: Path, files: Mapping[str, str]) -> Path:
    """A working tree of the engine with these files changed."""
    mine = tmp_path / "mine"
    shutil.copytree(stack.engine.path, mine)
    for name, text in files.items():
        (mine / name).write_text(text)
    return mine


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a/core.py", "b/core.py", "core.py"], ["core", "core_2", "core_3"]),
        (["setup.cfg", "setup.py", "setup_2"], ["setup", "setup_2", "setup_2_2"]),
        ([".gitignore", "a/.x/y", "a\tb.py"], ["gitignore", "a_b", "y"]),
        ([f"{'é' * 120}.c", f"{'é' * 120}.py", "x"], ["x", "é" * 60, f"{'é' * 60}_2"]),
    ],
)
def test_each_file_has_a_patch_of_its_own_name(paths: list[str], names: list[str]) -> None:
    found = patch_names(paths)
    assert len(set(found.values())) == len(paths)
    assert list(found) == sorted(paths)
    assert list(found.values()) == names


def test_every_changed_file_is_in_a_patch_that_is_read_again(stack: Stack, tmp_path: Path) -> None:
    head = stack.engine.commit({"setup.py": "a = 1\n", "setup.cfg": "b\n", ".flake8": "x\n"})
    files = {"setup.py": "a = 2\n", "setup.cfg": "c\n", ".flake8": "y\n", "engine/core.py": PATCHED_FILE}
    mine = changed(stack, tmp_path, files)
    code, said = new(stack, mine, tmp_path / "sets")
    assert code == 0, said
    folder = tmp_path / "sets/engine" / head[:9]
    names = ["core", "flake8", "setup", "setup_2"]
    patches = sorted(folder.glob("*.patch"))
    assert [path.stem for path in patches] == names
    (read,) = folder_sets(tmp_path / "none", tmp_path / "sets")
    assert [file.name for file in read.files] == names
    for path in patches:
        stack.engine.git("apply", str(path))
    assert {name: (stack.engine.path / name).read_text() for name in files} == files


def test_words_of_port_are_read_alike_on_both_sides(stack: Stack, tmp_path: Path) -> None:
    upstream = stack.engine.commit({"engine/core.py": PATCHED_FILE})
    out = tmp_path / "sets"
    code, said = port(stack, stack.commit[:9].upper(), upstream.upper(), "--output", str(out))
    assert (code, "nothing written: all of it is there already" in said) == (0, True), said
    assert not out.exists()
    for words in (("main", upstream), (stack.commit, "main")):
        code, said = port(stack, *words)
        assert (code, "'main' is not a" in said) == (2, True), said


def test_set_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "engine/abc"

    def interrupted() -> Iterator[tuple[str, bytes]]:
        yield "a.patch", b"a"
        raise KeyboardInterrupt

    class Cut(dict[str, bytes]):
        def items(self) -> Iterator[tuple[str, bytes]]:  # type: ignore[override]  # stops in the middle, as a user does
            return interrupted()

    with pytest.raises(KeyboardInterrupt):
        write_set(folder, Cut())
    assert list(folder.parent.iterdir()) == []
    with pytest.raises(UnableError, match="cannot be written: file name too long") as failed:
        write_set(folder, {"a.patch": b"a", "x" * 300: b"b"})
    assert failed.value.hint
    assert list(folder.parent.iterdir()) == []
    left = folder.with_name(".abc.cannery")
    (left / "more").mkdir(parents=True)
    (left / "old.patch").write_bytes(b"old")
    write_set(folder, {"a.patch": b"a"})
    assert [path.name for path in tmp_path.rglob("*")] == ["engine", "abc", "a.patch"]


def test_what_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file/abc"):
        with pytest.raises(UnableError, match="cannot be written: not a directory") as failed:
            write_set(folder, {"a.patch": b"a"})
        assert failed.value.hint == "a file is where a folder is wanted: move it away"


def test_new_reports_what_git_refuses(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "sets"
    empty = Repo(tmp_path / "empty")
    code, said = new(stack, empty.path, out)
    assert (code, "nothing was committed yet" in said, "commit the state" in said) == (2, True, True), said
    plain = tmp_path / "plain"
    plain.mkdir()
    code, said = new(stack, plain, out)
    assert (code, "not a git repository" in said, "name the working tree" in said) == (2, True, True), said
    mine = changed(stack, tmp_path, {"engine/core.py": PATCHED_FILE})
    (mine / ".git/HEAD").write_text("ref: elsewhere")
    code, said = new(stack, mine, out)
    assert (code, "not a git repository" in said, "name the working tree" in said) == (2, True, True), said
    assert not out.exists()


def test_new_reads_a_tree_of_another_owner(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = changed(stack, tmp_path, {"engine/core.py": PATCHED_FILE})
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)  # the settings of a machine for tests may trust every folder
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch for this case
    code, said = new(stack, mine, tmp_path / "sets")
    assert code == 0, said
    assert [path.name for path in (tmp_path / "sets").rglob("*.patch")] == ["core.patch"]


def test_new_runs_no_program_that_a_tree_names(stack: Stack, tmp_path: Path) -> None:
    """A filter, a monitor, textconv and hooks, of the tree and of a submodule in it."""
    sub = Repo(tmp_path / "sub")
    stack.engine.commit({".gitattributes": "* filter=x diff=x\n"})
    head = stack.engine.gitlink("sub", sub.commit({"s": "x\n"}))
    mine = changed(stack, tmp_path, {})
    shutil.rmtree(mine / "sub", ignore_errors=True)
    stack.engine.git("clone", "--quiet", str(sub.path), str(mine / "sub"))
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    program.chmod(0o755)
    (mine / "sub/.git/info/attributes").write_text("* filter=x\n")
    for tree in (mine, mine / "sub"):
        (tree / ".git/hooks").mkdir(exist_ok=True)
        shutil.copy(program, tree / ".git/hooks/post-index-change")
        for name in ("filter.x.clean", "core.fsmonitor", "diff.x.textconv", "diff.x.command", "diff.external"):
            stack.engine.git("-C", str(tree), "config", name, str(program))
    (mine / "engine/core.py").write_text(PATCHED_FILE)
    os.utime(mine / "sub/s", (1, 1))  # not changed, but git has to look
    code, said = new(stack, mine, tmp_path / "sets")
    assert (code, (tmp_path / "ran").exists()) == (0, False), said
    (patch,) = (tmp_path / "sets").rglob("*.patch")
    stack.engine.git("apply", "--check", str(patch))
    assert patch.parent.name == head[:9]
    (mine / "sub/s").write_text("changed\n")
    code, said = new(stack, mine, tmp_path / "other")
    assert (code, "submodule sub has changes of its own" in said) == (3, True), said
    assert not (tmp_path / "ran").exists()
