"""Patch sets are found by the commit that they are for."""

from __future__ import annotations

import pytest

from cannery.errors import FindingsError
from cannery.patches.sets import PatchFile, PatchSet, find_set

COMMIT = "796871d7d092f7cbc6a64e7f4a3796f7a2217f5e"


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


@pytest.mark.parametrize("commit", ["main", "796871", "v0.7.3", COMMIT + "0"])
def test_what_is_no_hash_is_refused_on_both_sides(commit: str) -> None:
    with pytest.raises(FindingsError, match="is not a commit"):
        find_set([empty_set(COMMIT)], commit)
    with pytest.raises(FindingsError, match=f"the folder verl/{commit} is not named by a commit") as error:
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
    files = tuple(PatchFile(name, b"", "") for name in "bac")
    assert [file.name for file in PatchSet("verl", COMMIT, "us", files).files] == ["a", "b", "c"]
