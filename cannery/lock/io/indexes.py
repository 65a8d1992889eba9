"""What places that list package files have or lack; several are asked at once, and answer within a limit."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pypi_simple import NoSuchProjectError, UnsupportedContentTypeError, UnsupportedRepoVersionError

from cannery.lock.io.listing import Listed, list_files
from cannery.util.io.http import HostSession, PassingError, retrying, trouble
from cannery.util.io.waiting import begin
from cannery.util.trouble import OF_HOST, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    import requests

    from cannery.lock.io.places import Place
    from cannery.util.io.pip_settings import PipSettings


@dataclass(frozen=True)
class Answer:
    """What `place` answered about `project`."""

    place: Place
    project: str
    state: State
    detail: str = ""
    files: tuple[Listed, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether an index answered at all; it may still not have the project."""
        return self.state in (State.OK, State.EMPTY, State.NOT_FOUND)

    @property
    def dated(self) -> bool:
        """Whether a date bound can be applied to what the place lists."""
        return any(file.uploaded for file in self.files)

    def __str__(self) -> str:
        return f"{self.place}: {self.state}{f' ({self.detail})' if self.detail else ''}"


def ask(place: Place, project: str, session: requests.Session, timeout: float) -> Answer:
    """Ask one place for one project; trouble is part of the answer. `timeout` is in seconds, of each wait."""
    try:
        files = list_files(place, project, session, timeout)
    except NoSuchProjectError:
        return Answer(place, project, State.NOT_FOUND)
    except (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValueError, OSError, RecursionError) as error:
        return Answer(place, project, *trouble(error, session, place.url))
    return Answer(place, project, State.OK if files else State.EMPTY, "", files)


def ask_all(questions: Sequence[tuple[Place, str]], settings: PipSettings, timeout: float = 5.0) -> tuple[Answer, ...]:
    """Ask every (place, project) at once; all answers are there after `timeout` seconds, late ones as time-outs."""
    session = HostSession(settings)
    futures = [begin(partial(_ask_again, *question, session, timeout)) for question in questions]
    done, _late = wait(futures, timeout)
    answers = []
    for future, (place, project) in zip(futures, questions, strict=True):
        answer = future.result() if future in done else None
        if answer is None or answer.state is State.TIMEOUT:  # the request's own time-out may come first
            answer = Answer(place, project, State.TIMEOUT, _silence(session, place, timeout))
        answers.append(answer)
    return tuple(answers)


def _ask_again(place: Place, project: str, session: requests.Session, timeout: float) -> Answer:
    """Ask, and again while time is left and the trouble may pass."""
    answer = Answer(place, project, State.OTHER)
    with suppress(PassingError):
        for attempt in retrying(longest=timeout):
            with attempt:
                answer = ask(place, project, session, timeout)
                if answer.state in (State.SERVER, State.RESET):
                    raise PassingError
    return answer


def _silence(session: HostSession, place: Place, timeout: float) -> str:
    proxy = session.proxy_words(place.url)
    return f"no answer within {timeout:g} s" + (f" through {proxy}" if proxy else "")


class Asked:
    """Answers of places, kept as long as the value lives: the locks of one run ask the same questions.

    May be used by several threads: the second one waits for the answers of the first. A place that was not reached is
    not asked again, whatever the question.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[Place, str], Answer] = {}
        self._lost: dict[Place, Answer] = {}
        self._one_at_a_time = threading.Lock()

    def ask(self, questions: Sequence[tuple[Place, str]], settings: PipSettings, timeout: float) -> tuple[Answer, ...]:
        """Answer as `ask_all` does, asking only what was not asked before."""
        with self._one_at_a_time:
            new = [q for q in dict.fromkeys(questions) if q not in self._answers and q[0] not in self._lost]
            self._answers.update(zip(new, ask_all(new, settings, timeout) if new else (), strict=True))
            self._lost.update({a.place: a for a in self._answers.values() if a.state in OF_HOST})
        return tuple(self._answers.get(q) or replace(self._lost[q[0]], project=q[1]) for q in questions)
