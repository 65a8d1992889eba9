"""Places that list package files: indexes of the simple API, find-links folders and pages; what they have or lack.

`file://` indexes and folders are read directly. Several are asked at once, and all answers are there within a limit.
An index whose URL is that of a wheel is that one file.
"""

from __future__ import annotations

import html
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
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
    """A file that a place lists; its version is a valid one. `sha256` is "" and `size` 0 where it does not tell.

    `uploaded` is the day of its upload in UTC (ISO), "" where the place tells no time; `yanked` is the reason ("" when
    none is given), None for a file that was not yanked.
    """

    name: str
    version: str
    file: str
    url: str = field(repr=False)
    sha256: str
    size: int
    place: Place
    uploaded: str = ""
    yanked: str | None = None
    requires_python: str = ""


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


def list_files(place: Place, project: str, session: requests.Session, timeout: float) -> tuple[Listed, ...]:
    """Return what `place` lists of `project`. Raises what requests and pypi_simple raise; see `ask`."""
    folder = place.folder
    if direct_file(place):
        return _direct(place, project, session, timeout)
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
    return tuple(_listed(package, place) for package in packages if _has_version(package))


def _has_version(package: DistributionPackage) -> bool:
    """Whether a file's version is one: an index has files of twenty years."""
    try:
        Version(package.version or "")
    except InvalidVersion:
        return False
    return True


def direct_file(place: Place) -> str:
    """Return the name of the one file that a place is, "" for one that lists files."""
    name = unquote(urlsplit(place.url).path.rpartition("/")[2])
    return name if name.endswith(".whl") and not place.links else ""


def _direct(place: Place, project: str, session: requests.Session, timeout: float) -> tuple[Listed, ...]:
    """The one file of a place, when it is the project's and is there; what it holds is not looked at."""
    file = direct_file(place)
    try:
        name, version, _build, _tags = parse_wheel_filename(file)
    except InvalidWheelFilename as error:
        raise ValueError(str(error)) from error
    if name != canonicalize_name(project):
        return ()
    url, _, fragment = place.url.partition("#")
    size = url_path(url).stat().st_size if url.startswith("file:") else _remote_size(place, session, timeout)
    sha256 = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
    return (Listed(name, str(version), file, url, sha256, size, place),)


def _remote_size(place: Place, session: requests.Session, timeout: float) -> int:
    """Bytes of the file at the place's URL, 0 where its server does not tell; without reading it."""
    headers = {"Accept-Encoding": "identity"}
    with session.get(place.url, timeout=timeout, stream=True, headers=headers) as response:
        if response.status_code == 404:
            raise NoSuchProjectError(direct_file(place), place.url)
        response.raise_for_status()
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else 0


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
        place=place,
        uploaded=package.upload_time.astimezone(UTC).date().isoformat() if package.upload_time else "",
        yanked=(package.yanked_reason or "") if package.is_yanked else None,
        requires_python=package.requires_python or "",
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
    ages: set[str | None] = set()
    session.hooks["response"].append(lambda response, **_: ages.update(_host_with_ages(response)))

    def work(number: int, place: Place, project: str) -> None:
        found = ask(place, project, session, timeout)
        if found.state in (State.SERVER, State.RESET) and time.monotonic() + AGAIN < end:
            time.sleep(AGAIN)
            found = ask(place, project, session, timeout)
        answers[number] = replace(found, ages=urlsplit(place.url).hostname in ages)

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


def _host_with_ages(response: requests.Response) -> set[str | None]:
    return {urlsplit(response.url).hostname} if "Cache-Control" in response.headers else set()


class Asked:
    """Answers of places, kept for as long as the value lives: the locks of one run ask the same things.

    May be used by several threads at once. Trouble is kept too: a place that did not answer is not waited for again.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[Place, str], Answer] = {}

    def ask(self, questions: Sequence[tuple[Place, str]], settings: PipSettings, timeout: float) -> tuple[Answer, ...]:
        """Answer as `ask_all` does, asking only what was not asked before."""
        new = [question for question in dict.fromkeys(questions) if question not in self._answers]
        self._answers.update(zip(new, ask_all(new, settings, timeout) if new else (), strict=True))
        return tuple(self._answers[question] for question in questions)


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
