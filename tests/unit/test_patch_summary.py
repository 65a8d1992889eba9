"""The summary of patches: the plugin's layout, JSON, and where the plugin's own table differs."""

from __future__ import annotations

import json
import textwrap

import pytest
import yaml

from cannery.errors import UsageError
from cannery.patches.changes import (
    Action,
    ClassChange,
    FileChanges,
    Member,
    PatchChanges,
    RepoChanges,
    python_changes,
)
from cannery.patches.plugin_table import Difference, Version, differences, read_table
from cannery.patches.scope import Kind
from cannery.patches.summary import entry, summary_lines, summary_page, summary_value

REV = "8365f70e9259c21058bf18f876006f945d2a99de"
BEFORE = """\
def apply(q): return q
def _prepare(): ...
class Block:
    def __init__(self): ...
    def forward(self): return 1
class MLP:
    size = 1
    def forward(self): return 1
"""
AFTER = """\
import os
LIMIT = 2
def apply(q): return q + 1
def _prepare(): ...
def pad_input(): ...
class Block:
    def __init__(self): ...
    def forward(self): return 2
    def _init_dp(self): ...
class MLP:
    size = 1
    def forward(self): return 1
class Gmm:
    def forward(self): ...
"""
PATH = "src/models/model.py"


def changed(before: str | None = BEFORE, after: str | None = AFTER, path: str = PATH) -> FileChanges:
    return python_changes(path, *(None if text is None else text.encode() for text in (before, after)))


def repo(*patches: PatchChanges, rev: str = REV[:9]) -> RepoChanges:
    return RepoChanges("transformers", rev, patches or (PatchChanges("model", (changed(),)),))


def written(diff: str, name: str = "model", rev: str = REV) -> tuple[Version, ...]:
    """A patch_summary.yaml with one entry, whose `diff` is given."""
    text = f"""\
patches:
  - repo: transformers
    current_rev: {rev}
    versions:
      - rev: {rev}
        dir: {REV[:9]}
        files:
          - name: {name}
            diff:
"""
    return read_table(text + textwrap.indent(textwrap.dedent(diff), " " * 14), "patch_summary.yaml")


def told(diff: str, change: FileChanges | None = None) -> list[str]:
    """The differences of one entry, each after the place."""
    found = list(differences([repo(PatchChanges("model", (change or changed(),)))], written(diff)))
    assert {(one.repo, one.file) for one in found} <= {("transformers", "model")}
    return [f"{one.said} | {one.so}" for one in found]


RIGHT = """\
class_changes:
  - action: updated
    name: Block
    changes:
      - {action: replaced, kind: method, name: forward}
      - {action: added, kind: method, name: _init_dp}
  - {action: added, name: Gmm}
module_changes:
  - {action: added, kind: attribute, name: LIMIT}
  - {action: replaced, kind: method, name: apply}
  - {action: added, kind: method, name: pad_input}
"""
GMM = "- {action: added, name: Gmm}"
PAD = "- {action: added, kind: method, name: pad_input}"


def test_the_page_has_the_layout_of_the_plugin() -> None:
    new = FileChanges(
        "src/integrations/flash.py",
        (Member(Action.ADDED, Kind.METHOD, "unpad_input"),),
        (ClassChange(Action.ADDED, "IndexFirstAxis", ()), ClassChange(Action.UPDATED, "A.B", ())),
        Action.ADDED,
    )
    other = RepoChanges("verl", "796871d7d", (PatchChanges("x", (changed(BEFORE, BEFORE.replace("1", "2"), "x.py"),)),))
    page = summary_page([repo(PatchChanges("flash", (new,))), other])
    assert "\n".join(page) == textwrap.dedent("""\
        ================================ NPU Patch Summary ==================================

        ================ transformers Patch Summary ================

        Patch File1: src.integrations.flash.py
           Module Changes:
                  - added         method         unpad_input
          (1) Patch class: src.integrations.flash.IndexFirstAxis
          (2) Patch class: src.integrations.flash.A.B

        ============ transformers Patch Summary End ==============

        ================ verl Patch Summary ================

        Patch File1: x.py
          (1) Patch class: x.Block
               Class Changes:
                  - replaced         method         forward
          (2) Patch class: x.MLP
               Class Changes:
                  - replaced         attribute         size
                  - replaced         method         forward

        ============ verl Patch Summary End ==============

        ============================= NPU Patch Summary End==================================""")


def test_files_are_numbered_in_their_order_and_one_without_a_change_of_the_program_says_why() -> None:
    files = [
        changed(BEFORE, "# why\n" + BEFORE, "a/b.py"),
        changed(None, "x", "a/run.sh"),
        changed("x = 1\n", None, "c.pyi"),
    ]
    lines = summary_lines("verl", [(one.path, one) for one in files])
    assert lines == [
        "",
        "================ verl Patch Summary ================",
        "",
        "Patch File1: a.b.py",
        "   (updated; comments or layout only)",
        "",
        "Patch File2: a.run.sh",
        "   (added; no Python file)",
        "",
        "Patch File3: c.pyi",
        "   Module Changes:",
        "          - deleted         attribute         x",
        "",
        "============ verl Patch Summary End ==============",
    ]


def test_the_value_is_json_with_the_same_changes() -> None:
    value = summary_value([repo()])
    assert json.loads(json.dumps(value)) == value
    assert [(one["repo"], one["rev"], one["patches"][0]["name"]) for one in value] == [
        ("transformers", "8365f70e9", "model")
    ]
    (file,) = value[0]["patches"][0]["files"]
    assert (file["path"], file["action"], file["is_python"]) == (PATH, "updated", True)
    assert file["class_changes"][0] == {
        "action": "updated",
        "name": "Block",
        "changes": [
            {"action": "replaced", "kind": "method", "name": "forward"},
            {"action": "added", "kind": "method", "name": "_init_dp"},
        ],
    }
    assert file["module_changes"][0] == {"action": "added", "kind": "module_attr", "name": "os"}


def test_an_entry_that_is_made_has_no_difference() -> None:
    made = entry("model", [changed()])
    assert list(made) == ["name", "diff"]
    assert list(made["diff"]) == ["class_changes", "module_changes"]
    assert told(yaml.safe_dump(made["diff"], sort_keys=False)) == []
    assert entry("notes", [changed(None, "x", "NOTES.md")]) == {"name": "notes", "diff": {}}


def test_a_summary_that_is_right_has_no_difference_without_imports_and_members_of_a_new_class() -> None:
    assert told(RIGHT) == []
    assert told(RIGHT.replace("updated", "replaced").replace("action: added, kind: attribute", "action: made")) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (GMM, "- {action: added, name: gmm}",
         ["class gmm as added | the patch does not change it", "no class Gmm | it is added"]),
        ("action: added, kind: method, name: _init_dp", "action: replaced, kind: method, name: _init_dp",
         ["Block._init_dp as replaced | it is added"]),
        ("action: replaced, kind: method, name: apply", "action: added, kind: method, name: apply",
         ["apply as added | it is replaced"]),
        ("action: updated", "action: added", ["class Block as added | it is updated"]),
        (PAD, "", ["no pad_input | it is added"]),
        (GMM, GMM + "\n  - {action: added, name: LIMIT}",
         ["class LIMIT as added | the patch does not change it"]),
        (GMM, "- {action: added, name: gmm, changes: [{action: added, kind: method, name: f}]}",
         ["class gmm as added | the patch does not change it", "no class Gmm | it is added"]),
        ("- {action: added, kind: attribute, name: LIMIT}", "", ["no LIMIT | it is added"]),
        ("name: forward", "name: __init__",
         ["Block.__init__ as replaced | the patch does not change it", "no Block.forward | it is replaced"]),
        (GMM, "", ["no class Gmm | it is added"]),
        (PAD, PAD + "\n  - {action: added, kind: class, name: Gmm}", []),
        (PAD, PAD + "\n  - {action: added, kind: module_attr, name: os}", []),
        ("class_changes:", "note: mine\nclass_changes:", []),
    ],
)  # fmt: skip
def test_what_differs_is_in_a_line(old: str, new: str, expected: list[str]) -> None:
    assert RIGHT.count(old) == 1
    assert told(RIGHT.replace(old, new)) == expected


def test_a_member_below_a_key_that_the_plugin_does_not_read_is_not_listed() -> None:
    diff = "changes:\n  - {action: replaced, kind: method, name: apply}\n"
    assert told(diff, changed("def apply(): ...\n", "def apply(a): ...\n")) == ["no apply | it is replaced"]


def test_a_class_without_members() -> None:
    diff = "class_changes:\n  - action: updated\n    name: Block\n    changes:\n"
    after = BEFORE.replace("def forward(self): return 1\nclass", "def forward(self): return 2\nclass")
    assert told(diff, changed(BEFORE, after)) == ["no Block.forward | it is replaced"]


def test_a_patch_without_an_entry_and_an_entry_without_a_patch() -> None:
    found = list(differences([repo()], written("{}", name="other")))
    assert [(one.file, one.said) for one in found] == [
        ("model", "nothing of this patch"),
        ("other", "a patch of this name"),
    ]
    assert {"LIMIT", "apply", "Block.forward", "class Gmm"} <= set(found[0].so.removeprefix("it changes ").split(", "))


@pytest.mark.parametrize("rev", [REV, REV[:9], REV[:7]])
def test_a_version_is_found_by_its_commit_whole_or_short(rev: str) -> None:
    assert list(differences([repo(rev=rev)], written(RIGHT))) == []


def test_a_repository_and_a_version_that_are_not_there() -> None:
    verl = RepoChanges("verl", "796871d7d", ())
    assert list(differences([verl, repo(rev="1234567")], written(RIGHT))) == [
        Difference("verl", "", "nothing for 796871d7d", "there are patches for it"),
        Difference("transformers", "", "nothing for 1234567", "there are patches for it"),
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
