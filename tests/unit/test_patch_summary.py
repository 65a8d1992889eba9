"""The summary of patches: the plugin's layout, JSON, and the hand-written yaml against what the patches change."""

from __future__ import annotations

import json
import textwrap

import pytest
import yaml

from cannery.errors import UsageError
from cannery.patches.patch_summary import (
    Difference,
    HandWritten,
    differences,
    entry,
    read_summary,
    summary_lines,
    summary_page,
    summary_value,
)
from cannery.patches.py_changes import (
    Action,
    ClassChange,
    FileChanges,
    Kind,
    Member,
    PatchChanges,
    RepoChanges,
    python_changes,
)

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


def written(diff: str, name: str = "model", rev: str = REV) -> HandWritten:
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
    return read_summary(text + textwrap.indent(textwrap.dedent(diff), " " * 14), "patch_summary.yaml")


def told(diff: str, change: FileChanges | None = None) -> list[str]:
    """The differences of one entry, each after the place."""
    found = differences([repo(PatchChanges("model", (change or changed(),)))], written(diff))
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
        # a class with another name, its members those of the module
        (GMM, "- {action: added, name: gmm, changes: [{action: added, kind: module_attr, name: os}]}",
         ["class gmm added with os | class Gmm is added, and os are names of the module"]),
        (GMM, "- {action: added, name: Other}",
         ["class Other added | the patch changes no class of that name", "nothing of class Gmm | it is added"]),
        # added and replaced mixed up
        ("action: added, kind: method, name: _init_dp", "action: replaced, kind: method, name: _init_dp",
         ["method _init_dp replaced in class Block | it is added"]),
        ("action: replaced, kind: method, name: apply", "action: added, kind: method, name: apply",
         ["method apply added | it is replaced"]),
        ("action: updated", "action: added", ["class Block added | it is updated"]),
        ("{action: added, name: Gmm}", "{action: deleted, name: Gmm}", ["class Gmm deleted | it is added"]),
        # missing class, function, member
        (PAD, "", ["nothing of function pad_input | it is added"]),
        ("- {action: added, kind: attribute, name: LIMIT}", "", ["nothing of variable LIMIT | it is added"]),
        ("name: forward", "name: __init__",
         ["method __init__ replaced in class Block | the patch does not touch it",
          "nothing of method forward in class Block | it is replaced"]),
        ("name: pad_input", "name: _prepare",
         ["method _prepare added | the patch does not touch it", "nothing of function pad_input | it is added"]),
        # a function listed as a class, a class as a function
        (GMM, GMM + "\n  - {action: added, kind: method, name: pad_input}",
         ["class pad_input added | pad_input is no class: function pad_input is added"]),
        ("kind: method, name: pad_input", "kind: method, name: Gmm",
         ["method Gmm added | it is a class, which is added", "nothing of function pad_input | it is added"]),
        (GMM, "", ["nothing of class Gmm | it is added"]),
        (PAD, PAD + "\n  - {action: added, kind: class, name: Gmm}", []),
        ("kind: attribute, name: LIMIT", "kind: method, name: LIMIT", ["method LIMIT added | its kind is attribute"]),
        # keys that nothing reads
        ("class_changes:", "note: mine\nclass_changes:", ["the key `note` | key `note` prints nothing"]),
        ("name: Gmm}", "name: Gmm, why: speed}", ["the key `why` | key `why` prints nothing"]),
    ],
)  # fmt: skip
def test_what_differs_is_told_in_a_line(old: str, new: str, expected: list[str]) -> None:
    assert RIGHT.count(old) == 1
    assert told(RIGHT.replace(old, new)) == expected


def test_a_member_below_a_key_that_is_not_read() -> None:
    diff = "changes:\n  - {action: replaced, kind: method, name: apply}\n"
    assert told(diff, changed("def apply(): ...\n", "def apply(a): ...\ndef more(): ...\n")) == [
        "replaced method apply below the key `changes` | key `changes` prints nothing",
        "nothing of function more | it is added",
    ]


def test_a_class_without_members() -> None:
    diff = "class_changes:\n  - action: updated\n    name: Block\n    changes:\n"
    after = BEFORE.replace("def forward(self): return 1\nclass", "def forward(self): return 2\nclass")
    assert told(diff, changed(BEFORE, after)) == ["class Block updated, without a member | method forward is replaced"]


def test_a_patch_without_an_entry_and_an_entry_without_a_patch() -> None:
    applied = ["variable LIMIT is added", "function apply is replaced", "function pad_input is added"]
    applied += ["class Block is updated", "class Gmm is added"]
    found = differences([repo()], written("{}", name="other"))
    assert [str(one) for one in found] == [
        "transformers/model: the summary says nothing of this patch; in truth it is applied: " + ", ".join(applied),
        "transformers/other: the summary says that there is a patch of this name; in truth 8365f70e9 has none",
    ]


@pytest.mark.parametrize("rev", [REV, REV[:9], REV[:7]])
def test_a_version_is_found_by_its_commit_whole_or_short(rev: str) -> None:
    assert differences([repo(rev=rev)], written(RIGHT)) == ()


def test_a_repository_and_a_version_that_are_not_there() -> None:
    verl = RepoChanges("verl", "796871d7d", ())
    assert differences([verl, repo(rev="1234567")], written(RIGHT)) == (
        Difference("verl", "", "nothing of this repository", "it has patches for 796871d7d"),
        Difference("transformers", "", "no version 1234567", "there are patches for it"),
    )


def test_a_current_rev_that_no_version_has_and_a_folder_of_another_commit() -> None:
    text = f"patches: [{{repo: verl, current_rev: abc, extra: 1, versions: [{{rev: {REV}, dir: x1, files: }}]}}]"
    assert [str(one) for one in differences([RepoChanges("verl", REV, ())], read_summary(text, "s.yaml"))] == [
        "verl: the summary says the key `extra`; in truth key `extra` prints nothing",
        "verl: the summary says current_rev abc; in truth 0 versions have that rev, so the plugin cannot print it",
        f"verl: the summary says dir x1 for rev {REV}; in truth the one is not the beginning of the other",
    ]


def test_an_entry_that_stands_twice() -> None:
    text = """\
        patches:
          - repo: verl
            current_rev: "1234567"
            versions:
              - rev: "1234567"
                dir: "1234567"
                files: [{name: a, diff: {}}, {name: a, diff: {module_changes: }}]
        """
    patch = PatchChanges("a", (changed("", "import os\n"),))
    found = differences([RepoChanges("verl", "1234567", (patch,))], read_summary(textwrap.dedent(text), "s.yaml"))
    assert found == (Difference("verl", "a", "2 entries of this name", "the plugin prints the last of them"),)


def test_a_commit_of_digits_is_read_as_it_is_written() -> None:
    text = "patches: [{repo: verl, current_rev: 0123456, versions: [{rev: 0123456, dir: 1_0, files: []}]}]"
    version = read_summary(text, "s.yaml").patches[0].versions[0]
    assert (version.rev, version.dir) == ("0123456", "1_0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("patches: [\n", "s.yaml:2: broken YAML"),
        ("patches:\n  - repo: a\n    repo: b\n", "s.yaml:3: key 'repo' is given twice"),
        ("other: 1\n", "s.yaml:1: patches: missing"),
        ("- a\n", "s.yaml:1: the file: "),
        ("patches:\n  - repo: verl\n    current_rev: abc\n    versions: 7\n",
         "s.yaml:4: patches.0.versions: a list"),
        ("patches:\n  - repo: verl\n    current_rev: a\n    versions: [{rev: a, dir: a, files: [{name: x, diff: }]}]\n",
         "s.yaml:4: patches.0.versions.0.files.0.diff: "),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_summary(text, "s.yaml")
    assert str(caught.value).startswith(said)


def test_several_problems_come_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        read_summary("patches:\n  - repo: verl\n  - current_rev: abc\n    versions: []\n", "s.yaml")
    assert caught.value.what.split("\n") == [
        "3 problems",
        "s.yaml:2: patches.0.current_rev: missing; this key has to be given",
        "s.yaml:2: patches.0.versions: missing; this key has to be given",
        "s.yaml:3: patches.1.repo: missing; this key has to be given",
    ]
