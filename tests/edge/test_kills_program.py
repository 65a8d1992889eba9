"""What `python -m tests.e2e.kills` makes of how a command ended, without an engine."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cannery.engine.io.containers import owner
from tests.e2e.kills import PLAN, Bench, How, chosen, faults_of_killed, last_word

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_word_that_is_in_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no command of the plan has 'cold' in its name: image, all there; "):
        chosen(["push", "cold"])


def test_a_whole_name_chooses_that_command_alone() -> None:
    assert [name for name, _ in chosen(["image, from nothing"])] == ["image, from nothing"]
    assert [name for name, _ in chosen(["push", "load"])] == ["image, base to load", "load", "push"]
    assert chosen([]) == list(PLAN)


def test_a_killed_command_that_can_still_speak_ends_in_order() -> None:
    assert faults_of_killed(How.TREE, -9, "") == []
    assert faults_of_killed(How.ENGINE, 5, "the engine has gone") == []
    assert faults_of_killed(How.TERMINATE, 130, "interrupted") == []
    assert faults_of_killed(How.INTERRUPT, -2, "") == ["exit -2 on Ctrl-C, not 130"]
    assert faults_of_killed(How.ENGINE, 70, "Traceback (most recent call last):\n") == [
        "a traceback",
        "exit 70 on kill -9 of dockerd, as if Cannery were to blame",
    ]


def test_the_last_word_tells_of_a_phase_not_of_a_finding() -> None:
    said = ["stand-in: making it", "note [fit-unknown] no row", "    fix: look for a newer table", ""]
    assert last_word(said) == "stand-in: making it"
    assert last_word(said[1:]) == "(nothing yet)"
    assert last_word(["    0.6 s  a|b"]) == "0.6 s  a/b"


def bench(answers: Iterator[str]) -> Bench:
    """A bench on an engine that answers so, one after the other."""
    engine: Any = SimpleNamespace(docker=lambda *_words, **_options: SimpleNamespace(stdout=next(answers)))
    return Bench(engine, Path("/nowhere"), "killed", Path("/nowhere"), random.Random(1))


def test_images_of_one_time_come_in_any_order() -> None:
    found = bench(iter(["b\na\nc\n", "c\nb\na\n"]))
    assert found._dangling() == found._dangling() == ["a", "b", "c"]


def test_a_container_of_a_run_that_goes_on_is_no_leftover() -> None:
    place = owner().rsplit(" ", 2)[0]
    lines = f"cannery-verify-1 running\t{owner()}\ncannery-verify-2 running\t{place} 4194304 7\nmine exited\t\n"
    assert bench(iter([lines]))._containers() == ["cannery-verify-2 running", "mine exited"]
