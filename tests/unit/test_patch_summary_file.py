"""patch_summary.yaml with one version more: what is there stays, comments too."""

from __future__ import annotations

import pytest
import yaml

from cannery.errors import UsageError
from cannery.patches.summary_file import HEAD, with_version

REV = "1234567890" * 4  # which YAML reads as a number where no quotes are
OTHER = "abcdef0123" * 4
FILES = [{"name": "core", "diff": {}}]
TEXT = f"""\
# Of our own.
owner: us  # not verl_npu's

patches:
  # the trainer
  - repo: verl
    current_rev: {OTHER}  # as released
    versions:
      - rev: {OTHER}
        dir: {OTHER[:9]}
        files: []  # none
      # the next one goes here

  # the engine
  - repo: vllm
    current_rev: {OTHER}
    versions:
      - {{rev: {OTHER}, dir: {OTHER[:9]}, files: []}}
notes: [a, b]
# the end
"""
NEW = f"""\
      - rev: {REV!r}
        dir: {REV[:9]!r}
        files:
        - name: core
          diff: {{}}
"""


def added(text: str, repo: str = "verl") -> str:
    return with_version(text, repo, REV, REV[:9], FILES)


def test_first_version_starts_the_file() -> None:
    entry = {"repo": "verl", "current_rev": REV, "versions": [{"rev": REV, "dir": REV[:9], "files": FILES}]}
    assert yaml.safe_load(added("")) == {"patches": [entry]}
    assert added("").startswith(HEAD)
    assert added("# mine\n").startswith("# mine\npatches:\n")


def test_version_is_put_behind_the_others_and_nothing_else_changes() -> None:
    behind = f"        files: []  # none\n{NEW}"
    wanted = TEXT.replace("        files: []  # none\n", behind)
    wanted = wanted.replace(f"current_rev: {OTHER}  # as", f"current_rev: {REV!r}  # as")
    assert added(TEXT) == wanted


def test_repo_is_put_behind_the_others_and_nothing_else_changes() -> None:
    edited = added(TEXT, "engine")
    start, end = TEXT.split("notes:")
    assert edited.startswith(start)
    assert edited.endswith(f"\nnotes:{end}")
    assert yaml.safe_load(edited)["patches"][2]["repo"] == "engine"
    assert yaml.safe_load(edited)["patches"][:2] == yaml.safe_load(TEXT)["patches"]


@pytest.mark.parametrize("rev", [REV, REV[:9], f"'{REV[:7]}'", OTHER])
def test_version_of_the_same_revision_or_folder_is_replaced(rev: str) -> None:
    folder = REV[:9] if rev == OTHER else "elsewhere"
    text = TEXT.replace(f"rev: {OTHER}\n        dir: {OTHER[:9]}", f"rev: {rev}\n        dir: {folder!r}")
    edited = added(text)
    (version,) = yaml.safe_load(edited)["patches"][0]["versions"]
    assert version == {"rev": REV, "dir": REV[:9], "files": FILES}
    assert "      # the next one goes here\n\n  # the engine\n" in edited
    assert added(edited) == edited, "the second time nothing changes"


@pytest.mark.parametrize(
    "text",
    [
        f"# top\nowner: us\npatches: [{{repo: verl, current_rev: x, versions: [{{rev: {OTHER}, files: []}}]}}]\n",
        f"# top\nowner: us\npatches:\n- repo: verl\n  versions:\n  - rev: {OTHER}\n    files: []\n",
        f"# top\nowner: us\npatches:\n- repo: verl\n  current_rev: x\n  versions: [{{rev: {OTHER}, files: []}}]\n",
    ],
)
def test_other_styles_keep_all_values(text: str) -> None:
    edited = added(text)
    value = yaml.safe_load(edited)
    assert edited.startswith("# top\n")
    assert value["owner"] == "us"
    (entry,) = value["patches"]
    assert (entry["repo"], entry["current_rev"]) == ("verl", REV)
    assert [one["rev"] for one in entry["versions"]] == [OTHER, REV]


def test_two_versions_of_one_revision_become_one() -> None:
    double = "".join(f"  - rev: '{rev}'\n    files: []\n" for rev in (REV[:8], OTHER, REV))
    value = yaml.safe_load(added(f"patches:\n- repo: verl\n  current_rev: x\n  versions:\n{double}"))
    assert [one["rev"] for one in value["patches"][0]["versions"]] == [REV, OTHER]


@pytest.mark.parametrize(
    "text",
    ["[" * 600, "a: 2020-13-45\n", "- a\n", "x", "patches: 3\n", "patches: [{}]\n", "patches: [\n", "a: \x01\n"],
)
def test_what_is_no_summary_is_the_users(text: str) -> None:
    with pytest.raises(UsageError, match="does not have verl_npu's form"):
        added(text)
