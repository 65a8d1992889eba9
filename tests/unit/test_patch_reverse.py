"""The tree without a patch that it has already."""

from __future__ import annotations

import difflib

from cannery.patches.patch_reverse import without_patch
from cannery.patches.patch_text import parse_patch
from cannery.patches.set_apply import apply_set
from cannery.patches.sets import PatchSet

OLD = "".join(f"line {number}\n" for number in range(1, 41))
NEW = OLD.replace("line 5\n", "").replace("line 20\n", "line 20\nmore\n").replace("line 40\n", "last")


def diff(path: str, before: str, after: str) -> bytes:
    names = [f"{side}/{path}" if text else "/dev/null" for side, text in (("a", before), ("b", after))]
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    ).encode()


def test_it_is_the_tree_that_the_patch_is_for() -> None:
    patch = parse_patch("p", diff("x.py", OLD, NEW) + diff("n.py", "", "new\n") + diff("d.py", "old\n", ""))
    trees: dict[str, bytes] = {"x.py": OLD.encode(), "d.py": b"old\n"}
    result = apply_set(PatchSet("verl", "1234567", "made", (patch,)), trees.get)
    assert result.contents == {"x.py": NEW.encode(), "n.py": b"new\n", "d.py": None}
    assert without_patch(patch, result.contents.get) == {"x.py": OLD.encode(), "n.py": None}


def test_parts_of_one_file_are_undone_in_turn() -> None:
    between = OLD.replace("line 5\n", "other 5\n")
    after = between.replace("line 6\n", "other 6\n")
    patch = parse_patch("p", diff("x.py", OLD, between) + diff("x.py", between, after))
    assert without_patch(patch, {"x.py": after.encode()}.get) == {"x.py": OLD.encode()}


def test_more_lines_of_ones_own_stay() -> None:
    patch = parse_patch("p", diff("x.py", OLD, NEW))
    mine = NEW.replace("line 10\n", "line 10\nmine\n").encode()
    assert without_patch(patch, {"x.py": mine}.get) == {"x.py": OLD.replace("line 10\n", "line 10\nmine\n").encode()}


def test_what_cannot_be_undone_is_as_it_is() -> None:
    patch = parse_patch("p", diff("x.py", OLD, NEW))
    assert without_patch(patch, {"x.py": b"other\n"}.get) == {"x.py": b"other\n"}
