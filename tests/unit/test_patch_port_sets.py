"""Sets tried in turn on another tree: on what, the line that ends each, and where they are written."""

from __future__ import annotations

from cannery.patches.patch_port import origin_folders, port_verdict, tried_in_turn
from cannery.patches.patch_text import parse_patch
from cannery.patches.sets import PatchSet

REV = "796871d7d"


def patch(path: str, old: str, new: str) -> bytes:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n".encode()


def patches(origin: str, **texts: bytes) -> PatchSet:
    return PatchSet("verl", REV, origin, tuple(parse_patch(name, text) for name, text in texts.items()))


def read(path: str) -> bytes | None:
    return b"one\n" if path in {"a.py", "b.py", "c.py", "d.py", "e.py"} else None


def test_a_set_is_tried_on_what_those_before_it_left() -> None:
    plugin = patches("npu at 09b8c1253af0", core=patch("a.py", "one", "two"))
    mine = patches(f"PATCHES/verl/{REV}", mine=patch("a.py", "two", "three"))
    assert [one.ok for one in tried_in_turn([plugin, mine], read)] == [True, True]
    assert [one.ok for one in tried_in_turn([mine, plugin], read)] == [False, True]
    assert tried_in_turn([plugin, mine], read)[1].before == {"a.py": b"two\n"}


def test_another_revision_of_a_plugin_is_tried_on_the_tree_as_it_is() -> None:
    sets = [patches(f"npu at {rev}", core=patch("a.py", "one", rev)) for rev in ("1234567", "7654321")]
    assert [one.contents for one in tried_in_turn(sets, read)] == [{"a.py": b"1234567\n"}, {"a.py": b"7654321\n"}]


def test_the_verdict_counts_patches_and_names_those_that_do_not_apply() -> None:
    fits, there, not_so = (patch("{}.py", *words) for words in (("one", "two"), ("zero", "one"), ("five", "six")))
    texts = {"a": fits, "b": fits, "c": there, "d": not_so, "e": not_so}
    named = {name: text.replace(b"{}", name.encode()) for name, text in texts.items()}

    def verdict(*names: str) -> str:
        (found,) = tried_in_turn([patches("npu at 1234567", **{name: named[name] for name in names})], read)
        return port_verdict(found.results)

    assert verdict(*"abcde") == "2 of 5 apply, 1 is there already; 2 do not: d, e"
    assert verdict("a", "d") == "1 of 2 applies; 1 does not: d"
    assert verdict("a", "b") == "2 of 2 apply"
    assert verdict("c") == "0 of 1 apply, 1 is there already"


def test_sets_of_several_origins_are_written_apart() -> None:
    origins = ("verl-npu at 09b8c1253af0", f"images/patches/verl/{REV}", f"PATCHES/verl/{REV}")
    sets = [patches(origin) for origin in origins]
    assert origin_folders(sets) == ("verl-npu-at-09b8c1253af0", "images-patches", "PATCHES")
    assert origin_folders(sets[:1]) == ("",)
