"""Edits of a profile's text: what was asked changes, and not a byte more."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cannery.catalog.catalog import Profile
from cannery.errors import UsageError
from cannery.upgrade.edit import (
    Edit,
    SetDate,
    SetVersion,
    edit_profile,
)

WHERE = "images/profiles/x.yaml"
TEXT = """\
# a stack
summary: torch  # and more
target: {cann: "8.5.0", chip: 910b, os: ubuntu22.04, python: "3.11"}
exclude_newer: "2026-01-02" # the day of the guide

components:
  # order is layer order
  - {name: torch, version: "2.8.0", reason: "what torch_npu extends"}  # a pin
  - name: torch-npu
    version: '2.8.0.post2'   # its row
    reason: x
  - {name: ray}
  - name: My.Tool # in block style
    reason: y
  - {name: numpy, version: 2.1.3}
# the end
shm_size: 2g
"""
DAY = SetDate("ray", "2026-05-06")


def profile(text: str) -> Profile:
    return Profile.model_validate(yaml.load(text, Loader=yaml.CSafeLoader))


def edited(text: str, *edits: Edit) -> str:
    """The edited text, which is that of the profile that comes with it."""
    after, model = edit_profile(text, edits, WHERE)
    assert profile(after) == model
    return after


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (SetVersion("torch", "2.9.0"), 'version: "2.8.0"', 'version: "2.9.0"'),
        (SetVersion("torch-npu", "2.9.0"), "version: '2.8.0.post2'", "version: '2.9.0'"),
        (SetVersion("numpy", "2.2"), "version: 2.1.3", 'version: "2.2"'),
        (SetVersion("ray", "2.50.0"), "{name: ray}", '{name: ray, version: "2.50.0"}'),
        (SetVersion("my-tool", "1"), "# in block style\n", '# in block style\n    version: "1"\n'),
        (
            DAY,
            "# the day of the guide\n",
            (
                "# the day of the guide\nexclude_newer_packages:\n"
                '  ray: {date: "2026-05-06", reason: "by build.py lock --upgrade"}\n'
            ),
        ),
    ],
    ids=str,
)
def test_one_place_changes_and_every_other_byte_stays(edit: Edit, old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert edited(TEXT, edit) == TEXT.replace(old, new)


DATED = """\
exclude_newer_packages: # later
  # why torch
  torch: {date: "2026-02-02", reason: "came a month after"}
  Ray: # the old one
    date: '2026-03-03'
    reason: of a person
"""


@pytest.mark.parametrize(
    ("part", "edit", "old", "new"),
    [
        (DATED, DAY, "'2026-03-03'", "'2026-05-06'"),
        (
            DATED,
            SetDate("numpy", "2026-05-06"),
            "# later\n",
            '# later\n  numpy: {date: "2026-05-06", reason: "by build.py lock --upgrade"}\n',
        ),
        (
            "exclude_newer_packages: {}\n",
            DAY,
            "{}",
            '{ray: {date: "2026-05-06", reason: "by build.py lock --upgrade"}}',
        ),
        (
            'exclude_newer_packages: {a: {date: "2026-01-01", reason: "of a person"}} # all\n',
            DAY,
            "{a:",
            '{ray: {date: "2026-05-06", reason: "by build.py lock --upgrade"}, a:',
        ),
    ],
)
def test_what_is_there_is_changed_or_gets_a_first_entry(part: str, edit: Edit, old: str, new: str) -> None:
    text = TEXT + part
    assert edited(text, edit) == TEXT + part.replace(old, new)


def test_a_second_run_of_an_edit_changes_nothing() -> None:
    edits = (SetVersion("torch", "2.9.0"), SetVersion("ray", "2.50"), DAY)
    once = edited(TEXT, *edits)
    assert edited(once, *edits) == once


def test_a_key_that_yaml_would_not_take_for_a_text_is_quoted() -> None:
    assert '  "no": {date' in edited(TEXT, SetDate("no", "2026-05-06"))


def test_line_ends_of_another_system_stay() -> None:
    text = TEXT.replace("\n", "\r\n")
    after = edited(text, SetVersion("my-tool", "1"), DAY)
    assert after.count("\n") == after.count("\r\n")
    assert after.replace("\r\n", "\n") == edited(TEXT, SetVersion("my-tool", "1"), DAY)


def test_a_profile_in_one_flow_mapping_and_one_without_a_last_line_end() -> None:
    flow = '{summary: s, target: {cann: "8.5.0", chip: a3, os: ubuntu22.04, python: "3.11"}, '
    flow += 'exclude_newer: "2026-01-02", components: [{name: torch, version: "1"}]}'
    after = edited(flow, SetVersion("torch", "2"), DAY)
    assert after.startswith(flow[: flow.index('"2026-01-02"') + 12])
    assert edited(TEXT + "exclude_newer_packages: {}", DAY).endswith('--upgrade"}}')


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # One text stands for the version of two components.
        (TEXT.replace('"2.8.0"', '&v "2.8.0"').replace("2.1.3", "*v"), 8),
        # It is no profile any more.
        ("x: 1\n" + TEXT, 1),
    ],
)
def test_a_text_that_cannot_be_edited_is_said_with_its_line(text: str, line: int) -> None:
    with pytest.raises(UsageError) as caught:
        edit_profile(text, [SetVersion("torch", "2.9.0")], WHERE)
    assert caught.value.where == f"{WHERE}:{line}"
    assert caught.value.hint == 'write there by hand, then run lock: version: "2.9.0" of component torch'


PROFILES = [
    path
    for path in sorted((Path(__file__).parents[2] / "images/profiles").glob("*.yaml"))
    if "\nextends:" not in path.read_text()  # its parent has what is edited
]


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_committed_profile_can_be_edited_line_by_line(path: Path) -> None:
    text = path.read_text()
    pinned = [pin for pin in profile(text).components if pin.version]
    for pin in pinned:
        after = edited(text, SetVersion(pin.name, "77.1"))
        gone = [line for line in difflib.ndiff(text.splitlines(), after.splitlines()) if line.startswith("- ")]
        assert len(gone) == 1
        assert sum(line.count("77.1") for line in after.splitlines()) == 1 + text.count("77.1")
    after = edited(text, SetDate("made-up", "2099-01-01"))
    kept = [line for line in after.splitlines() if "made-up" not in line and line != "exclude_newer_packages:"]
    assert kept == [line for line in text.splitlines() if line != "exclude_newer_packages:"]


QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*\"""")


def comment_of(line: str) -> str:
    """The comment of a line; a ` # ` in quotes is none."""
    return QUOTED.sub("", line).partition(" # ")[2]


COMMENTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=20)
REASONS = st.text(st.sampled_from("abc \"'#:{}[],é-"), min_size=8, max_size=20)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Profiles in either style, with comments wherever one may stand."""

    def comment() -> str:
        return f" # {draw(COMMENTS)}" if draw(st.booleans()) else ""

    def line() -> str:
        return f"{' ' * draw(st.integers(0, 6))}# {draw(COMMENTS)}\n" if draw(st.booleans()) else ""

    def pin(name: str, version: str | None) -> str:
        quote = draw(st.sampled_from(['"', "'"]))
        fields = [("name", name), *([("version", quote + version + quote)] if version else [])]
        fields += [("reason", repr(draw(REASONS)).replace("\\'", "''"))] if draw(st.booleans()) else []
        if draw(st.booleans()):
            return f"  - {{{', '.join(f'{k}: {v}' for k, v in fields)}}}{comment()}\n"
        return f"  - {'    '.join(f'{k}: {v}{comment()}{chr(10)}' for k, v in fields)}"

    head = f"summary: s{comment()}\n" + 'target: {cann: "8.5.0", chip: a3, os: ubuntu22.04, python: "3.11"}\n'
    parts = [line(), head, line(), f'exclude_newer: "2026-01-02"{comment()}\n', line(), f"components:{comment()}\n"]
    for name, version in (("torch", "2.8.0"), ("ray", None), ("numpy", "2.1.3")):
        parts += [line(), pin(name, version)]
    if draw(st.booleans()):
        parts += [line(), f"exclude_newer_packages:{comment()}\n", line()]
        parts += ['  pip: {date: "2026-01-03", reason: "of a person"}', comment(), "\n"]
    return "".join([*parts, line(), f"shm_size: 2g{comment()}\n"])


@given(text=texts(), data=st.data())
@settings(max_examples=150)
def test_no_edit_takes_a_comment_or_a_line_that_it_is_not_about(text: str, data: st.DataObject) -> None:
    edits = [
        SetVersion("torch", "2.9.0"),
        SetVersion("ray", "2.50.0"),
        SetDate("pip", "2026-05-06"),
        SetDate("click", "2026-05-06"),
    ]
    edit = data.draw(st.sampled_from(edits))
    after = edited(text, edit)
    old, new = text.splitlines(), after.splitlines()
    head = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    same = (a == b for a, b in zip(reversed(old[head:]), reversed(new[head:]), strict=False))
    tail = next((n for n, equal in enumerate(same) if not equal), min(len(old), len(new)) - head)
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    # One line is changed within, or one or two are put between others.
    assert (len(gone), len(come)) in {(1, 1), (0, 1), (0, 2)}
    for one, other in zip(gone, come, strict=False):
        assert comment_of(one) == comment_of(other)
