"""List the files of a project in one place: an index of the simple API, or a find-links folder or page.

`file://` indexes and folders are read directly.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pypi_simple import NoSuchProjectError, ProjectPage, PyPISimple

from cannery.lock.io.places import url_path

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage

    from cannery.lock.io.places import Place


@dataclass(frozen=True)
class Listed:
    """A file that a place lists; its version is a valid one. `sha256` is "" and `size` 0 where the place has none.

    `uploaded` is the day of its upload in UTC (ISO), "" where the place has no times; `yanked` is the reason ("" when
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


def list_files(place: Place, project: str, session: requests.Session, timeout: float) -> tuple[Listed, ...]:
    """Return what `place` lists of `project`. Raises what requests and pypi_simple raise; see `ask`."""
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
    return tuple(_listed(package, place) for package in packages if _has_version(package))


def _has_version(package: DistributionPackage) -> bool:
    """Whether a file's version is one: an index has files of twenty years."""
    try:
        Version(package.version or "")
    except InvalidVersion:
        return False
    return True


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
