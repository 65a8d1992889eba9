"""Patch files as values, and what is refused in reading them."""

from __future__ import annotations

import hashlib

import pytest

from cannery.errors import ExitCode
from cannery.patches.patch_hunk import HunkLine, PatchError
from cannery.patches.patch_text import parse_patch
from cannery.patches.values import Change, FilePatch

HUNK = b"@@ -1,3 +1,3 @@ class Thing:\n one\n-two\n+TWO\n three\n"
HEADER = b"--- a/pkg/x.py\n+++ b/pkg/x.py\n"


def parsed(data: bytes) -> FilePatch:
    found = parse_patch("made", data)
    assert found.notes == ()
    assert len(found.files) == 1
    return found.files[0]


def refused(data: bytes) -> PatchError:
    with pytest.raises(PatchError) as error:
        parse_patch("made", data)
    assert error.value.code is ExitCode.FINDINGS
    return error.value


def test_a_git_diff_among_other_text() -> None:
    data = (
        b"From 1234 Mon Sep 17 00:00:00 2001\nSubject: a change\n---\n pkg/x.py | 2 +-\n\n"
        b"diff --git a/pkg/x.py b/pkg/x.py\nindex 123..456 100644\n" + HEADER + HUNK + b"-- \n2.39.5\n"
    )
    file = parse_patch("made", data)
    assert (file.name, file.digest) == ("made", hashlib.sha256(data).hexdigest())
    [patch] = file.files
    assert (patch.change, patch.old_path, patch.new_path, patch.path) == (
        Change.MODIFIED,
        "pkg/x.py",
        "pkg/x.py",
        "pkg/x.py",
    )
    [hunk] = patch.hunks
    assert (hunk.number, hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count) == (1, 1, 3, 1, 3)
    assert (hunk.line_number, hunk.section, hunk.header) == (10, "class Thing:", "@@ -1,3 +1,3 @@ class Thing:")
    assert hunk.lines == (
        HunkLine(" ", b"one\n"),
        HunkLine("-", b"two\n"),
        HunkLine("+", b"TWO\n"),
        HunkLine(" ", b"three\n"),
    )
    assert (hunk.old, hunk.new) == ((b"one\n", b"two\n", b"three\n"), (b"one\n", b"TWO\n", b"three\n"))
    assert (hunk.prefix, hunk.suffix, hunk.missing) == (1, 1, 0)


def test_several_files_and_hunks() -> None:
    data = HEADER + HUNK + b"@@ -9 +9 @@\n-x\n+y\n" + HEADER.replace(b"x.py", b"y.py") + HUNK
    files = parse_patch("made", data).files
    assert [(file.path, [hunk.number for hunk in file.hunks]) for file in files] == [
        ("pkg/x.py", [1, 2]),
        ("pkg/y.py", [1]),
    ]
    assert files[0].hunks[1].header == "@@ -9,1 +9,1 @@"


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (b"a/pkg/x.py", b"b/pkg/x.py", "pkg/x.py"),
        (b"i/pkg/x.py", b"w/pkg/x.py", "pkg/x.py"),
        (b"orig/pkg/x.py", b"mine/pkg/x.py", "pkg/x.py"),
        (b"pkg/x.py", b"pkg/x.py", "pkg/x.py"),
        (b"x.py", b"x.py", "x.py"),
        (b"a/x.py", b"a/x.py", "x.py"),
        (b"./pkg/x.py.orig", b"./pkg/x.py", "pkg/x.py"),
        (b"x.py.orig", b"x.py", "x.py"),
        (b"a/x.py", b"b/x.py.new", "x.py"),
        (
            b"a/x.py\t2025-01-02 03:04:05.000000000 +0000",
            b"b/x.py\t2025-01-02 03:04:06.000000000 +0000",
            "x.py",
        ),
        (b'"a/\\303\\251 \\"q\\".py"', b'"b/\\303\\251 \\"q\\".py"', 'é "q".py'),
        (b"a/with blank.py\t", b"b/with blank.py\t", "with blank.py"),
    ],
)
def test_paths_of_plain_diffs(old: bytes, new: bytes, path: str) -> None:
    patch = parsed(b"diff -u " + old + b" " + new + b"\n--- " + old + b"\n+++ " + new + b"\n" + HUNK)
    assert (patch.change, patch.old_path, patch.new_path) == (Change.MODIFIED, path, path)


@pytest.mark.parametrize(
    ("header", "path"),
    [
        (b"diff --git pkg/x.py pkg/x.py\nnew file mode 100644\n--- /dev/null\n+++ pkg/x.py\n", "pkg/x.py"),
        (b"diff --git a/pkg/x.py b/pkg/x.py\nnew file mode 100644\n--- /dev/null\n+++ b/pkg/x.py\n", "pkg/x.py"),
        (b"--- /dev/null\n+++ b/pkg/x.py\n", "pkg/x.py"),
        (b"--- /dev/null\n+++ pkg/x.py\n", "pkg/x.py"),
        (b"--- a/x.py\t1970-01-01 01:00:00.000000000 +0100\n+++ b/x.py\t2025-01-02 03:04:05 +0000\n", "x.py"),
    ],
)
def test_a_new_file(header: bytes, path: str) -> None:
    patch = parsed(header + b"@@ -0,0 +1 @@\n+x\n")
    assert (patch.change, patch.old_path, patch.new_path) == (Change.ADDED, None, path)


@pytest.mark.parametrize(
    "header",
    [
        b"diff --git a/x.py b/x.py\ndeleted file mode 100755\n--- a/x.py\n+++ /dev/null\n",
        b"--- a/x.py\n+++ /dev/null\n",
        b"--- old/x.py\t2025-01-02 03:04:05 +0000\n+++ new/x.py\t1970-01-01 00:00:00.000000000 +0000\n",
    ],
)
def test_a_deleted_file(header: bytes) -> None:
    patch = parsed(header + b"@@ -1 +0,0 @@\n-x\n")
    assert (patch.change, patch.old_path, patch.new_path, patch.path) == (Change.DELETED, "x.py", None, "x.py")


def test_a_file_without_content_is_added_and_deleted_without_a_hunk() -> None:
    added = parsed(b"diff --git a/p/__init__.py b/p/__init__.py\nnew file mode 100644\nindex 000..e69\n")
    assert (added.change, added.new_path, added.hunks, added.new_mode) == (Change.ADDED, "p/__init__.py", (), "100644")
    deleted = parsed(b"diff --git a/p q.py b/p q.py\ndeleted file mode 100755\nindex e69..000\n")
    assert (deleted.change, deleted.old_path, deleted.old_mode) == (Change.DELETED, "p q.py", "100755")


def test_renames_copies_and_modes() -> None:
    names = b"diff --git a/a/one.py b/b/two.py\nsimilarity index 90%\n"
    patch = parsed(
        names + b"rename from a/one.py\nrename to b/two.py\nindex 1..2 100644\n--- a/a/one.py\n+++ b/b/two.py\n" + HUNK
    )
    # The lines `rename from` and `to` have no first folder to take off.
    assert (patch.change, patch.old_path, patch.new_path) == (Change.RENAMED, "a/one.py", "b/two.py")
    assert len(patch.hunks) == 1
    copy = parsed(names + b'copy from a/one.py\ncopy to "b/tw\\303\\266.py"\n')
    assert (copy.change, copy.old_path, copy.new_path, copy.hunks) == (Change.COPIED, "a/one.py", "b/twö.py", ())
    mode = parsed(b"diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n")
    assert (mode.change, mode.path, mode.old_mode, mode.new_mode) == (Change.MODIFIED, "run.sh", "100644", "100755")


@pytest.mark.parametrize(
    ("body", "old", "new"),
    [
        (b"@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+x\n", b"x", b"x\n"),
        (b"@@ -1 +1 @@\n-x\n+x\n\\ No newline at end of file\n", b"x\n", b"x"),
        (b"@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+y\n\\ No newline at end of file\n", b"x", b"y"),
        (b"@@ -1 +1,2 @@\n+y\n x\n\\ Kein Zeilenumbruch am Dateiende.", b"x", b"y\nx"),
    ],
)
def test_no_newline_at_the_end(body: bytes, old: bytes, new: bytes) -> None:
    [hunk] = parsed(HEADER + body).hunks
    assert (b"".join(hunk.old), b"".join(hunk.new)) == (old, new)


def test_an_empty_context_line_may_have_lost_its_blank() -> None:
    [hunk] = parsed(HEADER + b"@@ -1,3 +1,3 @@\n\n-two\n+TWO\n three\n").hunks
    assert hunk.old == (b"\n", b"two\n", b"three\n")


def test_lines_end_at_line_feeds_only() -> None:
    [hunk] = parsed(HEADER + b"@@ -1,2 +1,2 @@\n a\x0cb\xe2\x80\xa8c\rd\n-x\r\n+y\r\n").hunks
    assert hunk.lines[0].text == b"a\x0cb\xe2\x80\xa8c\rd\n"
    assert [line.text for line in hunk.lines[1:]] == [b"x\r\n", b"y\r\n"]


def test_a_patch_file_with_crlf_keeps_it_and_says_so() -> None:
    patch = parsed((b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n" + HUNK).replace(b"\n", b"\r\n"))
    assert (patch.path, patch.crlf, patch.hunks[0].section) == ("x.py", True, "class Thing:")
    assert patch.hunks[0].old == (b"one\r\n", b"two\r\n", b"three\r\n")
    assert not parsed(HEADER + HUNK).crlf


def test_a_lost_last_context_line_is_noted() -> None:
    file = parse_patch("made", HEADER + HUNK.replace(b"-1,3 +1,3", b"-1,4 +1,4"))
    assert file.notes == ("pkg/x.py: hunk 1 ends without its last context line",)
    [hunk] = file.files[0].hunks
    assert (hunk.missing, hunk.suffix, hunk.old) == (1, 2, (b"one\n", b"two\n", b"three\n"))


def test_a_patch_that_ends_within_a_line_is_noted() -> None:
    file = parse_patch("made", (HEADER + HUNK).removesuffix(b"\n"))
    assert file.notes == (
        "pkg/x.py: the patch file ends within the last line of hunk 1, which is read as one without a line end",
    )
    assert file.files[0].hunks[0].old[-1] == b"three"


GIT = b"diff --git a/x b/x\n"


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"", "", "the patch is empty"),
        (b" \n\r\n", "", "the patch is empty"),
        (b"just words\n", "", "it holds no diff, and a unified one is needed"),
        (
            b"*** a/x\n--- b/x\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n",
            "",
            "it holds a context diff, and a unified one is needed",
        ),
        (GIT + b"index 1..2\nGIT binary patch\nliteral 3\n", ":3", "it changes a binary file"),
        (GIT + b"Binary files a/x and b/x differ\n", ":2", "it changes a binary file"),
        (b"Binary files a/x and b/x differ\n", ":1", "it changes a binary file"),
        (GIT + b"new file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+t\n", ":1", "a symlink (mode 120000)"),
        (GIT + b"index 1..2 120000\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-t\n+u\n", ":1", "a symlink (mode 120000)"),
        (GIT + b"old mode 100644\nnew mode 120000\n", ":1", "a symlink (mode 120000)"),
        (GIT + b"index 1..2 160000\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-t\n+u\n", ":1", "a submodule (mode 160000)"),
        (GIT + b"new file mode 100600\n", ":1", "no mode of a file: 100600"),
        (b"diff --cc x\nindex 1,2..3\n--- a/x\n+++ b/x\n@@@ -1,1 -1,1 +1,1 @@@\n", ":1", "it is a combined diff"),
        (b"@@ -1 +1 @@\n-a\n+b\n", ":1", "a hunk without the `---` and `+++` lines"),
        (GIT, ":1", "the part of x has no hunk and changes nothing"),
        (GIT + b"--- a/x\n+++ b/x\nwords\n", ":4", "no hunk (`@@ -…`) follows the header of x"),
        (b"--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", ":1", "both sides are /dev/null"),
        (b"diff --git a/x b/y c/z\nold mode 100644\nnew mode 100755\n", ":1", "does not tell the file's path"),
        (b"--- /dev/null\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", ":1", "x is added, and has lines on both sides"),
        (b"--- a/x\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", ":1", "x is deleted, and has lines on both sides"),
        (HEADER + b"@@ -1 +1 @@\n\\ No newline\n-a\n+b\n", ":4", "hunk 1 begins with `\\ No newline`"),
        (HEADER + b"@@ -1,2 +1,2 @@\n a\n\\ No newline\n-b\n+c\n", ":3", "of a line that is not its last"),
    ],
)
def test_what_is_refused(data: bytes, line: str, words: str) -> None:
    error = refused(data)
    assert error.where == f"made.patch{line}"
    assert words in error.what


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (HEADER + HUNK + b"+more\n", 8, "its header says 3 old and 3 new lines, and more follow"),
        (HEADER + HUNK + b" more\n" + HEADER + HUNK, 8, "and more follow"),
        (HEADER + HUNK.replace(b"+1,3", b"+1,2"), 7, "3 old and 2 new lines, and another one of them follows"),
        (HEADER + HUNK.replace(b"-1,3 +1,3", b"-1,5 +1,5"), 3, "2 old and 2 new ones are missing"),
        (HEADER + HUNK.replace(b"+1,3", b"+1,4"), 3, "0 old and 1 new ones are missing"),
        # Only a file's very end can have lost a line.
        (HEADER + HUNK.replace(b"-1,3 +1,3", b"-1,4 +1,4") + b"@@ -9 +9 @@\n-x\n+y\n", 3, "1 old and 1 new ones"),
    ],
)
def test_a_hunk_whose_counts_are_wrong(data: bytes, line: int, words: str) -> None:
    error = refused(data)
    assert error.where == f"made.patch:{line}"
    assert error.what.startswith("hunk 1 is malformed: ")
    assert words in error.what
    assert "git diff" in error.hint


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (b"/etc/passwd", "is absolute"),
        (b"b//etc/passwd", "is absolute"),
        (b"b/../x", "leads outside the tree"),
        (b"b/x/../../y", "leads outside the tree"),
        (b'"b/\\056\\056/x"', "leads outside the tree"),
        (b"b/.git/hooks/pre-commit", "lies in .git"),
        (b"b/sub/.GIT/config", "lies in .git"),
        (b"b/x//y", "is no path of a file"),
        (b"b/./x", "is no path of a file"),
        (b"b/x/", "is no path of a file"),
        (b'"b/x\\ny"', "holds a control sign"),
        (b'"b/\\377"', "is not UTF-8"),
    ],
)
def test_paths_that_could_leave_the_tree(path: bytes, words: str) -> None:
    added = refused(b"--- /dev/null\n+++ " + path + b"\n@@ -0,0 +1 @@\n+x\n")
    assert (added.where, words in added.what) == ("made.patch:1", True)
    old = b'"a' + path[2:] if path.startswith(b'"') else b"a" + path[1:] if path.startswith(b"b/") else path
    changed = refused(b"--- " + old + b"\n+++ " + path + b"\n" + HUNK)
    assert words in changed.what


def test_one_path_outside_the_tree_is_enough() -> None:
    assert "is absolute" in refused(b"--- a/x.py\n+++ /etc/x.py\n" + HUNK).what
    assert "leads outside the tree" in refused(b"--- ../x.py\n+++ b/x.py\n" + HUNK).what


def test_a_rename_cannot_leave_the_tree_either() -> None:
    for pair in (b"rename from x\nrename to ../y\n", b"rename from ../x\nrename to y\n"):
        assert "leads outside the tree" in refused(b"diff --git a/x b/y\n" + pair).what
