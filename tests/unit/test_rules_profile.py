"""What a profile says itself: its warnings, and wheels that only its user has."""

from __future__ import annotations

from factories import catalog, package, profile, recipe, subject

from cannery.catalog.addresses import Index
from cannery.compat.rules import check_recipe
from cannery.compat.rules.packages import incomplete, replaced, warned
from cannery.compat.subject import Finding
from cannery.vocab import Severity


def test_a_profiles_own_warning_is_a_finding_of_check() -> None:
    found = catalog(
        profiles={"stack": profile(warnings=[{"what": "it loads no such model", "reason": "its parts are too old"}])}
    )
    expected = Finding(
        Severity.WARNING, "profile", "it loads no such model", "images/profiles/stack.yaml: its parts are too old"
    )
    assert list(warned(subject(recipe(found=found), found))) == [expected]
    assert expected in check_recipe(recipe(found=found), found)
    assert list(warned(subject(recipe()))) == []


def test_a_profile_that_was_replaced_has_a_note_that_names_the_other() -> None:
    past = profile(replaced={"date": "2025-12-10", "by": "other"})
    found = catalog(profiles={"stack": past, "other": profile()})
    expected = Finding(
        Severity.NOTE,
        "profile",
        "documented 2025-12-10; replaced by other",
        "images/profiles/stack.yaml",
        "for a new image, take other",
    )
    assert list(replaced(subject(recipe(found=found), found))) == [expected]
    assert expected in check_recipe(recipe(found=found), found)
    assert list(replaced(subject(recipe()))) == []


def test_a_wheel_of_the_users_own_that_is_not_there() -> None:
    indexes = {"own": Index(urls=(), note="wheels that you build"), "b": Index(urls=("https://index.example/b",))}
    gone = {"file": "", "sha256": "", "size": 0}
    content = [package("apex", "0.1+ascend", index="own", **gone), package("a", index="b", **gone), package("ray")]
    found = catalog(indexes=indexes)
    mine, other = sorted(
        incomplete(subject(recipe(found=found), found, amd64=content)), key=lambda f: f.what, reverse=True
    )
    assert mine == Finding(
        Severity.WARNING,
        "lock-incomplete",
        "the lock has no hash of apex 0.1+ascend for Python 3.11 on amd64: no wheel of your own was found",
        "index own: wheels that you build",
        "put the wheel for this Python and arch into a folder, and run `build.py lock` for this profile with "
        "--wheelhouse",
    )
    assert other.what == "the lock has no hash of a 1.0 for Python 3.11 on amd64"
