"""Places that list package files: indexes of the simple API, find-links folders and pages; what they have or lack.

`file://` indexes and folders are read directly. Several are asked at once, and all answers are there within a limit.
"""

from __future__ import annotations

import html
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from pypi_simple import (
    NoSuchProjectError,
    ProjectPage,
    PyPISimple,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)

from cannery.core.lock import DEFAULT_INDEX
from cannery.edge.index_trouble import State, trouble
from cannery.edge.places import bound_places, default_place, extra_places, url_path
from cannery.edge.session import HostSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import requests
    from pypi_simple import DistributionPackage

    from cannery.core.catalog import Index
    from cannery.edge.pipconf import PipSettings
    from cannery.edge.places import Place

# Seconds between two tries at an index that answered with a passing trouble (5xx, reset).
AGAIN = 0.5


@dataclass(frozen=True)
class Listed:
    """A file that a place lists. `sha256` is "" and `size` 0 where it does not tell; `dated`: it has an upload time."""

    name: str
    version: str
    file: str
    url: str = field(repr=False)
    sha256: str
    size: int
    dated: bool
    place: Place


@dataclass(frozen=True)
class Answer:
    """What `place` said about `project`."""

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
        return any(file.dated for file in self.files)

    def __str__(self) -> str:
        return f"{self.place}: {self.state}{f' ({self.detail})' if self.detail else ''}"


def list_files(place: Place, project: str, session: requests.Session, timeout: float) -> tuple[Listed, ...]:
    """Return what `place` lists of `project`. Raises what requests and pypi_simple raise; see `ask`."""
    folder = place.folder
    if place.links:
        packages = _links(place, canonicalize_name(project), session, timeout)
        wanted = canonicalize_name(project)
        packages = [package for package in packages if canonicalize_name(package.project or "") == wanted]
    elif folder is not None:
        page = folder / canonicalize_name(project) / "index.html"
        if not page.is_file():
            raise NoSuchProjectError(project, page.as_uri())
        packages = ProjectPage.from_html(project, page.read_bytes(), page.as_uri()).packages
    else:
        packages = PyPISimple(place.url, session=session).get_project_page(project, timeout=timeout).packages
    return tuple(_listed(package, place) for package in packages if package.version)


def _links(place: Place, project: str, session: requests.Session, timeout: float) -> list[DistributionPackage]:
    """Files of a find-links place: those of a folder that may be the project's, or all links of a page."""
    folder = place.folder
    if folder is None:
        response = session.get(place.url, timeout=timeout)
        response.raise_for_status()
        return ProjectPage.from_html("", response.content, response.url).packages
    if folder.is_dir():
        # Of a large folder most is not the project's, and parsing a page of it for each package would take long.
        mine = (path for path in sorted(folder.iterdir()) if canonicalize_name(path.name).startswith(project))
        page = "".join(f'<a href="{path.as_uri()}">{html.escape(path.name)}</a>' for path in mine if path.is_file())
        return ProjectPage.from_html("", page).packages
    return ProjectPage.from_html("", folder.read_bytes(), folder.as_uri()).packages


def _listed(package: DistributionPackage, place: Place) -> Listed:
    file = unquote(urlsplit(package.url).path.rpartition("/")[2]) or package.filename
    size = package.size or 0
    path = url_path(package.url) if package.url.startswith("file:") else None
    if path is not None and path.is_file():
        size = path.stat().st_size
    return Listed(
        name=canonicalize_name(package.project or ""),
        version=str(package.version),
        file=file,
        url=package.url,
        sha256=package.digests.get("sha256", ""),
        size=size,
        dated=package.upload_time is not None,
        place=place,
    )


def ask(place: Place, project: str, session: requests.Session, timeout: float) -> Answer:
    """Ask one place for one project; trouble is part of the answer. `timeout` is in seconds, of each wait."""
    try:
        files = list_files(place, project, session, timeout)
    except NoSuchProjectError:
        return Answer(place, project, State.NOT_FOUND)
    except (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValueError, OSError) as error:
        return Answer(place, project, *trouble(error, session, place.url))
    return Answer(place, project, State.OK if files else State.EMPTY, "", files)


def ask_all(questions: Sequence[tuple[Place, str]], settings: PipSettings, timeout: float = 5.0) -> tuple[Answer, ...]:
    """Ask every (place, project) at once; all answers are there after `timeout` seconds, late ones as time-outs."""
    end = time.monotonic() + timeout
    answers: dict[int, Answer] = {}
    session = HostSession(settings)

    def work(number: int, place: Place, project: str) -> None:
        found = ask(place, project, session, timeout)
        if found.state in (State.SERVER, State.RESET) and time.monotonic() + AGAIN < end:
            time.sleep(AGAIN)
            found = ask(place, project, session, timeout)
        answers[number] = found

    # Daemons, since a name look-up that hangs can not be ended, and must not keep the process alive.
    threads = [
        threading.Thread(target=work, args=(number, *question), daemon=True)
        for number, question in enumerate(questions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return tuple(
        answers.get(number) or Answer(place, project, State.TIMEOUT, _late(session, place, timeout))
        for number, (place, project) in enumerate(questions)
    )


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
