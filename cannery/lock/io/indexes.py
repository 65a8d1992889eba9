"""Places that list package files, from pip's settings and the catalog, and the files that they list.

A place is an index (simple repository API), or a find-links folder or page. `file://` indexes and folders are read
directly. All places are queried at the same time, within a time limit.
"""

from __future__ import annotations

import html
import threading
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    NoSuchProjectError,
    ProjectPage,
    PyPISimple,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)

from cannery.catalog.target import is_version
from cannery.util.addresses import file_path, shown
from cannery.util.io.files import local_sha256
from cannery.util.io.http import HostSession, PassingError, retrying, trouble
from cannery.util.io.waiting import begin
from cannery.util.trouble import OF_HOST, State
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import requests
    from pypi_simple import DistributionPackage

    from cannery.catalog.addresses import Index
    from cannery.util.io.pip_settings import PipSettings


# Errors for a page that is not a page of an index. A time out of range raises `OverflowError`.
_NO_PAGE = (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValueError, RecursionError, OverflowError)
# Seconds after which an index counts as not reached. With the start of Python and pip, a user waits about five.
PROBE = 4.0


@dataclass(frozen=True)
class Place:
    """A place that lists files. `index` is its name in locks, `links` whether it is a flat list of files.

    All places from the host's pip settings have the index name `default`.
    """

    index: str
    label: str
    url: str = field(repr=False)
    links: bool = False

    @property
    def folder(self) -> Path | None:
        """The local path; None for a place on the network."""
        return url_path(self.url) if self.url.startswith("file:") else None

    def __str__(self) -> str:
        return f"{self.label} ({shown(self.url)})"


def default_place(settings: PipSettings) -> Place:
    """Return the host's main index: pip's index-url (which may be a path), or pip's default."""
    return Place(DEFAULT_INDEX, "index default", as_url(settings.index_url or PYPI_SIMPLE_ENDPOINT))


def extra_places(settings: PipSettings) -> tuple[Place, ...]:
    """Return the host's extra indexes and find-links, in pip's order.

    Local folders that do not exist are left out; `PipSettings.notes` lists them.
    """
    extras = [Place(DEFAULT_INDEX, "extra index", as_url(url)) for url in settings.extra_index_urls]
    links = [Place(DEFAULT_INDEX, "find-links", as_url(url), links=True) for url in settings.find_links]
    return tuple(place for place in (*extras, *links) if place.folder is None or place.folder.exists())


def bound_places(name: str, indexes: Mapping[str, Index]) -> tuple[Place, ...]:
    """Return the places of an index of the catalog, in the order in which they are tried."""
    index = indexes[name]
    pages = (Place(name, f"index {name}", url, links=True) for url in index.pages)
    return (*pages, *(Place(name, f"index {name}", url) for url in index.urls))


def places_of(name: str, indexes: Mapping[str, Index], settings: PipSettings) -> tuple[Place, ...]:
    """Return the places that may serve a package of an index: its own places, then the host's extra places."""
    own = (default_place(settings),) if name == DEFAULT_INDEX else bound_places(name, indexes)
    return (*own, *extra_places(settings))


def url_path(url: str) -> Path:
    """Return the path of a `file:` URL."""
    return Path(file_path(url))


def as_url(text: str) -> str:
    """Return a path or URL from a pip setting as a URL."""
    return text if "://" in text or text.startswith("file:") else Path(text).expanduser().absolute().as_uri()


@dataclass(frozen=True)
class Listed:
    """A file that a place lists, with a valid version. `sha256` is "" and `size` 0 if the place does not have them.

    `uploaded` is the date of its upload in UTC (ISO), or "". `yanked` is the reason (may be ""), or None for a file
    that was not yanked.
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


def list_files(place: Place, project: str, session: requests.Session, timeout: float) -> tuple[Listed, ...]:
    """Return the files of `project` that `place` lists. Raises the errors of requests and pypi_simple (see `ask`)."""
    folder = place.folder
    if place.links:
        wanted = canonicalize_name(project)
        packages = _links(place, wanted, session, timeout)
        packages = [package for package in packages if canonicalize_name(package.project or "") == wanted]
    elif folder is not None:
        page = folder / canonicalize_name(project) / "index.html"
        if not page.is_file():
            raise NoSuchProjectError(project, page.as_uri())
        packages = ProjectPage.from_html(project, page.read_bytes(), page.as_uri()).packages
    else:
        packages = PyPISimple(place.url, session=session).get_project_page(project, timeout=timeout).packages
    # Old files may have versions that PEP 440 does not allow.
    return tuple(_listed(package, place) for package in packages if is_version(package.version or ""))


def _links(place: Place, project: str, session: requests.Session, timeout: float) -> list[DistributionPackage]:
    """Return the files of a find-links place: files in a folder whose name fits the project, or all links of a page."""
    folder = place.folder
    if folder is None:
        response = session.get(place.url, timeout=timeout)
        response.raise_for_status()
        return ProjectPage.from_html("", response.content, response.url).packages
    if folder.is_dir():
        # Parsing all file names of a large folder for each package would be slow.
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


@dataclass(frozen=True)
class Answer:
    """The answer of `place` about `project`."""

    place: Place
    project: str
    state: State
    detail: str = ""
    files: tuple[Listed, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether the place answered. It may not have the project."""
        return self.state in (State.OK, State.EMPTY, State.NOT_FOUND)

    @property
    def dated(self) -> bool:
        """Whether the files have upload dates, so that a date bound can be applied."""
        return any(file.uploaded for file in self.files)

    def __str__(self) -> str:
        return f"{self.place}: {self.state}{f' ({self.detail})' if self.detail else ''}"


def sha256_of(file: Listed, cache: Path) -> str:
    """Return the SHA-256 of a file, from its place or computed from a local file; "" if it is not known."""
    path = url_path(file.url) if file.url.startswith("file:") else None
    return file.sha256 or (local_sha256(path, cache) if path and path.is_file() else "")


def ask(place: Place, project: str, session: requests.Session, timeout: float) -> Answer:
    """Query one place for one project. Errors are part of the answer. `timeout` (seconds) is for each wait."""
    try:
        files = list_files(place, project, session, timeout)
    except NoSuchProjectError:
        return Answer(place, project, State.NOT_FOUND)
    except (*_NO_PAGE, OSError) as error:
        return Answer(place, project, *trouble(error, session, place.url))
    return Answer(place, project, State.OK if files else State.EMPTY, "", files)


def ask_all(questions: Sequence[tuple[Place, str]], settings: PipSettings, timeout: float = 5.0) -> tuple[Answer, ...]:
    """Query every (place, project) at the same time. After `timeout` seconds, missing answers become time-outs."""
    session = HostSession(settings)
    futures = [begin(partial(_ask_again, *question, session, timeout)) for question in questions]
    done, _late = wait(futures, timeout)
    answers = []
    for future, (place, project) in zip(futures, questions, strict=True):
        answer = future.result() if future in done else None
        if answer is None or answer.state is State.TIMEOUT:  # the request may time out first
            proxy = session.proxy_words(place.url)
            detail = f"no answer within {timeout:g} s" + (f" through {proxy}" if proxy else "")
            answer = Answer(place, project, State.TIMEOUT, detail)
        answers.append(answer)
    return tuple(answers)


def _ask_again(place: Place, project: str, session: requests.Session, timeout: float) -> Answer:
    """Query, and retry temporary errors while time is left."""
    answer = Answer(place, project, State.OTHER)
    with suppress(PassingError):
        for attempt in retrying(longest=timeout):
            with attempt:
                answer = ask(place, project, session, timeout)
                if answer.state in (State.SERVER, State.RESET):
                    raise PassingError
    return answer


class Asked:
    """Caches the answers of places for one run, because its locks send the same queries.

    Several threads may use it; a second one waits for the answers of the first. A place that was not reached is not
    queried again.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[Place, str], Answer] = {}
        self._lost: dict[Place, Answer] = {}
        self._one_at_a_time = threading.Lock()

    def ask(self, questions: Sequence[tuple[Place, str]], settings: PipSettings, timeout: float) -> tuple[Answer, ...]:
        """Return the same as `ask_all`, but send only new queries."""
        with self._one_at_a_time:
            new = [q for q in dict.fromkeys(questions) if q not in self._answers and q[0] not in self._lost]
            self._answers.update(zip(new, ask_all(new, settings, timeout) if new else (), strict=True))
            self._lost.update({a.place: a for a in self._answers.values() if a.state in OF_HOST})
        return tuple(self._answers.get(q) or replace(self._lost[q[0]], project=q[1]) for q in questions)
