"""The summary of patches: by class and function, and where a plugin's own table names something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cannery.errors import UsageError
from cannery.patches.summary import (
    Action,
    Change,
    FileChanges,
    Kind,
    Listed,
    PatchChanges,
    changed_names,
    differences,
    outermost,
    read_table,
    summary_lines,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REV = "8365f70e9259c21058bf18f876006f945d2a99de"
BEFORE = """\
def apply(q): return q
class Block:
    def __init__(self): ...
    def forward(self): return 1
"""
AFTER = """\
import os
LIMIT = 2
def apply(q): return q + 1
def pad_input(): ...
class Block:
    def __init__(self): ...
    def forward(self): return 2
    def _init_dp(self): ...
class Gmm:
    def forward(self): ...
"""
PATH = "src/models/model.py"
NAMES = changed_names(PATH, BEFORE.encode(), AFTER.encode())


def patch(rev: str = REV[:9], name: str = "model") -> PatchChanges:
    return PatchChanges("transformers", rev, "plugin", name, (FileChanges(PATH, Action.UPDATED, NAMES),))


def table_text(repo: str, rev: str, folder: str, patches: Mapping[str, Sequence[Change]]) -> str:
    """A patch_summary.yaml for one set, in the form of verl_npu."""
    files = [{"name": name, "diff": _diff(outermost(names))} for name, names in patches.items()]
    version = {"rev": rev, "dir": folder, "files": files}
    value = {"patches": [{"repo": repo, "current_rev": rev, "versions": [version]}]}
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def _diff(names: Sequence[Change]) -> dict[str, list[dict[str, Any]]]:
    classes: dict[str, dict[str, Any]] = {}
    members: list[dict[str, Any]] = []
    for one in names:
        outer, _, inner = one.name.rpartition(".")
        if one.kind is Kind.CLASS:
            classes[one.name] = {"action": str(one.action), "name": one.name}
        else:
            value = {"action": str(one.action), "kind": str(one.kind), "name": inner}
            if outer:  # a name may be a class in one branch only, so that its class need not be listed yet
                of_class = classes.setdefault(outer, {"action": str(Action.UPDATED), "name": outer})
                of_class.setdefault("changes", []).append(value)
            else:
                members.append(value)
    lists = {"class_changes": [*classes.values()], "module_changes": members}
    return {key: value for key, value in lists.items() if value}


def table() -> str:
    return table_text("transformers", REV, REV[:9], {"model": NAMES})


def told(text: str) -> list[str]:
    """The differences of a table, each after the place."""
    found = list(differences([patch()], read_table(text, "patch_summary.yaml")))
    assert {(one.repo, one.file) for one in found} <= {("transformers", "model")}
    return [f"{one.listed} | {one.actual}" for one in found]


def test_each_changed_name_has_a_line() -> None:
    added = PatchChanges("verl", "796871d7d", "PATCHES", "run", (FileChanges("run.sh", Action.ADDED, ()),))
    assert list(summary_lines([patch(), added])) == [
        "transformers 8365f70e9 (plugin)",
        "  model: src/models/model.py (updated)",
        "    added    os",
        "    added    LIMIT",
        "    replaced apply",
        "    added    pad_input",
        "    updated  class Block",
        "    replaced Block.forward",
        "    added    Block._init_dp",
        "    added    class Gmm",
        "verl 796871d7d (PATCHES)",
        "  run: run.sh (added)",
    ]


def test_a_table_that_is_made_has_no_difference() -> None:
    assert told(table()) == []
    (version,) = read_table(table(), "s.yaml")
    names = {"os", "LIMIT", "apply", "pad_input", "Block", "Block.forward", "Block._init_dp", "Gmm"}
    assert version == Listed("transformers", REV, REV[:9], {"model": frozenset(names)})


def test_a_class_of_one_branch_has_its_members_in_the_table() -> None:
    text = "try:\n    class A:\n        def f(self): return 1\nexcept E:\n    A = None\n"
    names = changed_names("x.py", text.encode(), text.replace("return 1", "return 2").encode())
    (version,) = read_table(table_text("verl", REV, REV[:9], {"x": names}), "s.yaml")
    assert version.names["x"] == {"A", "A.f"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: Gmm", "name: gmm", ["gmm | the patch does not change it", "no Gmm | it is added"]),
        ("name: forward", "name: __init__",
         ["Block.__init__ | the patch does not change it", "no Block.forward | it is replaced"]),
        ("name: LIMIT", "name: os", []),
        ("action: replaced", "action: made", []),
        ("patches:", "note: mine\npatches:", []),
        ("changes:\n", "parts:\n", ["no Block.forward | it is replaced", "no Block._init_dp | it is added"]),
    ],
)  # fmt: skip
def test_what_differs_is_in_a_line(old: str, new: str, expected: list[str]) -> None:
    text = table().replace(f"  {old}", f"  {new}") if old == "changes:\n" else table().replace(old, new)
    assert text != table()
    assert told(text) == expected


@pytest.mark.parametrize("rev", [REV, REV[:9], REV[:7]])
def test_a_version_is_found_by_its_commit_whole_or_short(rev: str) -> None:
    assert list(differences([patch(rev)], read_table(table(), "s.yaml"))) == []


def test_a_patch_that_the_table_does_not_have() -> None:
    found = list(differences([patch("1234567"), patch(name="other")], read_table(table(), "s.yaml")))
    assert [(one.file, one.listed) for one in found] == [
        ("model", "nothing of this patch for 1234567"),
        ("other", "nothing of this patch for 8365f70e9"),
    ]


def test_a_commit_of_digits_is_read_as_it_is_written() -> None:
    text = "patches: [{repo: verl, current_rev: 0123456, versions: [{rev: 0123456, dir: 1_0, files: }]}]"
    (version,) = read_table(text, "s.yaml")
    assert (version.rev, version.folder) == ("0123456", "1_0")


@pytest.mark.parametrize(
    "text",
    [
        "patches: [\n",
        "other: 1\n",
        "- a\n",
        "patches:\n  - repo: verl\n    current_rev: abc\n    versions: 7\n",
        "patches: [{repo: v, current_rev: a, versions: [{rev: a, dir: a, files: [{name: x, diff: }]}]}]\n",
    ],
)
def test_what_is_no_table_is_refused_with_its_file(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_table(text, "s.yaml")
    assert caught.value.where == "s.yaml"
