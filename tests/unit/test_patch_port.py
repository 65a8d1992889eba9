"""Patches made anew of what a set does to another revision: texts and modes, as git writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cannery.patches.patch_port import made_patch, patch_modes
from cannery.patches.patch_text import parse_patch
from cannery.patches.set_apply import apply_set
from cannery.patches.sets import PatchSet

if TYPE_CHECKING:
    from cannery.patches.result import SetResult

MODE = b"diff --git a/x.sh b/x.sh\nold mode 100755\nnew mode 100644\n"
TEXT = b"--- a/x.sh\n+++ b/x.sh\n@@ -1 +1 @@\n-a\n+b\n"
ADDED = b"diff --git a/n.sh b/n.sh\nnew file mode 100755\n--- /dev/null\n+++ b/n.sh\n@@ -0,0 +1 @@\n+x\n"
EMPTY = b"diff --git a/e.sh b/e.sh\nnew file mode 100755\n"
GONE = b"diff --git a/d.sh b/d.sh\ndeleted file mode 100755\n--- a/d.sh\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"


def applied(data: bytes, **files: bytes) -> SetResult:
    tree = {f"{name}.sh": text for name, text in files.items()}
    return apply_set(PatchSet("verl", "1234567", "made", (parse_patch("made", data),)), tree.get, anywhere=True)


def again(data: bytes, **files: bytes) -> bytes:
    """The patch made anew of what `data` does to a tree."""
    result = applied(data, **files)
    changes = {path: (result.before[path], after) for path, after in result.contents.items()}
    return made_patch(changes, patch_modes(result.results[0].files))


@pytest.mark.parametrize("data", [MODE, MODE + TEXT, ADDED, EMPTY, GONE, GONE + ADDED + MODE])
def test_a_patch_comes_out_with_its_modes(data: bytes) -> None:
    """Of the same tree the same patch, the files by path, which git writes with the counts left out as well."""
    files = {"x": b"a\n", "d": b"x\n"}
    made = again(data, **files)
    assert made.count(b"diff --git") == data.count(b"diff --git")
    old, new = applied(data, **files), applied(made, **files)
    assert (new.contents, new.modes) == (old.contents, old.modes)
    assert {one.patch.path: one.patch.old_mode for one in new.results[0].files} == {
        one.patch.path: one.patch.old_mode for one in old.results[0].files
    }


def test_what_is_there_already_is_in_no_patch() -> None:
    assert again(MODE + TEXT, x=b"b\n") == b""
    assert again(ADDED, n=b"x\n") == b""
    assert again(GONE) == b""


def test_a_file_without_a_mode_is_a_plain_one() -> None:
    assert made_patch({"n": (None, b"x\n")}, {}) == (
        b"diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"
    )
    assert made_patch({"d": (b"", None)}, {}) == b"diff --git a/d b/d\ndeleted file mode 100644\n"
    assert made_patch({"x": (b"a", b"a"), "y": (None, None)}, {}) == b""
