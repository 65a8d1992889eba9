"""What differs between two images, from plans, locks, manifests and images that were looked at."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from factories import compatibility, inputs, lock, package, plan, recipe, source_recipe

from cannery.errors import UsageError
from cannery.lock.lock import format_lock
from cannery.plan.make import make_plan
from cannery.plan.manifest import manifest, manifest_text
from cannery.recipe.recipe import Options
from cannery.report.difference import (
    Change,
    Contents,
    difference,
    json_value,
    markdown_lines,
    of_lock,
    of_manifest,
    of_plan,
    text_lines,
)
from cannery.report.io.sides import read_contents

if TYPE_CHECKING:
    from pathlib import Path

ABOUT = {"profile": "p"}


def side(name: str = "a", **known: object) -> Contents:
    return Contents(**{"name": name, "packages": {}, "about": ABOUT, **known})


def test_packages_are_added_removed_and_changed() -> None:
    old = side(packages={"gone": "1", "same": "1", "torch": "2.10.0", "down": "1.10"})
    new = side("b", packages={"new": "1", "same": "1", "torch": "2.9.0+cpu", "down": "1.9"})
    found = difference(old, new)
    assert [str(one) for one in found.changes] == [
        "~ down 1.10 → 1.9 (older)",
        "- gone 1",
        "+ new 1",
        "~ torch 2.10.0 → 2.9.0+cpu (older)",
    ]
    assert found.unknown == ()
    assert "packages: 1 added, 1 removed, 2 changed" in list(text_lines(found))


@pytest.mark.parametrize(("old", "new"), [("1.0", "1.1"), ("1.0", "not a version")])
def test_what_is_not_older(old: str, new: str) -> None:
    assert not Change("packages", "x", old, new).is_older
    assert not Change("layers", "x", "2", "1").is_older


def test_a_file_with_another_hash_is_reported_under_its_name() -> None:
    old = side(files={"a-1.whl": "0" * 64, "b-1.whl": "1" * 64})
    new = side(files={"a-1.whl": "2" * 64, "c-1.whl": "1" * 64})
    assert [str(one) for one in difference(old, new).changes] == [f"~ a-1.whl {'0' * 12} → {'2' * 12}"]


def test_layers_are_compared_by_digest_and_keep_their_order() -> None:
    old = side(layers={"z": "1", "a": "2", "moved": "3"}, sizes={"a": 1_000_000})
    new = side(layers={"z": "1", "a": "4", "renamed": "3"}, sizes={"a": 2_500_000})
    found = difference(old, new)
    assert [str(one) for one in found.changes] == ["~ a 2, 1.0 MB → 4, 2.5 MB", "- moved 3", "+ renamed 3"]
    assert found.layers == (1, 3, 2_500_000)
    assert "1 of 3 layers are new, 2.5 MB of wheels" in list(text_lines(found))


def test_of_lists_of_paths_only_the_difference_is_shown() -> None:
    old = side(env={"PATH": "/a:/b:/c", "X": "1", "SAME": "/q:/r", "ORDER": "/a:/b"})
    new = side(env={"PATH": "/a:/d:/c", "X": "2", "SAME": "/q:/r", "ORDER": "/b:/a"})
    changes = {one.name: (one.old, one.new) for one in difference(old, new).changes}
    assert changes == {"PATH": ("…:/b", "…:/d"), "X": ("1", "2"), "ORDER": ("/a:/b", "/b:/a")}


def test_an_empty_variable_is_not_a_missing_one() -> None:
    found = difference(side(env={"GONE": "", "SAME": ""}), side(env={"SAME": "", "NEW": ""}))
    assert [str(one) for one in found.changes] == ['- GONE ""', '+ NEW ""']


def test_a_layer_whose_size_one_side_does_not_know_is_no_change() -> None:
    assert difference(side(layers={"a": "1"}), side(layers={"a": "1"}, sizes={"a": 5_000_000})).changes == ()


def test_what_only_one_side_knows_of_the_target_is_no_change() -> None:
    found = difference(side(about={"profile": "p", "python": "3.11"}), side(about={"profile": "q", "cann": "8.5.0"}))
    assert [str(one) for one in found.changes] == ["~ profile p → q"]


def test_equal_sides() -> None:
    found = difference(side(), side())
    assert list(text_lines(found))[1] == "no difference"
    assert "No difference." in list(markdown_lines(found))
    assert json_value(found)["changes"] == []


def test_a_plan_and_the_manifest_of_its_image_are_equal() -> None:
    made = plan()
    one, other = of_plan(made, compatibility()), of_manifest("m", manifest(made, compatibility()))
    found = difference(one, other)
    assert found.changes == ()
    assert found.unknown == ("patches", "layers")
    assert {*one.packages} == {package.name for package in made.lock.packages}


def test_what_neither_side_knows_is_not_named() -> None:
    """The patches of a plan are not known before its image is built."""
    one = of_plan(plan(), compatibility())
    assert one.patches is None
    assert difference(one, one).unknown == ()
    assert not any("not compared" in line for line in text_lines(difference(one, one)))


@pytest.mark.parametrize("layers", [None, {"a": "1"}])
def test_layers_of_a_plan_and_of_an_image_are_named(layers: dict[str, str] | None) -> None:
    built = side(layers={"b": "2"}, is_built=True)
    assert difference(side(layers=layers), built).unknown == ("layers",)
    assert difference(built, side(layers=layers)).unknown == ("layers",)


def test_a_plan_against_another_target() -> None:
    old, new = (of_plan(plan(Options(base=base)), compatibility()) for base in (None, "standin"))
    changes = {(one.section, one.name) for one in difference(old, new).changes}
    assert ("image", "base") in changes
    assert ("layers", "files") in changes
    assert not any(section == "packages" for section, _ in changes)


def test_sources_have_their_commits() -> None:
    found = source_recipe()
    contents = of_plan(make_plan(found, inputs(found)), compatibility())
    assert contents.sources is not None
    assert contents.sources["engine"] == f"0.11.0 at {'a' * 12}"


def test_markdown_is_safe_and_folded() -> None:
    old = side("a|b", env={f"V{number:02}": "1" for number in range(30)})
    new = side("`c`", env={"P|IPE": "a`b\nc|d"}, packages={"x": "1"})
    lines = list(markdown_lines(difference(old, new)))
    assert lines[0] == "## a\\|b → \\`c\\`"
    assert "| x |  | 1 |" in lines
    assert "<details><summary>environment: 31</summary>" in lines
    assert "| P\\|IPE |  | a\\`b c\\|d |" in lines
    assert lines.count("</details>") == 1


def test_json_names_each_change() -> None:
    value = json_value(difference(side(packages={"x": "1"}), side("b", packages={"x": "2"})))
    assert value["changes"] == [{"section": "packages", "name": "x", "old": "1", "new": "2", "change": "changed"}]
    assert value["layers"] is None
    json.dumps(value)


# Files.


def test_a_lock_and_a_manifest_are_read_from_their_files(tmp_path: Path) -> None:
    made = plan()
    lock_file, manifest_file = tmp_path / "lock", tmp_path / "manifest"
    lock_file.write_text(format_lock(made.lock))
    manifest_file.write_text(manifest_text(made, compatibility()))
    found = difference(read_contents(lock_file), read_contents(manifest_file))
    assert found.changes == ()
    assert found.unknown == ("sources", "patches", "environment")


def test_the_hash_of_an_incomplete_lock_is_not_compared() -> None:
    found = recipe()
    some = replace(lock(found), packages=(package("ray", file="", sha256="", size=0),))
    assert of_lock("l", some).files == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "torch==2.9.0\n",
        "{",
        "{}",
        '{"schema": 2}',
        '{"schema": 1}',
        '{"schema": 1, "wheels": 3, "base": {}, "target": {}}',
        '{"schema": 1, "wheels": [1], "base": {}, "target": []}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_a_file_that_is_neither(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_contents(path)
    assert str(path) in caught.value.where
    assert caught.value.hint


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        read_contents(path)
