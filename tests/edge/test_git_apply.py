"""Patches of every kind that plugins have, applied by git: what the files are after it, or why not."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cannery.errors import FindingsError, NetworkError
from cannery.patches.io.folders import read_set
from cannery.patches.io.git_apply import FileChange, Git, Layered, git_repository
from cannery.patches.io.port import ported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cannery.patches.io.git_apply import Files, PatchResult
    from cannery.patches.sets import PatchFile, PatchSet

LINES = [f"line {number}\n" for number in range(1, 21)]
OLD = "".join(LINES).encode()
NEW = OLD.replace(b"line 10\n", b"changed\n")
HEAD = b"--- a/x.py\n+++ b/x.py\n"
HUNK = b"@@ -8,5 +8,5 @@\n line 8\n line 9\n-line 10\n+changed\n line 11\n line 12\n"
CHANGE = HEAD + HUNK


@dataclass
class Tree:
    """A tree of made-up files."""

    files: dict[str, bytes]
    programs: set[str] = field(default_factory=set)

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def is_executable(self, path: str) -> bool:
        return path in self.programs


@pytest.fixture
def git() -> Iterator[Git]:
    with git_repository(os.environ) as found:
        yield found


def patch(text: bytes, lost: int = 0) -> PatchFile:
    (file,) = read_set("verl", "1234567", "us", {"made": text}, {"made": lost} if lost else {}).files
    return file


def applied(git: Git, text: bytes, tree: Files, lost: int = 0) -> PatchResult:
    return git.apply(patch(text, lost), tree)


def contents(result: PatchResult) -> dict[str, bytes | None]:
    """{path: bytes} after a patch, None for a file that is gone."""
    return {one.path: one.after for one in result.changes}


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (CHANGE, OLD, NEW),
        (CHANGE.replace(b"\n line 8\n", b" def f():\n line 8\n"), OLD, NEW),
        (b"From: us\n\nA mail.\n---\n" + CHANGE + b"-- \n2.39.5\n", OLD, NEW),
        (b"diff --git a/x.py b/x.py\nindex 1234567..89abcde 100644\n" + CHANGE, OLD, NEW),
        (b"--- x.py\n+++ x.py\n" + HUNK, OLD, NEW),
        (b"--- a/x.py\n+++ a/x.py\n" + HUNK, OLD, NEW),
        (b"--- a/x.py\t2026-01-01 10:00:00.0 +0000\n+++ b/x.py\t2026-01-02 10:00:00.0 +0000\n" + HUNK, OLD, NEW),
        (CHANGE.replace(b"\n", b"\r\n"), OLD, NEW),
        (HEAD + HUNK.replace(b"\n", b"\r\n").replace(b"@@\r", b"@@"), OLD.replace(b"\n", b"\r\n"), None),
        (HEAD + b"@@ -19,2 +19,3 @@\n line 19\n line 20\n+end\n\\ No newline at end of file\n", OLD, OLD + b"end"),
        (HEAD + b"@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n", b"a", b"b\n"),
        (HEAD + b"@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", b"a\n\nb\n", b"a\n\nc\n"),
        (HEAD + b"@@ -1 +1 @@\n-\f\rx\n+y\n", b"\f\rx\n", b"y\n"),
        (HEAD + b"@@ -1 +1,2 @@\n a  \n+b  \n", b"a  \n", b"a  \nb  \n"),
    ],
)
def test_a_changed_file(git: Git, text: bytes, before: bytes, after: bytes | None) -> None:
    result = applied(git, text, Tree({"x.py": before}))
    (change,) = result.changes
    wanted = NEW.replace(b"\n", b"\r\n") if after is None else after
    assert (result.ok, result.notes, change.path, change.before, change.after) == (True, (), "x.py", before, wanted)


def test_a_hunk_that_goes_to_another_line_is_a_note(git: Git) -> None:
    result = applied(git, CHANGE, Tree({"x.py": b"more\n" + OLD}))
    assert contents(result) == {"x.py": b"more\n" + NEW}
    assert result.notes == ("x.py: hunk 1 applies at line 9, +1 from its header's",)


def test_context_that_differs_is_refused_with_file_and_hunk(git: Git) -> None:
    second = HEAD + b"@@ -1,2 +1,2 @@\n-line 1\n+first\n line 2\n" + HUNK.replace(b" line 12", b" line twelve")
    result = applied(git, second, Tree({"x.py": OLD}))
    (problem,) = result.problems
    assert (result.changes, problem.patch, problem.path) == ((), "made", "x.py")
    assert "line 8" in problem.what
    assert problem.lines == ("line 8", "line 9", "line 10", "line 11", "line twelve")


def test_every_file_that_does_not_fit_is_named(git: Git) -> None:
    text = CHANGE + CHANGE.replace(b"x.py", b"y.py") + b"--- /dev/null\n+++ b/z.py\n@@ -0,0 +1 @@\n+z\n"
    result = applied(git, text, Tree({"x.py": b"other\n", "z.py": b"mine\n"}))
    assert {one.path for one in result.problems} == {"x.py", "y.py", "z.py"}


@pytest.mark.parametrize(("lost", "cut"), [(1, b"\n"), (2, b"\n line 12\n")])
def test_a_patch_that_is_cut_off(git: Git, lost: int, cut: bytes) -> None:
    text = CHANGE.removesuffix(cut)
    assert contents(applied(git, text, Tree({"x.py": OLD}), lost)) == {"x.py": NEW}
    with pytest.raises(FindingsError) as error:
        applied(git, text, Tree({"x.py": OLD}))
    assert error.value.where.startswith("made.patch:")
    assert "truncated" in error.value.hint
    assert applied(git, CHANGE, Tree({"x.py": OLD}), lost).ok, "a whole file is taken as it is"


def test_a_number_of_lost_lines_that_is_wrong_is_refused(git: Git) -> None:
    for lost, cut in ((2, b"\n"), (1, b"\n line 12\n")):
        with pytest.raises(FindingsError, match=r"^made\.patch:"):
            applied(git, CHANGE.removesuffix(cut), Tree({"x.py": OLD}), lost)


def test_new_deleted_renamed_and_copied_files(git: Git) -> None:
    tree = Tree({"x.py": OLD, "run": b"#!\n"}, {"run"})
    new = b"--- /dev/null\n+++ b/a/new.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    assert contents(applied(git, new, tree)) == {"a/new.py": b"a\nb\n"}
    assert set(contents(applied(git, new.replace(b"b/a", b"a") + b"--- x.py\n+++ x.py\n" + HUNK, tree))) == {
        "a/new.py",
        "x.py",
    }
    gone = b"--- a/run\n+++ /dev/null\n@@ -1 +0,0 @@\n-#!\n"
    assert contents(applied(git, gone, tree)) == {"run": None}
    moved = b"diff --git a/run b/start\nsimilarity index 100%\nrename from run\nrename to start\n"
    result = applied(git, moved, tree)
    assert contents(result) == {"run": None, "start": b"#!\n"}
    assert [one.new_mode for one in result.changes] == [None, "100755"]
    copied = b"diff --git a/x.py b/y.py\nsimilarity index 90%\ncopy from x.py\ncopy to y.py\n"
    assert contents(applied(git, copied + CHANGE.replace(b"b/x.py", b"b/y.py"), tree)) == {"y.py": NEW}
    quoted = (
        b'diff --git "a/\\303\\251 x" "b/\\303\\251 x"\nnew file mode 100755\n--- /dev/null\n+++ "b/\\303\\251 x"\n'
    )
    result = applied(git, quoted + b"@@ -0,0 +1 @@\n+a\n", tree)
    assert [(one.path, one.new_mode) for one in result.changes] == [("é x", "100755")]


def test_a_mode_alone(git: Git) -> None:
    text = b"diff --git a/x.py b/x.py\nold mode 100644\nnew mode 100755\n"
    (change,) = applied(git, text, Tree({"x.py": OLD})).changes
    assert (change.before, change.after, change.old_mode, change.new_mode) == (OLD, OLD, "100644", "100755")
    result = applied(git, text, Tree({"x.py": OLD}, {"x.py"}))
    assert (result.already, [one.new_mode for one in result.changes]) == (True, ["100755"])


def test_a_patch_that_is_there_gives_the_tree_without_it(git: Git) -> None:
    result = applied(git, CHANGE, Tree({"x.py": NEW}))
    (change,) = result.changes
    assert (result.ok, result.already, change.before, change.after) == (True, True, OLD, NEW)
    half = CHANGE + CHANGE.replace(b"x.py", b"y.py")
    assert [one.path for one in applied(git, half, Tree({"x.py": NEW, "y.py": OLD})).problems] == ["x.py"]
    nothing = HEAD + b"@@ -1 +1 @@\n-line 1\n+line 1\n"
    assert not applied(git, nothing, Tree({"x.py": OLD})).changes


def test_later_patches_see_what_earlier_ones_made(git: Git) -> None:
    tree = Layered(Tree({"x.py": OLD}))
    tree.add(applied(git, CHANGE, tree).changes)
    again = CHANGE.replace(b"-line 10\n+changed", b"-changed\n+again")
    assert contents(applied(git, again, tree)) == {"x.py": NEW.replace(b"changed", b"again")}
    assert applied(git, again, Tree({"x.py": OLD})).problems


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"some words\n",
        HEAD + b"@@ -8,5 +8,9 @@\n line 8\n",
        HEAD + HUNK + b"+more\n",
        CHANGE.replace(b"/x.py", b"/../x.py"),
        CHANGE.replace(b"/x.py", b"/.git/x.py"),
        b'--- "a/x\\n.py"\n+++ "b/x\\n.py"\n' + HUNK,
    ],
)
def test_what_is_no_patch_of_a_tree_is_refused(git: Git, text: bytes) -> None:
    with pytest.raises(FindingsError) as error:
        applied(git, text, Tree({"x.py": OLD, "../x.py": OLD, ".git/x.py": OLD}))
    assert error.value.where.startswith("made.patch")


def test_a_binary_file_without_its_content_is_refused(git: Git) -> None:
    text = b"diff --git a/x.png b/x.png\nindex 1234567..89abcde 100644\nBinary files a/x.png and b/x.png differ\n"
    result = applied(git, text, Tree({"x.png": b"\0"}))
    assert (result.changes, bool(result.problems)) == ((), True)


def test_symlinks_are_refused(git: Git) -> None:
    text = b"diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n"
    result = applied(git, text, Tree({}))
    assert (result.changes, [one.path for one in result.problems]) == ((), ["l"])


def test_names_that_are_not_ascii_are_in_messages(git: Git) -> None:
    text = CHANGE.replace(b"/x.py", "/é.py".encode())
    result = applied(git, text, Tree({"é.py": b"more\n" + OLD}))
    assert result.notes == ("é.py: hunk 1 applies at line 9, +1 from its header's",)
    (problem,) = applied(git, text, Tree({"é.py": b"other\n"})).problems
    assert problem.path == "é.py"


def test_a_patch_that_is_written_does_not_depend_on_the_user(tmp_path: Path) -> None:
    (tmp_path / "git").mkdir()
    (tmp_path / "git/attributes").write_text("*.py -diff\n")
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "GIT_EXTERNAL_DIFF": "false", "GIT_DIFF_OPTS": "-u0"}
    with git_repository(env) as git:
        tree = Tree({"x.py": OLD, "b": b"\0a"})
        changes = applied(git, CHANGE, tree).changes
        assert contents(applied(git, git.diff(changes), tree)) == {"x.py": NEW}
        binary = git.diff([FileChange("b", b"\0a", b"\0b")])
        assert contents(applied(git, binary, tree)) == {"b": b"\0b"}


def test_no_setting_of_the_user_has_an_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[apply]\n\twhitespace = error-all\n\tignoreWhitespace = change\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    env = {**os.environ, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "apply.whitespace", "GIT_CONFIG_VALUE_0": "fix"}
    with git_repository(env) as git:
        text = HEAD + b"@@ -1 +1,2 @@\n a\n+b \t\n"
        assert contents(applied(git, text, Tree({"x.py": b"a\n"}))) == {"x.py": b"a\nb \t\n"}
        assert applied(git, text, Tree({"x.py": b"a \n"})).problems


def change(path: str, old: str, new: str) -> bytes:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n".encode()


def patches(origin: str, **texts: bytes) -> PatchSet:
    return read_set("verl", "796871d7d", origin, texts)


def unknown() -> Files:
    raise NetworkError("no such commit")


def test_sets_are_tried_on_what_those_before_them_left(git: Git) -> None:
    tree = Tree({"a.py": b"one\n"})
    plugin = patches("npu at 09b8c1253af0", core=change("a.py", "one", "two"))
    mine = patches("PATCHES/verl/796871d7d", mine=change("a.py", "two", "three"))

    def oks(*sets: PatchSet) -> list[bool]:
        return [one.ok for _, (one,) in ported(git, sets, tree, unknown)]

    assert oks(plugin, mine) == [True, True]
    assert oks(mine, plugin) == [False, True]


def test_what_does_not_fit_is_merged(git: Git) -> None:
    upstream = OLD.replace(b"line 8\n", b"eight\n").replace(b"line 2\n", b"")
    ((_, (one,)),) = ported(git, [patches("us", core=CHANGE)], Tree({"x.py": upstream}), lambda: Tree({"x.py": OLD}))
    wanted = upstream.replace(b"line 10\n", b"changed\n")
    assert (one.is_merged, contents(one)) == (True, {"x.py": wanted})
    text = git.diff(one.changes)
    assert contents(applied(git, text, Tree({"x.py": upstream}))) == {"x.py": wanted}


def test_a_merge_is_of_what_earlier_patches_made(git: Git) -> None:
    again = CHANGE.replace(b"-line 10\n+changed", b"-changed\n+again")
    upstream = OLD.replace(b"line 8\n", b"eight\n")
    sets = [patches("us", a=CHANGE, b=again)]
    ((_, found),) = ported(git, sets, Tree({"x.py": upstream}), lambda: Tree({"x.py": OLD}))
    assert [contents(one) for one in found][-1] == {"x.py": upstream.replace(b"line 10", b"again")}


def test_a_conflict_shows_both_sides(git: Git) -> None:
    upstream = OLD.replace(b"line 10\n", b"upstream\n")
    new = b"--- /dev/null\n+++ b/y.py\n@@ -0,0 +1 @@\n+y\n"
    sets = [patches("us", core=CHANGE + new)]
    ((_, (one,)),) = ported(git, sets, Tree({"x.py": upstream, "y.py": b"z\n"}), lambda: Tree({"x.py": OLD}))
    first, second = one.problems
    assert (first.path, second.path) == ("x.py", "y.py")
    assert [line for line in first.lines if line[0] not in "<=>|"] == ["upstream", "line 10", "changed"]


def test_the_result_of_a_patch_at_another_place_does_not_count(git: Git) -> None:
    body = b"    a = 1\n    b = 2\n    log()\n    c = 3\n    d = 4\n"
    before = b"def f():\n" + body + b"\n\ndef g():\n" + body.replace(b"    log()\n", b"")
    text = HEAD + b"@@ -2,5 +2,4 @@ def f():\n     a = 1\n     b = 2\n-    log()\n     c = 3\n     d = 4\n"
    upstream = before.replace(b"    log()\n", b"    log(2)\n")
    tree = Tree({"x.py": upstream})
    assert applied(git, text, tree).already, "git finds it in g"
    ((_, (one,)),) = ported(git, [patches("us", core=text)], tree, lambda: Tree({"x.py": before}))
    assert (one.ok, [problem.path for problem in one.problems]) == (False, ["x.py"])
