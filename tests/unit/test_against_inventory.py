"""What is in an image, by what its own Python sees: packages, CANN, manifest."""

from __future__ import annotations

import json

from seen_images import HOME, STACK, seen, toolkit


def test_the_stack_of_a_plain_image() -> None:
    found = seen()
    assert (found.os, found.toolkit, found.manifest) == ("ubuntu22.04", "8.5.0", None)
    assert (found.prefix, found.python) == (HOME, "3.11")
    assert {name: one.version for name, one in found.packages.items()} == {
        name.replace("_", "-"): version for name, version in STACK.items()
    }


def test_of_a_name_that_is_there_twice_the_first_is_imported() -> None:
    found = seen(rows=[["ray", "1.0", []], ["Ray", "2.0", []]])
    assert {name: one.version for name, one in found.packages.items()} == {"ray": "1.0"}


def test_of_two_canns_the_one_in_use() -> None:
    both = {**toolkit("8.5.0"), **toolkit("8.3.rc1", is_used=True)}
    assert seen(versions=both).toolkit == "8.3.rc1"
    assert seen(versions={**toolkit("8.5.0"), **toolkit("8.3.rc1")}).toolkit == "8.5.0"


def test_a_version_with_a_build_is_the_version() -> None:
    ((path, _value),) = toolkit().items()
    assert seen(versions={path: [False, "version=8.5.0.B160\n"]}).toolkit == "8.5.0"


def test_a_toolkit_that_no_base_knows() -> None:
    path = "/usr/local/Ascend/ascend-toolkit/8.9.9/aarch64-linux/ascend_toolkit_install.info"
    assert seen(versions={path: [False, "version=8.9.RC1\n"]}).toolkit == "8.9.rc1"
    assert seen(versions={}).toolkit == ""


def test_a_manifest_that_somebody_edited_is_none() -> None:
    good = (
        '{"schema": 1, "profile": "stack", "plan": "0123", "target": {"cann": "8.5.0"}, "sources": [], "patches": []}'
    )
    path = "/opt/cannery/manifest.json"
    assert seen(texts={path: good}).manifest == json.loads(good)
    for bad in (
        good.replace("1,", "2,", 1),
        good.replace('"0123"', "5"),
        good.replace('"sources": []', '"sources": [1]'),
        "[]",
        "{",
    ):
        assert seen(texts={path: bad}).manifest is None, bad
