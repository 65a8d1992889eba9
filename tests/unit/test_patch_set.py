"""Patch sets: found by commit, applied one patch upon the other, told in words."""

from __future__ import annotations

import difflib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cannery.errors import FindingsError
from cannery.patches.patch_text import parse_patch
from cannery.patches.set_apply import apply_set
from cannery.patches.sets import PatchSet, find_set, no_set_for
from cannery.patches.values import PatchFile

if TYPE_CHECKING:
    from cannery.patches.result import SetResult

OLD = "".join(f"line {number}\n" for number in range(1, 31))
COMMIT = "796871d7d092f7cbc6a64e7f4a3796f7a2217f5e"


def diff(path: str, before: str, after: str) -> bytes:
    """A patch of one file as text; an empty side is no file."""
    names = [f"{side}/{path}" if text else "/dev/null" for side, text in (("a", before), ("b", after))]
    return "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names)).encode()


def swapped(text: str, number: int, word: str = "changed") -> str:
    assert f" {number}\n" in text
    return "".join(
        f"{word} {number}\n" if line.endswith(f" {number}\n") else line for line in text.splitlines(keepends=True)
    )


def patches(fuzz: dict[str, int] | None = None, **files: bytes) -> PatchSet:
    return PatchSet(
        "verl", "796871d7d", "component verl-npu", tuple(parse_patch(*item) for item in files.items()), fuzz or {}
    )


@dataclass
class Tree:
    """A tree that remembers what was read."""

    files: dict[str, str]
    seen: list[str] = field(default_factory=list)

    def read(self, path: str) -> bytes | None:
        self.seen.append(path)
        return self.files[path].encode() if path in self.files else None


def applied(found: PatchSet, **files: str) -> SetResult:
    return apply_set(found, Tree({f"{name}.py": text for name, text in files.items()}).read)


def empty_set(rev: str, origin: str = "component verl-npu") -> PatchSet:
    return PatchSet("verl", rev, origin, ())


@pytest.mark.parametrize("rev", [COMMIT, COMMIT[:9], COMMIT[:7], COMMIT[:12].upper()])
@pytest.mark.parametrize("commit", [COMMIT, COMMIT[:7], COMMIT[:10].upper()])
def test_a_set_is_found_by_full_and_short_hashes(rev: str, commit: str) -> None:
    wanted = empty_set(rev)
    assert find_set([empty_set("1234567"), wanted, empty_set("796871e")], commit) is wanted


def test_no_set_for_a_commit() -> None:
    sets = [empty_set("1234567"), empty_set("abcdef0", "images/patches")]
    assert find_set(sets, COMMIT) is None
    assert find_set([], COMMIT) is None
    assert no_set_for("verl", COMMIT, sets) == (
        f"no patch set of verl is for commit {COMMIT}; there are sets for "
        "1234567 (component verl-npu), abcdef0 (images/patches)"
    )
    assert no_set_for("vllm", COMMIT, sets).endswith("there are sets for no commit at all")


@pytest.mark.parametrize("commit", ["main", "796871", "v0.7.3", COMMIT + "0"])
def test_what_is_no_hash_is_refused_on_both_sides(commit: str) -> None:
    with pytest.raises(FindingsError, match="is no commit"):
        find_set([empty_set(COMMIT)], commit)
    with pytest.raises(FindingsError, match=f"the folder verl/{commit} is named by no commit") as error:
        find_set([empty_set(commit, "PATCHES")], COMMIT)
    assert error.value.where == "PATCHES"


def test_two_sets_for_one_commit_are_an_error_that_names_both() -> None:
    with pytest.raises(FindingsError) as error:
        find_set([empty_set(COMMIT[:9]), empty_set(COMMIT, "PATCHES")], COMMIT)
    assert error.value.what == (
        f"more than one patch set fits commit {COMMIT}: "
        f"verl/{COMMIT[:9]} of component verl-npu, verl/{COMMIT} of PATCHES"
    )


def test_files_are_sorted_by_name() -> None:
    one = diff("x.py", OLD, swapped(OLD, 3))
    assert [file.name for file in patches(b=one, a=one, c=one).files] == ["a", "b", "c"]


def test_later_patches_see_what_earlier_ones_made() -> None:
    first = swapped(OLD, 3)
    second = swapped(first, 4)
    tree = Tree({"x.py": OLD})
    result = apply_set(patches(two=diff("x.py", first, second), one=diff("x.py", OLD, first)), tree.read)
    assert (result.ok, result.problems, result.notes) == (True, (), ())
    assert result.before == {"x.py": OLD.encode()}
    assert result.contents == {"x.py": second.encode()}
    assert [(one.patch.name, one.ok, one.already, one.changed) for one in result.results] == [
        ("one", True, False, ("x.py",)),
        ("two", True, False, ("x.py",)),
    ]
    assert tree.seen == ["x.py"]


def test_a_new_a_changed_and_a_deleted_file() -> None:
    files = diff("n.py", "", "new\n") + diff("x.py", OLD, swapped(OLD, 9)) + diff("d.py", "old\n", "")
    result = applied(patches(all=files), x=OLD, d="old\n", other="kept\n")
    assert result.ok
    assert result.before == {"d.py": b"old\n", "n.py": None, "x.py": OLD.encode()}
    assert result.contents == {"d.py": None, "n.py": b"new\n", "x.py": swapped(OLD, 9).encode()}


def test_a_file_that_one_patch_makes_another_changes() -> None:
    made = patches(a=diff("n.py", "", OLD), b=diff("n.py", OLD, swapped(OLD, 9)))
    assert applied(made).contents == {"n.py": swapped(OLD, 9).encode()}
    backwards = applied(patches(b=diff("n.py", "", OLD), a=diff("n.py", OLD, swapped(OLD, 9))))
    assert [(one.patch, one.path, one.what) for one in backwards.problems] == [("a", "n.py", "the file does not exist")]


RENAME = b"diff --git a/x.py b/y.py\nsimilarity index 90%\nrename from x.py\nrename to y.py\n"


def test_a_rename_takes_the_old_file_away() -> None:
    hunk = diff("x.py", OLD, swapped(OLD, 9)).replace(b"+++ b/x.py", b"+++ b/y.py")
    result = applied(patches(move=RENAME + hunk), x=OLD)
    assert result.contents == {"x.py": None, "y.py": swapped(OLD, 9).encode()}
    assert result.before == {"x.py": OLD.encode(), "y.py": None}
    assert result.results[0].changed == ("x.py", "y.py")
    bare = applied(patches(move=RENAME), x="a\n")
    assert (bare.ok, bare.contents) == (True, {"x.py": None, "y.py": b"a\n"})
    again = applied(patches(move=RENAME), y="a\n")
    assert [one.what for one in again.problems] == ["changes nothing: already in the tree"]
    copied = applied(patches(move=RENAME.replace(b"rename", b"copy")), x="a\n")
    assert copied.contents == {"x.py": b"a\n", "y.py": b"a\n"}


def test_modes_are_recorded() -> None:
    mode = b"diff --git a/x.py b/x.py\nold mode 100644\nnew mode 100755\n"
    added = b"diff --git a/n.sh b/n.sh\nnew file mode 100755\n--- /dev/null\n+++ b/n.sh\n@@ -0,0 +1 @@\n+x\n"
    result = applied(patches(mode=mode + added), x="a\n")
    assert (result.ok, result.modes) == (True, {"n.sh": "100755", "x.py": "100755"})
    assert result.contents == {"n.sh": b"x\n", "x.py": b"a\n"}
    assert result.results[0].changed == ("x.py", "n.sh")


def test_a_patch_of_modes_alone_is_applied() -> None:
    mode = b"diff --git a/x.py b/x.py\nold mode 100644\nnew mode 100755\n"
    result = applied(patches(mode=mode), x="a\n")
    assert (result.ok, result.modes, result.contents) == (True, {"x.py": "100755"}, {"x.py": b"a\n"})
    assert (result.results[0].changed, result.results[0].rewritten) == (("x.py",), ())
    twice = applied(patches(mode=mode, more=mode), x="a\n")
    assert [str(one) for one in twice.problems] == [
        "more.patch: x.py: changes nothing\n  → leave the patch out of its set"
    ]
    assert [one.what for one in applied(patches(mode=mode)).problems] == ["the file does not exist"]
    change = diff("x.py", OLD, swapped(OLD, 9))
    there = applied(patches(mode=mode + change), x=swapped(OLD, 9))
    assert (there.ok, there.modes) == (True, {"x.py": "100755"})
    fits = applied(patches(mode=mode + change), x=OLD)
    assert fits.ok
    assert [one.results[0].already for one in (result, there, fits)] == [False, True, False]


def test_a_patch_that_is_in_the_tree_is_a_problem() -> None:
    after = swapped(OLD, 9)
    result = applied(patches(a=diff("x.py", OLD, after), b=diff("x.py", after, swapped(after, 20))), x=after)
    assert [str(problem) for problem in result.problems] == [
        "a.patch: x.py: changes nothing: already in the tree\n  → it is in this commit: leave the patch out of its set"
    ]
    assert result.contents == {"x.py": swapped(after, 20).encode()}


def test_a_patch_that_undoes_itself_is_a_problem() -> None:
    both = diff("x.py", OLD, swapped(OLD, 9)) + diff("x.py", swapped(OLD, 9), OLD)
    result = applied(patches(a=both), x=OLD)
    assert [(one.path, one.what) for one in result.problems] == [("x.py", "changes nothing")]


def test_half_a_patch_in_the_tree_is_a_note() -> None:
    both = diff("x.py", OLD, swapped(swapped(OLD, 5), 25))
    result = applied(patches(a=both), x=swapped(OLD, 5))
    assert (result.ok, result.notes) == (True, ("a.patch: x.py: hunk 1 is in the tree already, at line 2",))
    assert result.contents == {"x.py": swapped(swapped(OLD, 5), 25).encode()}


def test_what_a_patch_makes_in_another_place_is_told() -> None:
    change = diff("x.py", OLD, swapped(OLD, 9))
    result = applied(patches(a=change), x="new\n" + swapped(OLD, 9) * 2)
    assert [one.what for one in result.problems] == [
        "does not fit; what it makes stands at line 7, which may be another place"
    ]


def test_offset_fuzz_and_repairs_are_notes() -> None:
    change = diff("x.py", OLD, swapped(OLD, 9))
    moved = applied(patches(a=change), x="new\n" + OLD)
    assert moved.notes == ("a.patch: x.py: hunk 1 goes to line 7, +1 from where its header says",)
    fuzzy = applied(patches({"a": 1}, a=change), x=swapped(OLD, 6, "other"))
    assert (fuzzy.ok, fuzzy.notes) == (True, ("a.patch: x.py: hunk 1 goes to line 6 with fuzz 1",))
    lost = applied(patches({"a": 1}, a=change.removesuffix(b" line 12\n")), x="new\n" + OLD)
    assert (lost.ok, lost.notes) == (
        True,
        (
            "a.patch: x.py: hunk 1 ends without its last context line",
            "a.patch: x.py: hunk 1 goes to line 7 with fuzz 1, +1 from where its header says",
        ),
    )
    crlf = applied(patches(a=change.replace(b"\n", b"\r\n")), x=OLD)
    assert (crlf.ok, crlf.notes) == (
        True,
        ("a.patch: x.py: the patch file's CRLF line ends are read as LF",),
    )


def test_fuzz_is_allowed_to_the_patch_that_is_named_only() -> None:
    change = diff("x.py", OLD, swapped(OLD, 9))
    result = applied(patches({"other": 2}, a=change), x=swapped(OLD, 6, "other"))
    assert [str(problem) for problem in result.problems] == [
        (
            "a.patch: x.py: hunk 1 (@@ -6,7 +6,7 @@): fits only with fuzz 1, which is not allowed\n"
            "    the patch expects:\n"
            "      | line 6\n"
            "      | line 7\n"
            "      | line 8\n"
            "      | line 9\n"
            "      | line 10\n"
            "      | line 11\n"
            "      | … 1 more\n"
            "    the file has, from line 6:\n"
            "      | other 6\n"
            "      | line 7\n"
            "      | line 8\n"
            "      | line 9\n"
            "      | line 10\n"
            "      | line 11\n"
            "      | … 1 more\n"
            "  → if 1 line of context at each end of its hunks may differ, allow it by name: `fuzz: {a: 1}`"
        )
    ]
    assert result.contents == result.before


def test_a_conflict_shows_both_sides_from_where_they_differ() -> None:
    change = diff("x.py", OLD, swapped(OLD, 9)).replace(b"7 @@\n", b"7 @@ def\tf():\x1b[31m\n")
    before = OLD.replace("line 9\n", f"other \x1b[2J{'x' * 100}\r\n").replace("line 10\n", "line 10")
    result = applied(patches(a=change), x="new\n" + before.split("line 11")[0])
    assert [str(problem) for problem in result.problems] == [
        (
            "a.patch: x.py: hunk 1 (@@ -6,7 +6,7 @@ def\tf():\\u001b[31m): does not fit\n"
            "    the patch expects:\n"
            "      | line 8\n"
            "      | line 9\n"
            "      | line 10\n"
            "      | line 11\n"
            "      | line 12\n"
            "    the file has, from line 9:\n"
            "      | line 8\n"
            f"      | other \\u001b[2J{'x' * 85}…\n"
            "      | line 10 (no line end)\n"
            "  → make the patch again for this commit, or correct it"
        )
    ]


def test_a_new_file_over_another_shows_what_is_there() -> None:
    result = applied(patches(a=diff("n.py", "", "new\n")), n="old\n")
    assert [str(problem) for problem in result.problems] == [
        (
            "a.patch: n.py: it exists already, with other content\n"
            "    the patch expects nothing there\n"
            "    the file has, from line 1:\n"
            "      | old"
        )
    ]


def test_a_file_that_does_not_fit_keeps_its_bytes_and_the_others_go_on() -> None:
    change = diff("x.py", OLD, swapped(OLD, 9)) + diff("y.py", OLD, swapped(OLD, 9))
    result = applied(patches(a=change), x="short\n", y=OLD)
    assert [(one.path, one.hunk and one.hunk.number) for one in result.problems] == [("x.py", 1)]
    assert result.contents == {"x.py": b"short\n", "y.py": swapped(OLD, 9).encode()}
    assert not result.ok


def test_a_patch_file_is_used_as_parsed() -> None:
    file = parse_patch("a", diff("x.py", OLD, swapped(OLD, 9)))
    assert isinstance(file, PatchFile)
    assert applied(PatchSet("verl", COMMIT, "PATCHES", (file,)), x=OLD).results[0].patch is file


MANY = (
    b"diff --git a/x.py b/x.py\nindex 1..2 100644\n"
    + diff("x.py", OLD, swapped(swapped(OLD, 5), 25))
    + diff("n.py", "", "new\n")
    + diff("d.py", "old\n", "").removesuffix(b"\n")
    + b"\n\\ No newline at end of file\n"
    + RENAME.replace(b"y.py", b'"y\\303\\251.py"')
)


def spoilt(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to three lines lost, doubled, cut, or wrong in one byte."""
    for _ in range(chance.randint(1, 3)):
        lines = data.splitlines(keepends=True) or [b"\n"]
        place = chance.randrange(len(lines))
        line = lines[place]
        at = chance.randrange(len(line))
        wrong = (b"", line + chance.choice(lines), line[:at], line[:at] + chance.randbytes(1) + line[at + 1 :])
        lines[place] = chance.choice(wrong)
        data = b"".join(lines)
    return data


def fate(data: bytes, tree: Tree) -> str:
    try:
        result = apply_set(patches({"any": 2}, any=data), tree.read)
    except FindingsError as error:
        return "refused" if str(error).startswith("any.patch") else str(error)
    told = [str(problem) for problem in result.problems]
    return "does not fit" if told else "fits"


def test_any_patch_file_is_refused_with_an_error_or_told_whether_it_fits() -> None:
    tree = Tree({"x.py": OLD, "d.py": "old"})
    assert fate(MANY, tree) == "fits"
    told = Counter(fate(spoilt(MANY, random.Random(seed)), tree) for seed in range(300))
    assert set(told) == {"refused", "does not fit", "fits"}
    assert min(told.values()) > 20
