"""Several images in one run: which ones, in which order, what ends the run, the table and the exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cannery.cli.arguments import parse
from cannery.commands import matrix as module
from cannery.commands.matrix import Outcome, cells_of, make_all
from cannery.errors import BuildFailedError, ExitCode, FindingsError, UsageError
from cannery.vocab import Arch

if TYPE_CHECKING:
    import argparse


class Surroundings:
    """What `make_all` reads of the context."""

    arch = Arch.AMD64

    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json, self.lines = is_json, list[str]()

    def catalog(self) -> None:
        """Return what `select` is given."""

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(autouse=True)
def profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def select(_catalog: object, name: str, *_more: object) -> None:
        if name == "nosuch":
            raise UsageError("no profile nosuch")

    monkeypatch.setattr(module, "select", select)


def names(cells: list[argparse.Namespace]) -> list[tuple[str, str | None, str | None]]:
    return [(cell.profile, cell.chip, cell.arch) for cell in cells]


def test_each_profile_chip_and_architecture_is_an_image() -> None:
    arguments = parse(["image", "a", "b", "--chip", "910b,a3", "--arch", "arm64"])
    wanted = [("a", "910b", "arm64"), ("a", "a3", "arm64"), ("b", "910b", "arm64"), ("b", "a3", "arm64")]
    assert names(cells_of(arguments)) == wanted


def test_one_image_has_what_the_profile_says() -> None:
    arguments = parse(["image", "a"])
    arguments.begun = {"catalog": "1"}
    (cell,) = cells_of(arguments)
    assert names([cell]) == [("a", None, None)]
    assert cell.begun == {"catalog": "1"}


def test_what_is_named_twice_is_made_once_and_a_part_leaves_no_stamp() -> None:
    arguments = parse(["image", "a", "a", "--chip", "a3,a3,910b"])
    arguments.begun = {"catalog": "1"}
    cells = cells_of(arguments)
    assert names(cells) == [("a", "a3", None), ("a", "910b", None)]
    assert [cell.begun for cell in cells] == [{}, {}]


def test_two_names_of_one_chip_or_architecture_are_one_image() -> None:
    arguments = parse(["image", "a", "--chip", "910b,A2", "--arch", "amd64,x86_64"])
    assert names(cells_of(arguments)) == [("a", "910b", "amd64")]


def test_a_layout_is_of_one_image() -> None:
    with pytest.raises(UsageError, match="for one image"):
        cells_of(parse(["image", "a", "b", "--output", "oci:there"]))


@pytest.mark.parametrize("text", ["oci:", "oci", "tar:x", ""])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a place for an image"):
        parse(["image", "a", "--output", text])


def made(cell: argparse.Namespace, _context: object) -> Outcome:
    """Make an image: profile b fails, c cannot work, d is not verified."""
    if cell.profile == "b":
        raise BuildFailedError("stage torch: build failed\nexit code 1", where="Dockerfile", hint="look")
    if cell.profile == "c":
        raise FindingsError("the set cannot work")
    code = ExitCode.VERIFY_FAILED if cell.profile == "d" else ExitCode.DONE
    return Outcome(code, f"image {cell.profile}", {"id": cell.profile})


def run(words: list[str], context: Surroundings) -> ExitCode:
    arguments = parse(["image", *words])
    given: Any = context
    return make_all(cells_of(arguments), arguments, given, made)


def test_the_first_failure_ends_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    context = Surroundings()
    assert run(["a", "b", "e"], context) is ExitCode.BUILD_FAILED
    *_, first, second, third = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == ["a", "done"]
    assert "exit code 5" in second
    assert second.endswith("stage torch: build failed")
    assert third.split() == ["e", "not", "begun"]
    assert any("look" in line for line in context.lines)  # the whole error, with its hint


def test_with_keep_going_the_others_are_made_and_the_first_code_counts(capsys: pytest.CaptureFixture[str]) -> None:
    context = Surroundings()
    assert run(["c", "b", "a", "d", "e", "--keep-going"], context) is ExitCode.FINDINGS
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith("image ")] == ["image a", "image d", "image e"]
    assert [line.split()[1] for line in out[-5:]] == ["exit", "exit", "done", "exit", "done"]
    assert context.lines[0] == "image 1 of 5: c"


def test_a_profile_that_nobody_knows_ends_the_run_before_the_first_image() -> None:
    context = Surroundings()
    with pytest.raises(UsageError, match="no profile nosuch"):
        run(["a", "nosuch", "--keep-going"], context)
    assert context.lines == []


@pytest.mark.parametrize("text", [",", "910b,", ",a3", "910b,,a3"])
def test_an_empty_word_is_no_chip(text: str) -> None:
    with pytest.raises(UsageError, match=r"--chip: .* empty word") as caught:
        cells_of(parse(["image", "a", "--chip", text]))
    assert caught.value.hint


def test_blanks_are_no_part_of_a_chip() -> None:
    assert names(cells_of(parse(["image", "a", "--chip", "910b, a3"]))) == [("a", "910b", None), ("a", "a3", None)]


def test_all_done_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["a", "e"], Surroundings()) is ExitCode.DONE
    assert "not begun" not in capsys.readouterr().out


def test_json_is_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    run(["a", "b", "e", "--json"], Surroundings(is_json=True))
    found = json.loads(capsys.readouterr().out)
    assert [(one["image"], one["code"]) for one in found] == [("a", 0), ("b", 5), ("e", None)]
    assert found[0]["id"] == "a"
    assert found[1]["hint"] == "look"
