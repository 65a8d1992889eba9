"""One file's part of a patch on the file's bytes: where each hunk goes, and what is left undone."""

from __future__ import annotations

import difflib
from dataclasses import replace

import pytest

from cannery.patches.apply import FileResult, Outcome, apply_file
from cannery.patches.patch_text import parse_patch
from cannery.patches.values import Change, FilePatch

OLD = "".join(f"line {number}\n" for number in range(1, 41))


def patch_of(before: str, after: str, *, context: int = 3) -> FilePatch:
    """The patch that makes `after` of `before`, as difflib writes it (both end with a line feed, or have no lines)."""
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/x.py", "b/x.py", n=context)
    return read("".join(lines).encode())


def read(data: bytes) -> FilePatch:
    [patch] = parse_patch("made", data).files
    return patch


def swapped(text: str, *numbers: int) -> str:
    """`text` with the lines of these numbers changed."""
    for number in numbers:
        assert f"line {number}\n" in text
        text = text.replace(f"line {number}\n", f"changed {number}\n")
    return text


def seen(result: FileResult) -> list[tuple[Outcome, int | None, int, int]]:
    return [(hunk.outcome, hunk.line, hunk.offset, hunk.fuzz) for hunk in result.hunks]


def text(result: FileResult) -> str:
    assert result.ok
    assert result.after is not None
    return result.after.decode()


TWO = patch_of(OLD, swapped(OLD, 10, 30))


def test_it_applies_where_it_says() -> None:
    result = apply_file(TWO, OLD.encode())
    assert seen(result) == [(Outcome.APPLIES, 7, 0, 0), (Outcome.APPLIES, 27, 0, 0)]
    assert text(result) == swapped(OLD, 10, 30)
    assert (result.problem, result.already, result.note) == ("", False, "")


@pytest.mark.parametrize(("drift", "offset"), [("new\n" * 2, 2), ("", -3)])
def test_offset_down_and_up_is_the_same_for_all_hunks_behind(drift: str, offset: int) -> None:
    before = drift + (OLD if drift else OLD.split("line 3\n")[1])
    result = apply_file(TWO, before.encode())
    assert seen(result) == [(Outcome.OFFSET, 7 + offset, offset, 0), (Outcome.OFFSET, 27 + offset, offset, 0)]
    assert text(result) == swapped(before, 10, 30)


def test_a_hunk_goes_to_the_nearest_place_seen_from_where_earlier_hunks_moved() -> None:
    block = "start\nsame\nend\n"
    filler = "".join(f"f{number}\n" for number in range(10))
    old = f"{filler}first\n{filler}{block}{filler}"
    patch = patch_of(old, old.replace("first", "FIRST").replace("same", "SAME"), context=1)
    # Six lines in front move both hunks; where the second one was first, and six lines off, its lines stand as well.
    before = f"{'n' * 1}\n" * 6 + f"{filler}first\n{filler[:-6]}{block}{filler}{block}"
    result = apply_file(patch, before.encode())
    assert [hunk.offset for hunk in result.hunks] == [6, 4]
    assert text(result) == before.replace("first", "FIRST").replace("same", "SAME", 1)


def test_of_two_equally_near_places_the_later_one_is_taken() -> None:
    old = "0\n1\n2\n3\n4\na\nb\nc\n5\n6\n"
    patch = patch_of(old, old.replace("b", "B"), context=1)
    before = "0\n1\n2\na\nb\nc\n3\n4\n5\na\nb\nc\n"  # at lines 4 and 10; the header says 6, so 4 is nearer
    assert seen(apply_file(patch, before.encode())) == [(Outcome.OFFSET, 4, -2, 0)]
    before = "0\n1\n2\na\nb\nc\n3\na\nb\nc\n"  # at lines 4 and 8
    result = apply_file(patch, before.encode())
    assert seen(result) == [(Outcome.OFFSET, 8, 2, 0)]
    assert text(result) == "0\n1\n2\na\nb\nc\n3\na\nB\nc\n"


def test_a_hunk_of_the_files_start_or_end_fits_nowhere_else() -> None:
    first, last = patch_of(OLD, swapped(OLD, 1)), patch_of(OLD, swapped(OLD, 40))
    assert text(apply_file(first, OLD.encode())) == swapped(OLD, 1)
    assert text(apply_file(last, OLD.encode())) == swapped(OLD, 40)
    assert seen(apply_file(first, b"new\n" + OLD.encode())) == [(Outcome.CONFLICT, None, 0, 0)]
    assert seen(apply_file(last, OLD.encode() + b"new\n")) == [(Outcome.CONFLICT, None, 0, 0)]
    assert seen(apply_file(last, b"new\n" + OLD.encode())) == [(Outcome.OFFSET, 38, 1, 0)]


@pytest.mark.parametrize(("outer", "needed"), [((7,), 1), ((13,), 1), ((8,), 2), ((7, 12), 2)])
def test_fuzz_is_refused_unless_it_is_allowed(outer: tuple[int, ...], needed: int) -> None:
    patch = patch_of(OLD, swapped(OLD, 10))
    before = swapped(OLD, *outer).encode()
    for allowed in range(needed):
        result = apply_file(patch, before, fuzz=allowed)
        assert seen(result) == [(Outcome.CONFLICT, None, 0, 0)]
        assert (result.hunks[0].needs_fuzz, result.after, result.ok) == (needed, None, False)
    result = apply_file(patch, b"new\n" + before, fuzz=needed)
    assert seen(result) == [(Outcome.FUZZ, 8, 1, needed)]
    # Context that differs stays as the file has it.
    assert text(result) == "new\n" + swapped(OLD, 10, *outer)


def test_fuzz_never_lets_go_of_what_is_changed() -> None:
    patch = patch_of(OLD, swapped(OLD, 10))
    result = apply_file(patch, swapped(OLD, 9).encode(), fuzz=2)
    assert (seen(result), result.hunks[0].needs_fuzz) == ([(Outcome.CONFLICT, None, 0, 0)], 0)
    # All context let go of an insertion would leave nothing to look for.
    insertion = patch_of("a\nb\n", "a\nnew\nb\n", context=1)
    assert seen(apply_file(insertion, b"c\nd\n", fuzz=2)) == [(Outcome.CONFLICT, None, 0, 0)]


def test_a_conflict_tells_both_sides_where_they_are_nearest() -> None:
    before = "new\n" + OLD.replace("line 10\n", "other 10\n")
    result = apply_file(TWO, before.encode())
    assert seen(result) == [(Outcome.CONFLICT, None, 0, 0), (Outcome.OFFSET, 28, 1, 0)]
    conflict = result.hunks[0]
    assert conflict.expected == tuple(f"line {number}\n".encode() for number in range(7, 14))
    assert conflict.found == tuple(line.replace(b"line 10", b"other 10") for line in conflict.expected)
    assert (conflict.found_line, conflict.needs_fuzz) == (8, 0)
    assert (result.ok, result.after, result.problem) == (False, None, "")


def test_a_conflict_with_a_file_that_is_shorter_than_the_hunk() -> None:
    [conflict] = apply_file(patch_of(OLD, swapped(OLD, 10)), b"line 10\n").hunks
    assert (conflict.found, conflict.found_line) == ((b"line 10\n",), 1)
    [conflict] = apply_file(patch_of(OLD, swapped(OLD, 10)), b"").hunks
    assert (conflict.found, conflict.found_line) == ((), 1)


def test_what_is_there_already_is_told_and_not_done_again() -> None:
    after = swapped(OLD, 10, 30).encode()
    result = apply_file(TWO, after)
    assert (seen(result)[0], result.already) == ((Outcome.ALREADY, 7, 0, 0), True)
    result = apply_file(TWO, b"new\n" + after, anywhere=True)
    assert seen(result) == [(Outcome.ALREADY, 8, 1, 0), (Outcome.ALREADY, 28, 1, 0)]
    assert (result.ok, result.already, result.after) == (True, True, b"new\n" + after)


BODY = "    x = 1\n    y = 1\n{}    z = 2\n    return z\n"
CHECK = '    print("checked")\n'
CHANGED_A = f"def a():\n    return 3\n\n\ndef b():\n{BODY.format(CHECK)}"


def check_in(head: bytes) -> FilePatch:
    """The patch that puts `CHECK` into a function of five lines, as git writes it of one behind line 1."""
    lines = [f" {line}\n" for line in BODY.format("").splitlines()]
    return read(
        b"--- a/x.py\n+++ b/x.py\n@@ -2,4 +2,5 @@ " + head + "".join([*lines[:2], "+" + CHECK, *lines[2:]]).encode()
    )


def test_what_stands_in_another_function_is_no_hunk_that_is_there() -> None:
    result = apply_file(check_in(b"def a():\n"), CHANGED_A.encode())
    assert (seen(result), result.after) == ([(Outcome.CONFLICT, None, 0, 0)], None)
    assert result.hunks[0].elsewhere == 6
    assert apply_file(check_in(b"def a():\n"), CHANGED_A.encode(), anywhere=True).already


@pytest.mark.parametrize(
    ("head", "before", "already"),
    [
        ("def a():\n", f"import os\n\ndef a():\n{BODY.format(CHECK)}", True),
        ("", f"import os\n\ndef a():\n{BODY.format(CHECK)}", False),
        ("else:\n", f"if x:\n  y\nelse:\n{BODY.format(CHECK)}else:\n", False),
        ("class A:\n", f"class A:\n  def a():\n    return 3\n  def b():\n{BODY.format(CHECK)}", False),
        ("class A:\n", f"import os\n\nclass A:\n{BODY.format(CHECK)}", True),
        ("class A:\n", f"import os\n\nclass A:\n{BODY.format(CHECK)}\nclass A:\n    pass\n", False),
    ],
)
def test_a_hunk_is_there_at_another_line_in_its_own_scope_only(head: str, before: str, already: bool) -> None:
    result = apply_file(check_in(head.encode() or b"\n"), before.encode())
    assert (result.already, result.ok) == (already, already)


def test_a_change_outside_of_functions_is_there_where_it_stands_once() -> None:
    hunk = read(b"--- a/x.py\n+++ b/x.py\n@@ -2,2 +2,3 @@\n import os\n+import re\n import sys\n")
    after = b"# more\n# lines\n\nimport os\nimport re\nimport sys\n"
    assert seen(apply_file(hunk, after)) == [(Outcome.ALREADY, 4, 2, 0)]
    assert not apply_file(hunk, after * 2).ok


def test_a_method_that_the_hunk_itself_shows_is_its_scope() -> None:
    hunk = b"--- a/x.py\n+++ b/x.py\n@@ -2,2 +2,3 @@ class A:\n   def b():\n+    x = 1\n     return 3\n"
    after = b"import os\nclass A:\n  k = 1\n  def b():\n    x = 1\n    return 3\n"
    assert seen(apply_file(read(hunk), after)) == [(Outcome.ALREADY, 4, 2, 0)]
    assert not apply_file(read(hunk), after.replace(b"class A", b"class B")).ok


@pytest.mark.parametrize("there", [10, 30])
def test_one_of_two_hunks_is_there(there: int) -> None:
    longer = OLD.replace("line 10\n", "a\nb\nc\n").replace("line 30\n", "d\ne\n")
    patch = patch_of(OLD, longer)
    before = OLD.replace(f"line {there}\n", {10: "a\nb\nc\n", 30: "d\ne\n"}[there])
    result = apply_file(patch, before.encode())
    outcomes = [Outcome.ALREADY, Outcome.APPLIES] if there == 10 else [Outcome.APPLIES, Outcome.ALREADY]
    # The lines that the first one has brought already are no offset of the second.
    assert seen(result) == [(outcomes[0], 7, 0, 0), (outcomes[1], 29, 0, 0)]
    assert (text(result), result.already) == (longer, False)


def test_an_insertion_at_the_end_is_not_done_twice() -> None:
    patch = patch_of("a\nb\nc\n", "a\nb\nc\nd\n")
    once = apply_file(patch, b"a\nb\nc\n")
    assert text(once) == "a\nb\nc\nd\n"
    again = apply_file(patch, once.after)
    assert (again.already, again.after) == (True, once.after)


def test_hunks_without_context() -> None:
    new = OLD.replace("line 10\n", "line 10\nnew\n").replace("line 20\n", "")
    patch = patch_of(OLD, new, context=0)
    assert [(hunk.old_count, hunk.new_count) for hunk in patch.hunks] == [(0, 1), (1, 0)]
    result = apply_file(patch, OLD.encode())
    assert seen(result) == [(Outcome.APPLIES, 11, 0, 0), (Outcome.APPLIES, 21, 0, 0)]
    assert text(result) == new
    # A line that is gone leaves nothing by which to know that; the insertion is there, at its very line.
    again = apply_file(patch, new.encode())
    assert [hunk.outcome for hunk in again.hunks] == [Outcome.ALREADY, Outcome.CONFLICT]
    assert [hunk.outcome for hunk in apply_file(patch, b"line 1\n").hunks] == [Outcome.CONFLICT] * 2


def test_hunks_may_share_no_line() -> None:
    hunk = b"@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"
    patch = read(b"--- a/x\n+++ b/x\n" + hunk + hunk)
    result = apply_file(patch, b"one\ntwo\nthree\n")
    assert [found.outcome for found in result.hunks] == [Outcome.APPLIES, Outcome.CONFLICT]


@pytest.mark.parametrize(
    ("before", "after"), [(b"a\nx", b"a\ny\n"), (b"a\nx\n", b"a\ny"), (b"a\nx", b"a\ny"), (b"a\nx", b"a\nx\n")]
)
def test_no_newline_at_the_end(before: bytes, after: bytes) -> None:
    mark = b"\n\\ No newline at end of file\n"
    sides = [b"-" + before[2:], b"+" + after[2:]]
    body = b"".join(side if side.endswith(b"\n") else side + mark for side in sides)
    patch = read(b"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n" + body)
    result = apply_file(patch, before)
    assert (result.ok, result.after) == (True, after)
    assert apply_file(patch, after).already
    # The other line end is another line.
    other = before.removesuffix(b"\n") if before.endswith(b"\n") else before + b"\n"
    if other != after:
        assert not apply_file(patch, other).ok


def test_a_line_without_an_end_gets_one_where_fuzz_puts_a_line_behind_it() -> None:
    patch = read(b"--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n a\n b\n+c\n")
    result = apply_file(patch, b"a\nb", fuzz=1)
    assert (result.ok, result.hunks[0].needs_fuzz) == (False, 0)
    patch = read(b"--- a/x\n+++ b/x\n@@ -1,3 +1,4 @@\n a\n b\n c\n+d\n")
    assert apply_file(patch, b"a\nb\nc", fuzz=2).ok is False
    patch = read(b"--- a/x\n+++ b/x\n@@ -2,3 +2,4 @@\n b\n+d\n c\n e\n")
    assert apply_file(patch, b"a\nb\nc\ne", fuzz=1).after == b"a\nb\nd\nc\ne"


LOST = b"--- a/x.py\n+++ b/x.py\n@@ -9,4 +9,4 @@\n line 9\n-line 10\n+changed 10\n line 11\n"


def test_a_hunk_that_has_lost_its_last_context_line_needs_fuzz_one() -> None:
    patch = read(LOST)
    before = OLD.encode()
    refused = apply_file(patch, before)
    assert (refused.ok, refused.hunks[0].needs_fuzz) == (False, 1)
    result = apply_file(patch, b"new\n" + before, fuzz=1)
    assert seen(result) == [(Outcome.FUZZ, 10, 1, 1)]
    assert text(result) == "new\n" + swapped(OLD, 10)
    assert apply_file(patch, result.after, fuzz=1, anywhere=True).already
    # The last line is cut as well: both are of no use.
    assert apply_file(read(LOST.removesuffix(b"1\n")), before, fuzz=1).ok is False
    cut = apply_file(read(LOST.replace(b"-9,4 +9,4", b"-9,5 +9,5") + b" line"), before, fuzz=2)
    assert (seen(cut), text(cut)) == ([(Outcome.FUZZ, 9, 0, 2)], swapped(OLD, 10))


def test_crlf_is_kept_byte_for_byte() -> None:
    before, after = OLD.replace("\n", "\r\n").encode(), swapped(OLD, 10).replace("\n", "\r\n").encode()
    lines = b"".join(
        line.replace(b"\n", b"\r\n") if index > 2 else line
        for index, line in enumerate("".join(_diff(OLD, swapped(OLD, 10))).encode().splitlines(True))
    )
    result = apply_file(read(lines), before)
    assert (result.after, result.note) == (after, "")
    assert not apply_file(read(lines), OLD.encode()).ok


def test_a_patch_file_that_is_all_crlf_fits_files_of_both_kinds() -> None:
    patch = read("".join(_diff(OLD, swapped(OLD, 10))).replace("\n", "\r\n").encode())
    windows = apply_file(patch, OLD.replace("\n", "\r\n").encode())
    assert (windows.after, windows.note) == (swapped(OLD, 10).replace("\n", "\r\n").encode(), "")
    unix = apply_file(patch, OLD.encode())
    assert (unix.after, unix.note) == (
        swapped(OLD, 10).encode(),
        "the patch file's CRLF line ends are read as LF",
    )


def _diff(before: str, after: str) -> list[str]:
    return list(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/x.py", "b/x.py"))


NEW = read(b"--- /dev/null\n+++ b/x.py\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n")
GONE = read(b"--- a/x.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n")


def test_a_new_file() -> None:
    made = apply_file(NEW, None)
    assert (seen(made), made.after, made.already) == ([(Outcome.APPLIES, 1, 0, 0)], b"a\nb", False)
    there = apply_file(NEW, b"a\nb")
    assert (seen(there), there.after, there.already) == ([(Outcome.ALREADY, 1, 0, 0)], b"a\nb", True)
    assert apply_file(NEW, b"").after == b"a\nb"
    other = apply_file(NEW, b"a\nb\n")
    assert (other.ok, other.after, other.problem) == (False, None, "it exists already, with other content")
    assert (other.hunks[0].outcome, other.hunks[0].found) == (Outcome.CONFLICT, (b"a\n", b"b\n"))


def test_a_deleted_file() -> None:
    gone = apply_file(GONE, b"a\nb\n")
    assert (seen(gone), gone.after, gone.ok, gone.already) == ([(Outcome.APPLIES, 1, 0, 0)], None, True, False)
    there = apply_file(GONE, None)
    assert (there.after, there.ok, there.already) == (None, True, True)
    other = apply_file(GONE, b"a\nb\nc\n")
    assert (other.ok, other.problem) == (False, "it is to be deleted, and its content is not what the patch knows")
    assert (other.hunks[0].expected, other.hunks[0].found) == ((b"a\n", b"b\n"), (b"a\n", b"b\n", b"c\n"))


def test_files_without_content() -> None:
    added, deleted = FilePatch(Change.ADDED, None, "x", ()), FilePatch(Change.DELETED, "x", None, ())
    assert (apply_file(added, None).after, apply_file(added, b"").already) == (b"", True)
    assert not apply_file(added, b"a\n").ok
    assert (apply_file(deleted, b"").ok, apply_file(deleted, b"").already) == (True, False)
    assert apply_file(deleted, None).already
    assert not apply_file(deleted, b"a\n").ok


def test_a_file_that_is_not_there() -> None:
    result = apply_file(TWO, None)
    assert (result.ok, result.after, result.problem, result.hunks) == (False, None, "the file does not exist", ())
    # A diff without -N and dates has no other word for a file that is new.
    assert apply_file(read(b"--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"), None).after == b"a\n"


def test_renames() -> None:
    patch = replace(TWO, change=Change.RENAMED, new_path="y.py")
    after = swapped(OLD, 10, 30).encode()
    moved = apply_file(patch, OLD.encode())
    assert (moved.after, moved.already) == (after, False)
    there = apply_file(patch, None, target=after)
    assert (there.after, there.already) == (after, True)
    half = apply_file(patch, None, target=OLD.encode())
    assert (half.after, half.already) == (after, False)
    both = apply_file(patch, OLD.encode(), target=b"other\n")
    assert (both.ok, both.problem) == (False, "it is to become y.py, which exists already")
    neither = apply_file(patch, None)
    assert (neither.ok, neither.problem) == (False, "the file does not exist")
    bare = replace(patch, hunks=())
    assert (apply_file(bare, b"a\n").after, apply_file(bare, b"a\n").already) == (b"a\n", False)
    assert apply_file(bare, None, target=b"a\n").already


def test_copies() -> None:
    patch = replace(TWO, change=Change.COPIED, new_path="y.py")
    after = swapped(OLD, 10, 30).encode()
    assert apply_file(patch, OLD.encode()).after == after
    assert apply_file(patch, OLD.encode(), target=after).already
    other = apply_file(patch, OLD.encode(), target=b"other\n")
    assert (other.ok, other.problem) == (False, "y.py exists already, with other content")
    bare = replace(patch, hunks=())
    assert apply_file(bare, b"a\n").after == b"a\n"
    assert apply_file(bare, b"a\n", target=b"a\n").already
    assert not apply_file(bare, b"a\n", target=b"b\n").ok


def test_a_change_of_mode_alone_leaves_the_bytes() -> None:
    patch = FilePatch(Change.MODIFIED, "run.sh", "run.sh", (), "100644", "100755")
    result = apply_file(patch, b"a\n")
    assert (result.ok, result.after, result.already) == (True, b"a\n", False)


@pytest.mark.parametrize("body", [b" a\n b\n", b" a\n-b\n+b\n"])
def test_a_hunk_that_changes_nothing_is_a_problem(body: bytes) -> None:
    result = apply_file(read(b"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ def f\n" + body), b"a\nb\n")
    assert (result.ok, result.problem) == (False, "hunk 1 (@@ -1,2 +1,2 @@ def f) changes nothing")
