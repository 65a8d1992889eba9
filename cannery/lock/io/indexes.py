"""What places that list package files have or lack; several are asked at once, and answer within a limit."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pypi_simple import (
    NoSuchProjectError,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)

from cannery.lock.io.listing import Listed, list_files
from cannery.lock.io.places import bound_places, default_place, extra_places
from cannery.util.io.http import HostSession
from cannery.util.io.trouble import State, trouble
from cannery.util.urls import url_host
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import requests

    from cannery.catalog.catalog import Index
    from cannery.lock.io.places import Place
    from cannery.util.io.pip_settings import PipSettings

# Seconds between two tries at an index that answered with a passing trouble (5xx, reset).
AGAIN = 0.5
# Troubles of a whole place, not of one page of it.
LOST = frozenset({State.DNS, State.REFUSED, State.TIMEOUT, State.TLS, State.PROXY, State.BUSY})


@dataclass(frozen=True)
class Answer:
    """What `place` said about `project`. `ages`: its server says how long the answer may be kept."""

    place: Place
    project: str
    state: State
    detail: str = ""
    files: tuple[Listed, ...] = ()
    ages: bool = False

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
    end = time.monotonic() + timeout
    answers: dict[int, Answer] = {}
    session = HostSession(settings)
    ages: set[str] = set()
    session.hooks["response"].append(lambda response, **_: ages.update(_host_with_ages(response)))

    defects: list[Exception] = []

    def work(number: int, place: Place, project: str) -> None:
        try:
            answers[number] = answer(place, project)
        except Exception as error:  # noqa: BLE001 - raised below: a thread's own end would be a traceback
            defects.append(error)

    def answer(place: Place, project: str) -> Answer:
        found = ask(place, project, session, timeout)
        if found.state in (State.SERVER, State.RESET) and time.monotonic() + AGAIN < end:
            time.sleep(AGAIN)
            found = ask(place, project, session, timeout)
        return replace(found, ages=_host(place.url) in ages)

    # Daemons, since a name look-up that hangs can not be ended, and must not keep the process alive.
    threads = [
        threading.Thread(target=work, args=(number, *question), daemon=True)
        for number, question in enumerate(questions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    if defects:
        raise defects[0]
    return tuple(
        answers.get(number) or Answer(place, project, State.TIMEOUT, _late(session, place, timeout))
        for number, (place, project) in enumerate(questions)
    )


def _host(url: str) -> str:
    return url_host(url).rpartition("@")[2].lower()


def _host_with_ages(response: requests.Response) -> set[str]:
    return {_host(response.url)} if "Cache-Control" in response.headers else set()


class Asked:
    """Answers of places, kept for as long as the value lives: the locks of one run ask the same things.

    May be used by several threads: who comes second waits for what the first is told. A place that was not reached is
    not tried again, whatever it is asked.
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
            self._lost.update({a.place: a for a in self._answers.values() if a.state in LOST})
        return tuple(self._answers.get(q) or replace(self._lost[q[0]], project=q[1]) for q in questions)


def _late(session: HostSession, place: Place, timeout: float) -> str:
    proxy = session.proxy_words(place.url)
    return f"no answer within {timeout:g} s" + (f" through {proxy}" if proxy else "")


def probe(
    indexes: Mapping[str, Index], settings: PipSettings, projects: Mapping[str, str], timeout: float = 5.0
) -> tuple[Answer, ...]:
    """Ask every index for one project that it should have: `projects` maps index names to it (`default` included)."""
    usual = projects.get(DEFAULT_INDEX, "pip")
    places = [(place, usual) for place in (default_place(settings), *extra_places(settings))]
    places += [
        (place, project)
        for name, project in projects.items()
        if name in indexes
        for place in bound_places(name, indexes)
    ]
    return ask_all(places, settings, timeout)
