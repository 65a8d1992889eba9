"""Lock files, and the one retry policy."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from cannery.errors import UnableError
from cannery.util.io.http import PassingError, retrying
from cannery.util.io.locks import StoppedError, held
from cannery.util.io.waiting import begin

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def nothing() -> None:
    """Not waiting is no news."""


def test_a_second_run_waits_until_the_first_is_done_and_reports_it_once(tmp_path: Path) -> None:
    path, order, waits = tmp_path / "deep/x.lock", [], threading.Event()

    def second() -> None:
        with held(path, lambda: (order.append("waits"), waits.set())):
            order.append("second")

    with held(path, nothing):
        other = begin(second)
        assert waits.wait(10)
        order.append("first")
    other.result(10)
    assert order == ["waits", "first", "second"]


def test_a_run_that_is_stopped_does_not_wait_any_longer(tmp_path: Path) -> None:
    stop = threading.Event()
    with held(tmp_path / "x.lock", nothing):
        other = begin(lambda: held(tmp_path / "x.lock", stop.set, stop).__enter__())
        with pytest.raises(StoppedError):
            other.result(10)


def test_a_lock_file_that_cannot_be_made_is_reported_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnableError) as caught, held(tmp_path / "file/x.lock", nothing):
        pass
    assert caught.value.where == f"{tmp_path}/file/x.lock"
    assert "move it away" in caught.value.hint


def tried(times: int, error: type[Exception] = PassingError) -> tuple[list[int], Callable[[], str]]:
    """A job that fails so many times, and the list of its tries."""
    tries: list[int] = []

    def job() -> str:
        tries.append(1)
        if len(tries) <= times:
            raise error("again")
        return "done"

    return tries, job


@pytest.mark.parametrize(("times", "waits"), [(0, []), (2, [0.5, 1.5]), (3, [0.5, 1.5, 4.5])])
def test_what_may_pass_is_tried_again_with_longer_waits(times: int, waits: list[float]) -> None:
    slept: list[float] = []
    tries, job = tried(times)
    assert retrying(slept.append)(job) == "done"
    assert (len(tries), slept) == (times + 1, waits)


def test_the_fourth_failure_and_any_other_error_are_raised() -> None:
    slept: list[float] = []
    tries, job = tried(9)
    with pytest.raises(PassingError, match="again"):
        retrying(slept.append)(job)
    assert len(tries) == 4
    tries, job = tried(9, ValueError)
    with pytest.raises(ValueError, match="again"):
        retrying(slept.append)(job)
    assert len(tries) == 1


def test_no_wait_goes_beyond_the_limit() -> None:
    slept: list[float] = []
    tries, job = tried(9)
    with pytest.raises(PassingError):
        retrying(slept.append, longest=1.0)(job)
    assert (len(tries), slept) == (2, [0.5])
